"""Pretended containers: lines and exit codes from a script, without
processes, for many pods at little cost.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from tests.support.kubernetes.kubelet import Exit
from tests.support.kubernetes.logs import ContainerLog

Json = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """What a container of a pod says: `text` with {n} (line) and
    {pod}, so many a second, for so long.
    """

    text: str = "{pod} line {n}"
    every: float = 0.2
    """Seconds between lines."""
    lasting: float = 1.0
    """Seconds until it ends by itself."""
    code: int = 0
    first: tuple[str, ...] = ()
    """Lines at once, at the start."""


class Scripts:
    """A runner that pretends."""

    def __init__(self) -> None:
        self._scripts: list[tuple[str, Script]] = []

    def use(self, pattern: str, script: Script) -> None:
        """Pods whose name matches do as the script says, or one of their containers
        (`POD/CONTAINER`); the newest rule counts.
        """
        self._scripts.insert(0, (pattern, script))

    def missing(self, pod: Json) -> str:
        """Volumes are not mounted here."""
        return ""

    def refresh(self) -> None:
        """There are no host names."""

    async def start(self, pod: Json, container: Json, address: str, log: ContainerLog):
        name = pod["metadata"]["name"]
        names = (name, f"{name}/{container['name']}")
        found = (s for p, s in self._scripts if any(re.fullmatch(p, one) for one in names))
        return _Pretended(next(iter(found), None) or told(pod, container), name, log)


def told(pod: Json, container: Json) -> Script:
    """The script that a container's variables ask for: RUN_S, HZ, FAIL_INDEX, FAIL_AT."""
    known = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
    names = pod["metadata"].get("labels", {})
    index = names.get("batch.kubernetes.io/job-completion-index", "0")
    lasting, code = float(known.get("RUN_S", 1)), 0
    if known.get("FAIL_INDEX") == index:
        lasting, code = float(known.get("FAIL_AT", lasting)), 3
    if names.get("training.kubeflow.org/job-role") == "worker":
        lasting, code = 1e6, 0
    start = f"[rank {index}] start on {pod['spec']['nodeName']}"
    text = f"[rank {index}] step {{n}} loss 0.5"
    return Script(text, 1 / float(known.get("HZ", 5)), lasting, code, (start,))


class _Pretended:
    def __init__(self, script: Script, pod: str, log: ContainerLog) -> None:
        self._script, self._pod, self._log = script, pod, log
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Exit:
        script, loop = self._script, asyncio.get_running_loop()
        begun = loop.time()
        if script.first:
            self._log.add(*(line.encode() for line in script.first))
        n = 0
        while not self._end.done():
            if loop.time() - begun >= script.lasting:
                return Exit(script.code, "Error" if script.code else "Completed")
            n += 1
            self._log.add(script.text.format(n=n, pod=self._pod).encode())
            until = min(begun + n * script.every, begun + script.lasting)
            await asyncio.wait({self._end}, timeout=max(0.0, until - loop.time()))
        return self._end.result()

    def terminate(self) -> None:
        self._stop(143)

    def kill(self) -> None:
        self._stop(137)

    def _stop(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(Exit(code, "Error"))
