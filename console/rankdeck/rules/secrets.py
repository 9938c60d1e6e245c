"""Masks secrets in reports: by the name of a variable, by value, and by the form of known tokens.

No I/O.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

MASK = "********"
NAMED = re.compile(r"passw|passphrase|token|key|secret|credential", re.IGNORECASE)
"""Names of variables and options whose values are secret."""
# Each pattern begins at the start of a word and reads at most 80 bytes on
# each side, so that a hostile line cannot
# take minutes.
_ASSIGNED = re.compile(
    rb"(?P<name>(?<![\w.-])[\w.-]{0,80}(?:passw(?:or)?d|passphrase|token|secret|credential|api_?key|access_?key)[\w.-]{0,80}"
    rb"['\"]?\s*[=:]\s*|(?<![\w-])--?[\w-]{0,80}(?:passw(?:or)?d|token|secret|key)[\w-]{0,80}[ =])"
    rb"(?P<value>\"[^\"\n]+\"|'[^'\n]+'|['\"]?[^\s'\"]+)",
    re.IGNORECASE,
)
_KEY_BLOCK = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)
KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
KEY_ENDS = re.compile(rb"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_FORMS = re.compile(
    rb"\b(?:gh[opusr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}"
    rb"|(?:AKIA|ASIA)[A-Z0-9]{16}|nvapi-[\w-]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,}"
    rb"|AIza[\w-]{35}|wandb_v\d_\w{20,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
)
"""GitHub, GitLab, Hugging Face, AWS, NVIDIA NGC, OpenAI and similar, Slack, Google, W&B, JWT."""
_URL = re.compile(rb"(?P<name>\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s/'\"<>]+@")
_HEADER = re.compile(
    rb"(?P<name>\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?)[^\r\n'\"]+", re.IGNORECASE
)
_BEARER = re.compile(rb"(?P<name>\bbearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_NETRC = re.compile(rb"(?P<name>\bmachine\s+\S+\s+login\s+\S+\s+password\s+)\S+")
_SHORTEST = 4
"""Values shorter than this are not masked: they would hide ordinary words."""
_LITERAL = 8
"""The same for text in files that only looks like a secret."""
_TO = MASK.encode()


class Secrets:
    """Masks the secrets of one job."""

    def __init__(self, tables: Iterable[Mapping[str, str]], texts: Iterable[str] = ()) -> None:
        """`tables` are environment variables with their values; `texts` are
        files that may assign more secrets.
        """
        named = {value for table in tables for name, value in table.items() if NAMED.search(name)}
        for text in texts:
            found = _ASSIGNED.finditer(text.encode("utf-8", "replace"))
            named |= {_literal(match["value"]) for match in found}
        forms = {form for value in named for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._values = [form.encode("utf-8", "surrogatepass") for form in longest_first]

    def in_bytes(self, data: bytes) -> bytes:
        """Output of a rank with secret values, and anything in the form of a token, masked."""
        for value in self._values:
            data = data.replace(value, _TO)
        return _formless(data)

    def in_text(self, text: str) -> str:
        """Like `in_bytes` for a command or file; also masks what is assigned to a secret name."""
        known = self.in_bytes(text.encode("utf-8", "surrogatepass"))
        return _ASSIGNED.sub(rb"\g<name>" + _TO, known).decode("utf-8", "replace")

    def in_tree(self, value: object, name: str = "") -> Any:  # noqa: ANN401 - JSON
        """JSON with secrets masked; `name` is the key of `value` in its parent."""
        if isinstance(value, str):
            return MASK if value and NAMED.search(name) else self.in_text(value)
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            # A key may be a file name that contains a token.
            return {self.in_text(str(k)): self.in_tree(v, str(k)) for k, v in table.items()}
        if isinstance(value, list | tuple):
            return self._in_list(list(cast("Iterable[Any]", value)), name)
        return value

    def _in_list(self, values: list[Any], name: str) -> list[Any]:
        """A list; in a command the word after an option such as `--token` is masked."""
        found: list[Any] = []
        for at, one in enumerate(values):
            before = values[at - 1] if at else ""
            option = isinstance(before, str) and before.startswith("-") and "=" not in before
            follows = option and bool(NAMED.search(before)) and isinstance(one, str)
            found.append(MASK if follows else self.in_tree(one, name))
        return found


def _literal(value: bytes) -> str:
    """The literal that a file assigns to a secret name; "" if it looks like program code."""
    text = value.decode("utf-8", "replace")
    bare = text.strip("'\"").rstrip(",;)}]")
    plain = text[:1] in "'\"" or any(c.isdigit() for c in bare)
    return bare if plain and len(bare) >= _LITERAL and "(" not in bare else ""


def _forms(value: str) -> Iterator[str]:
    """A value unchanged, as written in JSON, sh and YAML, and each
    line of a value with several lines.
    """
    quoted = (value, json.dumps(value)[1:-1], shlex.quote(value)[1:-1], value.replace("'", "''"))
    lines = value.splitlines()
    many = [line.strip() for line in lines if len(line.strip()) >= _LITERAL]
    for form in (*quoted, *(many if len(lines) > 1 else ())):
        if len(form) >= min(_SHORTEST, len(value)) and len(value) >= _SHORTEST:
            yield form


def _formless(data: bytes) -> bytes:
    """Without key blocks, tokens of known forms, user and password in
    URLs, and credentials in headers.
    """
    data = _FORMS.sub(_TO, _KEY_BLOCK.sub(_TO, data))
    for form in (_HEADER, _BEARER, _NETRC):
        data = form.sub(rb"\g<name>" + _TO, data)
    return _URL.sub(rb"\g<name>" + _TO + b"@", data)
