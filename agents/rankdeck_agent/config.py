"""The agent's configuration: one line of JSON, or a file with `key = value` lines.

Also reads the block `expect:` of a cluster file, without a YAML
library: words, numbers and lists of words.
"""

import json
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Union

from rankdeck_agent.collectors import choose_simulated
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.values import Value, field, list_fields
from rankdeck_agent.wire import NODE_VARIABLE

SIZE_LIMIT = 65536
_NAME = re.compile(r"[^\s/+#\x00-\x1f\x7f$][^/+#\x00-\x1f\x7f]{0,127}")
_SPELLINGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class AgentConfigError(ValueError):
    """The configuration cannot be used; the text is one sentence."""


class Config(Value):
    """Where the agent publishes, as whom, and how often."""

    cluster: str
    host: str
    node: str = ""
    port: int = 1883
    username: str = ""
    password: str = ""
    password_file: str = ""
    """File with the password on its first line; read once, when the agent starts."""
    tls: bool = False
    ca_file: str = ""
    ca: str = ""
    """CA certificates as PEM text, instead of `ca_file`."""
    keepalive: int = 15
    """Seconds; MQTT's keep-alive."""
    period: float = 1.0
    """Seconds between two readings, each of which is judged."""
    sample_period: float = 0.0
    """Seconds between two full samples, while they are wanted; 0: send every reading."""
    samples: bool = True
    """Whether full samples are wanted, until a line on standard input says otherwise."""
    heartbeat: float = 10.0
    """Seconds after which health is sent again although nothing has changed."""
    relay: bool = False
    """The broker is reached over standard input and output, not at `host` and `port`."""
    brief: bool = False
    """The console reads only for a moment: a condition that holds in
    two readings counts as lasting.
    """
    expect: Expected = field(default_factory=Expected)
    """What this node should have."""
    simulate: tuple[str, ...] = ()
    """What to simulate: `gpu`, `rdma`; with a fault `gpu:hot`, on
    one node only `rdma:flap@node7`.
    """
    rdma_exclude: tuple[str, ...] = ()
    """Patterns of RDMA devices whose counters are not read."""
    root: str = "/"
    """Folder below which /proc and /sys are read."""


def from_line(line: bytes) -> Config:
    """The configuration in one line of JSON; raises AgentConfigError."""
    if not line.strip():
        raise AgentConfigError("no configuration on standard input: expected one line of JSON")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AgentConfigError(f"the configuration is not JSON: {error}") from error
    return from_mapping(raw)


def from_file(path: str) -> Config:
    """The configuration in a file of JSON or `key = value` lines; raises AgentConfigError.

    `-` is standard input: the service manager opens the file, which the agent itself may not.
    """
    data = _contents(path)
    try:
        text = data.decode()
        return from_mapping(json.loads(text) if text.lstrip().startswith("{") else _lines(text))
    except (ValueError, RecursionError) as error:
        raise AgentConfigError(f"{path}: {_first_line(error)}") from error


def _contents(path: str) -> bytes:
    try:
        # By descriptor: this user may not open by name what the service manager has opened.
        where = 0 if path == "-" else path
        with open(where, "rb", closefd=path != "-") as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise AgentConfigError(f"{path}: {error.strerror}") from error
    if len(data) > SIZE_LIMIT:
        raise AgentConfigError(f"{path}: larger than {SIZE_LIMIT} bytes: not a configuration")
    return data


