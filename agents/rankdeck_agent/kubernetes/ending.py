"""Ends a Kubernetes job and proves it: deletes its objects, then looks until nothing bears its label."""

import threading
import time
from dataclasses import replace
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.kubernetes import target as objects
from rankdeck_agent.kubernetes.api import Api, ApiError
from rankdeck_agent.kubernetes.proxy import Proxy, ProxyError, refusal
from rankdeck_agent.kubernetes.target import Target

SLACK = 4.0
"""Seconds beyond the grace in which it is proven, or what is left is named."""
_LOOK_PERIOD = 2.0
_PAUSE = 0.3
_KUBELET = 1.0
"""Seconds after the grace for the nodes to kill what did not end, before they are told once more."""


class Ending:
    """One deletion, done step by step. `left` names what is left; empty once it is proven that nothing is."""

    def __init__(self, api: Api, target: Target) -> None:
        self._api, self._target = api, target
        self._began = time.monotonic()
        self._asked = self._hurried = False
        self._looked = float("-inf")
        self.left = [f"{target.kind} {target.namespace}/{target.name}: nothing is known of it"]

    def step(self, grace: float, *, quiet: bool) -> bool:
        """Do what is due; whether it is over. `grace` counts from the beginning, in seconds.

        `quiet`: no pod is known to be there, so that a look may prove it.
        """
        now = time.monotonic()
        late = now - self._began - grace
        try:
            self._ask(late)
            if quiet or now - self._looked > _LOOK_PERIOD:
                self._looked = now
                self.left = objects.leftovers(self._api, self._target)
        except ApiError as error:
            self.left = [refusal(error)]
        return not self.left or late > SLACK

    def _ask(self, late: float) -> None:
        if not self._asked:
            objects.ask_to_end(self._api, self._target)
            self._asked = True
        if late > _KUBELET and not self._hurried:
            self._hurried = True
            # In a thread: with hundreds of pods it takes seconds, and they may go by themselves meanwhile.
            threading.Thread(target=self._hurry, daemon=True).start()

    def _hurry(self) -> None:
        try:
            objects.hurry(self._api, self._target)
        except ApiError:
            return  # the looks tell what is left


def end_without_keeper(folder: RunFolder, grace: float) -> list[dict[str, Any]]:
    """End the job of a run folder whose keeper did not; what is left, as `left` of a cancel has it."""
    settings = folder / objects.SETTINGS
    if not settings.exists() or (folder / objects.GONE).exists():
        return []
    target = objects.read_target(settings)
    try:
        with Proxy(target.context) as proxy:
            if not target.namespace:
                target = replace(target, namespace=proxy.namespace())
            ending = Ending(proxy.api, target)
            while not ending.step(grace, quiet=True):
                time.sleep(_PAUSE)
    except ProxyError as error:
        return [{"pid": 0, "command": f"Kubernetes job {target.name}: {error}"}]
    if not ending.left:
        (folder / objects.GONE).touch(mode=0o600)
    return [{"pid": 0, "command": f"Kubernetes: {one}"} for one in ending.left[:50]]
