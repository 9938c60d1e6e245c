"""A plain HTTP client of the double, for tests of its requests and answers."""

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import urlencode

from tests.support.kubernetes.double import TOKEN, Double

Json = dict
LIMIT = 60


class Client:
    """Sends requests as one user."""

    def __init__(self, double: Double, token: str = TOKEN) -> None:
        self._address = double.address.removeprefix("https://")
        self._context = ssl.create_default_context(cafile=str(double.folder / "kube-ca.crt"))
        self._token = token

    def open(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> http.client.HTTPResponse:
        """Send a request; returns the answer, not read yet."""
        connection = http.client.HTTPSConnection(
            self._address, timeout=LIMIT, context=self._context
        )
        headers = {"Authorization": f"Bearer {self._token}"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        whole = path + (f"?{urlencode(query)}" if query else "")
        connection.request(method, whole, json.dumps(body) if body is not None else None, headers)
        return connection.getresponse()

    def ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> tuple[int, object]:
        """Send a request; returns (status code, decoded JSON or text)."""
        with self.open(method, path, query, body) as answer:
            text = answer.read().decode()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, text


class Watching:
    """Reads a watch in a thread; `events` has (type, object) in order of arrival."""

    def __init__(self, client: Client, path: str) -> None:
        self.events: list[tuple[str, Json]] = []
        self._answer = client.open("GET", path, {"watch": "1"})
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._answer:
                found = json.loads(line)
                self.events.append((found["type"], found["object"]))
        except (OSError, ValueError, http.client.HTTPException):
            return