def from_mapping(raw: object) -> Config:
    """The configuration in decoded JSON; raises AgentConfigError."""
    if not isinstance(raw, dict):
        raise AgentConfigError("the configuration is not a table of keys and values")
    given: dict[str, Any] = {str(k): v for k, v in raw.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    known = set(list_fields(Config))
    for key in given:
        if key not in known:
            raise AgentConfigError(f"unknown key {key[:40]!r}{_meant(key, known)}")
    for key in ("cluster", "host"):
        if key not in given:
            raise AgentConfigError(f"{key} is missing")

    values = {key: _READ[key](key, value) for key, value in given.items()}
    # In a pod the host name may be the pod's: then a variable has the node's name.
    here = os.environ.get(NODE_VARIABLE) or platform.node().partition(".")[0]
    values["node"] = values.get("node") or _name("node", here)

    if values.get("password_file"):
        values["password"] = _password(values)
    if values.get("ca") and values.get("ca_file"):
        raise AgentConfigError("give ca or ca_file, not both")
    return Config(**values)


def _password(values: Mapping[str, Any]) -> str:
    if values.get("password"):
        raise AgentConfigError("give password or password_file, not both")
    lines = _contents(values["password_file"]).decode("utf-8", "replace").splitlines()
    if not lines or not lines[0]:
        raise AgentConfigError(f"{values['password_file']}: no password in it")
    return lines[0]


def _lines(text: str) -> dict[str, object]:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=True)
    headed = re.search(r"^\s*\[", text, re.MULTILINE) is not None
    try:
        parser.read_string(text if headed else f"[agent]\n{text}")
    except configparser.Error as error:
        raise AgentConfigError(_first_line(error)) from error
    if len(parser.sections()) != 1:
        raise AgentConfigError("expected `key = value` lines in one section")
    return {key: value.strip() for key, value in parser[parser.sections()[0]].items()}


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _meant(key: str, known: "set[str]") -> str:
    import difflib

    close = difflib.get_close_matches(key, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _text(key: str, value: object) -> str:
    if isinstance(value, str) and "\x00" not in value and len(value) <= SIZE_LIMIT:
        # In files that look like TOML, texts are in quotes.
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        return value[1:-1] if quoted else value
    raise AgentConfigError(f"{key} must be a text")


def _filled(key: str, value: object) -> str:
    text = _text(key, value).strip()
    if not text:
        raise AgentConfigError(f"{key} is empty")
    return text


def _name(key: str, value: object) -> str:
    text = _text(key, value)
    if not _NAME.fullmatch(text):
        raise AgentConfigError(
            f"{key} {text[:40]!r} cannot be part of an MQTT topic: no / + # or control characters"
        )
    return text


def _node(key: str, value: object) -> str:
    return _name(key, value) if value else ""


def _number(key: str, value: object, low: float, high: float) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not low <= number <= high:
        raise AgentConfigError(
            f"{key} must be a number from {low:g} to {high:g}, not {str(value)[:40]!r}"
        )
    return number


def _flag(key: str, value: object) -> bool:
    found = _SPELLINGS.get(str(value).lower())
    if found is None:
        raise AgentConfigError(f"{key} must be true or false, not {str(value)[:40]!r}")
    return found


def _simulate(key: str, value: object) -> tuple[str, ...]:
    given = re.findall(r"[^\s,\"'\[\]]+", value) if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)):
        raise AgentConfigError(f"{key} must be a list")
    names = [str(name) for name in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    try:
        choose_simulated(names, "")
    except ValueError as error:
        raise AgentConfigError(f"{key}: {error}") from error
    return tuple(dict.fromkeys(names))


def _patterns(key: str, value: object) -> tuple[str, ...]:
    given = re.findall(r"[^\s,\"']+", value) if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)):
        raise AgentConfigError(f"{key} must be a list of device names, * for any letters")
    patterns: list[object] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(_filled(key, pattern) for pattern in patterns)


def _expected(key: str, value: object) -> Expected:
    """What is expected, from `{"gpus": 8, "rdma": 8, "interface": "eth0", "other":
    {"gpu_model": "A100"}}` or that as text.
    """
    try:
        given: Any = json.loads(value) if isinstance(value, str) else value
        other = dict(given.get("other", {}))
        unknown = sorted(set(given) - {"gpus", "rdma", "interface", "other"})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise AgentConfigError(f"{key} is no table in JSON: {error}") from error
    if unknown:
        raise AgentConfigError(f"{key}: unknown key {str(unknown[0])[:40]!r}")
    for name, entry in other.items():
        if not isinstance(entry, (str, int, float)) or isinstance(entry, bool):
            raise AgentConfigError(f"{key}: {str(name)[:40]} must be a text or a number")
    return Expected(
        _whole(f"{key}: gpus", given.get("gpus", 0), 0, 1024),
        _whole(f"{key}: rdma", given.get("rdma", 0), 0, 1024),
        _text(f"{key}: interface", given.get("interface", "")),
        {str(name): entry for name, entry in other.items()},
    )


def _whole(key: str, value: object, low: int, high: int) -> int:
    number = _number(key, value, low, high)
    if number != int(number):
        raise AgentConfigError(f"{key} must be a whole number, not {str(value)[:40]!r}")
    return int(number)


