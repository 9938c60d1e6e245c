"""What kubectl and the API server say when they refuse, and the sentence that
tells what to do.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Union

from rankdeck_agent.older_python import without_prefix
from rankdeck_agent.text import parse_json_table, plain_line

UNREACHABLE, SILENT = "Unreachable", "Silent"
"""Reasons that are ours: no answer came; nothing came on a stream
for as long as its caller waits.
"""
_NO_API = frozenset({400, 404, 405, 426, 501})
"""HTTP statuses that a Kubernetes server never sends without an object that says why."""
ASK_LIMIT = 15.0
_NO_CONFIGURATION = (
    "kubectl has no configuration here: put one in ~/.kube/config, or set KUBECONFIG"
)
_COMPLAINTS = (
    (r"fail(?:ed|ing) (?:to call|calling) webhook",
     "an admission webhook of the cluster does not work, and the server takes nothing without it: tell who runs the cluster ({said})"),
    (r"context .*(?:does not exist|nosuch|was not found)|cannot locate context",
     "kubectl knows no context `{context}`: `kubectl config get-contexts` lists those there are"),
    (r"current-context must exist|no configuration has been provided|127\.0\.0\.1:8080|localhost:8080",
     _NO_CONFIGURATION),
    (r"error loading config|couldn't get version/kind|yaml: |cannot unmarshal",
     "kubectl cannot read its configuration: {said}"),
    (r"getting credentials|exec: executable|exec plugin|refresh token|oauth2|invalid_grant|AADSTS",
     "kubectl could not log in: log in again as you do for kubectl ({said})"),
    (r"Unauthorized|must be logged in|token (?:has|is) expired",
     "your login to Kubernetes has expired or is not known there: log in again as you do for kubectl"),
    (r"x509|certificate|tls:",
     "the certificate of the Kubernetes server is not accepted: compare the clock here, and `kubectl cluster-info` ({said})"),
    (r"connection refused|no such host|no route|timeout|timed out|network is unreachable|\bEOF\b|connection reset|deadline exceeded",
     "the Kubernetes server does not answer: is it up, and the VPN? `kubectl cluster-info` asks it too ({said})"),
)  # fmt: skip
"""(pattern of what kubectl or the server write, the sentence for it); the first match counts."""
NO_LOGIN = re.compile(r"getting credentials|exec: executable|exec plugin")
PLUGIN_SAYS = "; the plug-in says: "
_WARNING = re.compile(r"Warning:|[WI]\d{4} ")
_KUBECTL = re.compile(r"[WIEF]\d{4} |Starting to serve|Warning:|error: ")
_ERROR = re.compile(r"(?i)error\b|unable to |[EF]\d{4} ")


class ApiError(Exception):
    """A request failed.

    `status`: of HTTP, 0 if no answer came; `reason`: a word of Kubernetes such as AlreadyExists.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


def _no_api(answer: str) -> str:
    """The sentence if something other than Kubernetes answers: kubectl without a
    configuration asks port 8080 of this machine.
    """
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(file).is_file() for file in files.split(os.pathsep) if file):
        return "no configuration has been provided"
    return f"what answers is no Kubernetes server: compare the address in `kubectl config view` ({answer})"


def parse_refusal(status: int, answer: bytes) -> ApiError:
    """The error in the server's Status object, or in kubectl's own text
    if it could not reach the server.
    """
    text = answer.decode("utf-8", "replace")
    row = parse_json_table(text)
    if row is None:
        message = plain_line(text, 400) or f"HTTP status {status}"
        return ApiError(status, UNREACHABLE, _no_api(message) if status in _NO_API else message)
    reason = plain_line(str(row.get("reason") or ""), 60)
    return ApiError(status, reason, plain_line(str(row.get("message") or reason), 1000))


class ProxyError(Exception):
    """`kubectl proxy` does not work; the text is a sentence that says what to do."""


def kubectl_complaint(stderr: str) -> str:
    """The error in kubectl's stderr: the last line that is an error,
    else the last one that is no warning.

    Some versions write more after the error, such as that an option is deprecated.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    relevant = [line for line in lines if not _WARNING.match(line)] or lines
    errors = [line for line in relevant if _ERROR.match(line)]
    return (errors or relevant or [""])[-1]


def plugin_words(stderr: str) -> str:
    """The last lines that a plug-in wrote among those of kubectl, as one line."""
    lines = (line.strip() for line in stderr.splitlines())
    own = [line for line in lines if line and not _KUBECTL.match(line)]
    return plain_line(" ".join(dict.fromkeys(own[-3:])), 200)


def in_words(message: str, context: str = "") -> str:
    """The sentence that says what to do about an error text of kubectl or the
    server; the text itself if none fits.
    """
    message, says, words = without_prefix(message, "error: ").partition(PLUGIN_SAYS)
    # The plug-in's words first: they say what to do.
    message = plain_line(f"the plug-in says: {words}; {message}" if says else message, 300)
    for pattern, sentence in _COMPLAINTS:
        if re.search(pattern, message, re.IGNORECASE):
            if sentence is _NO_CONFIGURATION and not context:
                return _without_context() or sentence
            return sentence.format(said=message, context=plain_line(context, 60))
    return message


def _without_context() -> str:
    """The sentence if kubectl's configuration has contexts and chooses
    none of them, else ""; asks kubectl.
    """
    argv = ("kubectl", "config", "get-contexts", "--output=name")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_LIMIT,
            check=False,
        )
        chosen = (
            subprocess.call(
                ("kubectl", "config", "current-context"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=ASK_LIMIT,
            )
            == 0
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    names = done.stdout.decode("utf-8", "replace").split()
    if chosen or not names:
        return ""
    return (
        "kubectl's configuration chooses no context: `kubectl config use-context NAME` does, or name one in the"
        f" cluster file, `kubernetes: {{context: NAME}}`; there are: {plain_line(', '.join(names[:10]), 300)}"
    )


def describe_api_refusal(error: Union[ApiError, ProxyError]) -> str:
    """Why a request or kubectl failed, in a sentence; what the server says
    about objects and rights is not changed.
    """
    if isinstance(error, ProxyError):
        return str(error)
    if error.status in (0, 401, 500, 502, 503, 504) or error.reason == UNREACHABLE:
        return in_words(error.message or error.reason)
    return error.message or error.reason
