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
_NO_API = frozenset({301, 302, 303, 307, 308, 400, 404, 405, 426, 501})
"""HTTP statuses that a Kubernetes server never sends without an object that says why."""
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body|a |\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
_NOT_LOGGED_IN, _FORBIDDEN = 401, 403
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
    (r"proxyconnect|socks connect",
     "the proxy of kubectl's configuration (`proxy-url`, or HTTPS_PROXY here) does not answer: is it up, and meant? ({said})"),
    (r"exec plugin: invalid apiVersion|exec plugin is configured to use API version",
     "kubectl and the plug-in that logs in speak no common version: renew the plug-in, or the configuration that it wrote ({said})"),
    (r"private key does not match|\bPEM\b|unable to (?:load root certificates|read client-)|unable to use a TLS",
     "a certificate or key in kubectl's configuration cannot be used: {said}"),
    (r"remote error: tls: .*certificate",
     "the Kubernetes server does not accept the certificate with which kubectl logs in: is it still valid? ({said})"),
    (r"error loading config|couldn't get version/kind|yaml: |cannot unmarshal",
     "kubectl cannot read its configuration: {said}"),
    (r"getting credentials|exec: executable|exec plugin|refresh token|oauth2|invalid_grant|AADSTS",
     "kubectl could not log in: log in again as you do for kubectl ({said})"),
    (r"HTTP status 401|Unauthorized|client to provide credentials|must be logged in|token (?:has|is) expired",
     "your login to Kubernetes has expired or is not known there: log in again as you do for kubectl"),
    (r"x509|certificate|tls:",
     "the certificate of the Kubernetes server is not accepted: compare the clock here, and `kubectl cluster-info` ({said})"),
    (r"HTTP status 50[0234]|connection refused|no such host|no route|timeout|timed out|network is unreachable|\bEOF\b|connection reset|deadline exceeded",
     "the Kubernetes server does not answer: is it up, and the VPN? `kubectl cluster-info` asks it too ({said})"),
)  # fmt: skip
"""(pattern of what kubectl or the server write, the sentence for it); the first match counts."""
NO_LOGIN = re.compile(r"getting credentials|exec: executable|exec plugin")
PLUGIN_SAYS = "; the plug-in says: "
_WARNING = re.compile(r"Warning:|[WI]\d{4} |command terminated with exit code")
_KUBECTL = re.compile(
    r"[WIEF]\d{4} |Starting to serve|Warning:|error: |It looks like you are trying to use a client-go"
    r"|To learn more about this feature|https://kubernetes\.io/docs/"
)
ASKED_FOR_LOGIN = "error: EOF"
"""All that kubectl complains of where it asked for a user name and nobody typed one."""
NO_CREDENTIALS = (
    "kubectl has nothing to log in with: its configuration names neither a token nor a certificate nor a"
    " plug-in for this user"
)
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


def no_json(status: int, answer: bytes) -> ApiError:
    """The error if an answer is no JSON object: of a page for people its title."""
    page = _title_of_page(status, answer.decode("utf-8", "replace"))
    if page:
        return ApiError(status, UNREACHABLE, _no_api(page))
    return ApiError(status, "NoJson", "the answer is no JSON object")


def _title_of_page(status: int, text: str) -> str:
    """`HTTP status 502, 502 Bad Gateway` of a web page; "" for any other text.

    Proxies and logins answer with pages, no Kubernetes server does.
    """
    if not _PAGE.match(text):
        return ""
    title = _TITLE.search(text)
    return f"HTTP status {status}" + (f", {plain_line(title[1].strip(), 100)}" if title else "")


def parse_refusal(status: int, answer: bytes) -> ApiError:
    """The error in the server's Status object, or in kubectl's own text
    if it could not reach the server.
    """
    text = answer.decode("utf-8", "replace")
    row = parse_json_table(text)
    if row is None:
        page = _title_of_page(status, text)
        message = page or plain_line(text, 400) or f"HTTP status {status}"
        strange = status in _NO_API or (page and status == _FORBIDDEN)
        return ApiError(status, UNREACHABLE, _no_api(message) if strange else message)
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
    chosen = (errors or relevant or [""])[-1]
    if not chosen.rstrip().endswith(":"):
        return chosen
    # A heading: what is wrong comes below it.
    return " ".join(line.strip() for line in relevant[relevant.index(chosen) :])


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
    if error.status == _NOT_LOGGED_IN:
        return in_words(f"HTTP status {error.status}: {error.message or error.reason}")
    if error.status in (0, 500, 502, 503, 504) or error.reason == UNREACHABLE:
        return in_words(error.message or error.reason)
    return error.message or error.reason
