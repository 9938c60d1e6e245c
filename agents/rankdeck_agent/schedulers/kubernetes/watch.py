"""Watches objects of the API server: lists them, then reads their changes."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Callable, Optional, cast

from rankdeck_agent.schedulers.kubernetes.api import LIMIT, Api, HttpStream, Params
from rankdeck_agent.schedulers.kubernetes.json_values import Object, table_of, whole_or_zero
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import ApiError, parse_refusal
from rankdeck_agent.text import parse_json_table

WATCH_SECONDS = 300
"""Seconds after which we ask the server to end a watch; the next one begins where it stopped."""
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)
_HELD = 5.0
"""A watch that breaks after this many seconds has not failed: proxies cut
connections that are idle for a minute.
"""
LISTED = "LISTED"
TROUBLE = "TROUBLE"


class Watch:
    """Lists objects, then watches them; lists again when the server no
    longer knows the resourceVersion (410).

    Yields (LISTED, {"items": […]}) after each list, then the server's ADDED, MODIFIED and DELETED
    with the object, and (TROUBLE, {"status", "reason", "message"}) when it is refused or breaks;
    then it waits and goes on.
    """

    def __init__(self, api: Api, path: str, params: Params) -> None:
        self._api, self._path, self._params = api, path, params
        self._over = threading.Event()
        self._stream: Optional[HttpStream] = None
        self._version, self._failures = "", 0
        self._opened = float("inf")
        """When the server began to answer the watch (monotonic seconds)."""

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._over.set()
        if self._stream is not None:
            self._stream.close()

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        while not self._over.is_set():
            trouble: Optional[ApiError] = None
            try:
                yield from self._once()
            except ApiError as error:
                trouble = error
            if trouble is not None and not self._over.is_set():
                yield from self._recover(trouble)

    def _once(self) -> Iterator[tuple[str, Object]]:
        """List if no resourceVersion is known, then watch once until the server ends it."""
        self._opened = float("inf")
        if not self._version:
            items, self._version = self._api.items(self._path, self._params)
            yield LISTED, {"items": items}
        # If nothing comes, not even a bookmark, list again: a server that was restored from a
        # backup counts from an older version, and sends nothing until it has passed ours.
        version, self._version = self._version, ""
        for kind, found in self._events(version):
            version = self._version = _version(found) or version
            self._failures = 0
            if kind != "BOOKMARK":
                yield kind, found

    def _recover(self, error: ApiError) -> Iterator[tuple[str, Object]]:
        if not error.status and time.monotonic() - self._opened > _HELD:
            self._failures = 0
        self._failures += 1
        expired, again = error.status == 410, self._failures > 1
        # A watch may break now and then: only a second failure in a row is reported.
        if again or (error.status and not expired):
            yield TROUBLE, vars(error)
        # The server may have forgotten changes by now: list again.
        if expired or again:
            self._version = ""
        if again or not expired:
            self._over.wait(BACKOFF[min(self._failures, len(BACKOFF)) - 1])

    def _events(self, version: str) -> Iterator[tuple[str, Object]]:
        asked = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        self._stream = stream = self._api.lines(self._path, asked, WATCH_SECONDS + LIMIT)
        self._opened = time.monotonic()
        if self._over.is_set():
            stream.close()
        for line in stream:
            event = parse_json_table(line.decode("utf-8", "replace"))
            found = event.get("object") if event else None
            if event is None or not isinstance(found, dict):
                raise ApiError(0, "NoJson", "the watch sends what is no event")
            found = cast("Object", found)
            if event.get("type") == "ERROR":
                raise parse_refusal(whole_or_zero(found.get("code")), json.dumps(found).encode())
            yield str(event.get("type")), found


def start_watch_thread(watch: Watch, tell: Callable[[str, Object], None]) -> threading.Thread:
    """Call `tell(kind, object)` for every event of a watch, in a new
    thread, until the watch is closed.
    """

    def go() -> None:
        for kind, found in watch:
            tell(kind, found)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread


def _version(found: Object) -> str:
    value = table_of(found.get("metadata")).get("resourceVersion")
    return value if isinstance(value, str) else ""