_READ: Mapping[str, Callable[[str, object], Any]] = {
    "cluster": _name,
    "host": _filled,
    "node": _node,
    "port": lambda key, value: _whole(key, value, 1, 65535),
    "username": _text,
    "password": _text,
    "tls": _flag,
    "password_file": _text,
    "ca_file": _text,
    "ca": _text,
    "keepalive": lambda key, value: _whole(key, value, 2, 3600),
    "period": lambda key, value: _number(key, value, 0.1, 3600),
    "sample_period": lambda key, value: _number(key, value, 0, 60),
    "samples": _flag,
    "heartbeat": lambda key, value: _number(key, value, 1, 3600),
    "brief": _flag,
    "relay": _flag,
    "expect": _expected,
    "simulate": _simulate,
    "rdma_exclude": _patterns,
    "root": _filled,
}


ExpectedValue = Union[str, int, float]
EXPECT_LIMIT = 1 << 16
_HEAD = re.compile(r"expect\s*:(?:\s+(.*))?")
_ENTRY = re.compile(r"(\s*)([A-Za-z_][\w.-]{0,63})\s*:(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.*)")
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_BARE = re.compile(rf"""(?:{_QUOTED}|(?<!\s)#|[^#"']|["'])*""")
_PARTS = re.compile(rf"""\s*((?:{_QUOTED}|\[[^\]]*\]|[^,"'\[]|["'\[])+)(?:,|$)""")


class ExpectError(ValueError):
    """The file cannot be used; the text is one sentence with file and line."""


def read_expectations(path: str) -> dict[str, ExpectedValue]:
    """The entries of the block `expect:` in a file, which may be a
    whole cluster file or only the block.

    Raises ExpectError.
    """
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  a Path costs an import
            text = file.read(EXPECT_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise ExpectError(f"{path}: {why}") from error

    if len(text) > EXPECT_LIMIT:
        raise ExpectError(f"{path}: larger than {EXPECT_LIMIT} bytes: not an expect block")
    return _json(path, text) if text.lstrip().startswith("{") else _entries(path, text)


def _json(path: str, text: str) -> dict[str, ExpectedValue]:
    try:
        raw: Any = json.loads(text)
        inner: Any = raw.get("expect", raw)
        return {str(key): _plain(value) for key, value in inner.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise ExpectError(f"{path}: not a table in JSON: {error}") from error


def _plain(value: object) -> ExpectedValue:
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value if isinstance(value, (int, float)) else str(value)


def _entries(path: str, text: str) -> dict[str, ExpectedValue]:
    found: dict[str, ExpectedValue] = {}
    margin, last = "", ""
    for number, line in _block(text):
        item, entry = _ITEM.fullmatch(line), _ENTRY.fullmatch(line)
        if line.strip().startswith("{"):
            found.update(_flow(path, number, line.strip()))
        elif item and last:
            found[last] = ", ".join(filter(None, (str(found[last]), str(_value(item[1])))))
        elif entry and entry[1] == (margin if found else entry[1]):
            margin, last = entry[1], entry[2]
            found[last] = _value(entry[3] or "")
        else:
            raise _wrong(path, number, line)
    return found


def _block(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of the non-empty lines of the block; of all lines
    if no line begins with `expect:`.
    """
    lines = [(n, _bare(line)) for n, line in enumerate(text.splitlines(), 1)]
    head = next((n for n, line in lines if _HEAD.fullmatch(line)), 0)
    if head:
        found = _HEAD.fullmatch(lines[head - 1][1])
        rest = [(head, found[1] if found and found[1] else "")]
        for number, line in lines[head:]:
            if line and not line.startswith((" ", "-")):
                break
            rest.append((number, line))
        lines = rest
    return ((n, line) for n, line in lines if line not in ("", "---", "{}"))


def _bare(line: str) -> str:
    """The line without its comment."""
    found = None if line.lstrip().startswith("#") else _BARE.match(line)
    return found[0].rstrip() if found else ""


def _flow(path: str, number: int, text: str) -> dict[str, ExpectedValue]:
    """The entries in `{gpu_model: A100, mounts: [/data, /home]}`; raises ExpectError."""
    entries = [_ENTRY.fullmatch(part.rstrip()) for part in _PARTS.findall(text[1:-1])]
    if not text.endswith("}") or None in entries:
        raise _wrong(path, number, text)
    return {entry[2]: _value(entry[3] or "") for entry in entries if entry}


def _value(text: str) -> ExpectedValue:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return ", ".join(str(_value(part)) for part in _PARTS.findall(text[1:-1]))
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", text):  # in YAML, 08 is text
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text):
        return float(text)
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text


def _wrong(path: str, number: int, text: str) -> ExpectError:
    return ExpectError(f"{path}:{number}: {text.strip()[:60]!r} is not `key: value`")
