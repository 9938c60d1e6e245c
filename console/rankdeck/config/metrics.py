"""The `metrics:` section of a cluster file: the site's Prometheus and how it names the nodes."""

import re
from collections.abc import Mapping

from rankdeck.config import names, trust
from rankdeck.config.document import Entry, take
from rankdeck.model.cluster import Metrics

KEYS = (
    "url", "ca_file", "user", "password_env", "password_file", "token_env", "token_file", "label",
    "gpu_label", "labels", "interval",
)  # fmt: skip
SCHEMES = {"http": (False, 80), "https": (True, 443)}
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PATH = re.compile(r"[A-Za-z0-9._~/-]{0,200}")
_ONE_OF = ("password_env", "password_file", "token_env", "token_file")
_INSTEAD = "use `user` with `password_file: FILE`, or `token_file: FILE`"


def read_metrics(entry: Entry) -> Metrics | None:
    """The site's Prometheus; mistakes are in `entry.problems`."""
    table = entry.section(KEYS, ("url",), trust.no_secrets(_INSTEAD))
    if "url" not in table:
        return None
    host, port, tls, path = names.url(table["url"], SCHEMES, _INSTEAD)
    if not _PATH.fullmatch(path):
        table["url"].report("its path may hold letters, digits and `._~/-`")
    _one_login(table)
    trust.asks_for(table, ("ca_file", "password_file", "token_file"), f"{host}:{port}")
    texts = {key: take(table, key) for key in ("ca_file", *_ONE_OF)}
    return Metrics(
        host=host,
        port=port,
        tls=tls,
        path=path.rstrip("/").removesuffix("/api/v1"),
        user=names.user(table["user"]) if "user" in table else "",
        label=_label(table, "label", "instance"),
        gpu_label=_label(table, "gpu_label", "Hostname"),
        labels=_labels(table["labels"]) if "labels" in table else {},
        interval=table["interval"].number(30, least=1, most=600) if "interval" in table else 30.0,
        **texts,
    )


def _one_login(table: Mapping[str, Entry]) -> None:
    given = [key for key in _ONE_OF if key in table]
    if len(given) > 1:
        table[given[1]].report(f"give `{given[0]}` or `{given[1]}`, not both")
    passwords = [key for key in given if key.startswith("password")]
    if passwords and "user" not in table:
        table[passwords[0]].report("a password needs `user`")
    if "user" in table and not passwords:
        table["user"].report(f"a user needs a password: {_INSTEAD}")


def _label(table: Mapping[str, Entry], key: str, usual: str) -> str:
    word = take(table, key, usual) or usual
    return word if _is_label(table.get(key), word) else usual


def _is_label(entry: Entry | None, word: str) -> bool:
    if _LABEL.fullmatch(word):
        return True
    if entry is not None:
        entry.report(f"`{word[:60]}` is not the name of a label: letters, digits and `_`")
    return False


def _labels(entry: Entry) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in entry.fields().items():
        word = value.word()
        if not word.isprintable() or len(word) > 200:
            value.report("the value of a label is one line of at most 200 characters")
        elif _is_label(value, key):
            found[key] = word
    return found
