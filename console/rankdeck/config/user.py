"""The user: name, settings (`settings.yaml`), consent to what files of others may run or read."""

import getpass
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import field

from rankdeck.config.document import (
    MOST_PROBLEMS,
    Entry,
    finish_document,
    load_document,
    replace_unprintable,
    take_text,
)
from rankdeck.config.files import (
    append_lines,
    config_folder,
    console_state_folder,
    expand_path,
    find_shipped,
    is_missing,
    read_regular,
    real_path,
)
from rankdeck.errors import Problem, RankdeckError, UntrustedError
from rankdeck.values import Value

_DIRECTIVES = (
    "proxycommand",
    "match",
    "include",
    "localcommand",
    "knownhostscommand",
    "pkcs11provider",
)
"""Options of an ssh_config that run a program or read more files."""
SECRETS = ("password", "passphrase", "secret", "token")
_MORE = {
    "password_file": " and sends it to {host} as a password",
    "token_file": " and sends it to {host} as a token",
    "agents_file": ", sends its passwords to the nodes and may add to it",
}
"""Key of a cluster file that names a file -> what happens with the file, after "reads FILE"."""
_VARIABLES = {"password_env": "a password", "token_env": "a token"}
_OURS = "RANKDECK_"
"""Prefix of variables that are meant for Rankdeck: they may be sent without consent."""
_SSHS_OWN = ("identity", "known_hosts")
_MOST_SHOWN = 20
_STORE_LIMIT = 4 << 20


@dataclass(frozen=True)
class Use(Problem):
    """One thing that a file would make Rankdeck do, with its place; the
    user's consent is stored as `digest`.
    """

    digest: str = ""
    allowed: bool = False


def may_use(entry: Entry, what: str, content: bytes = b"") -> bool:
    """Whether the user agreed to `what`; adds a `Use` to the problems of the document in any case.

    `what` says what would be done, such as "reads FILE". The consent is
    only valid for the same `content`.
    """
    digest = _digest(entry, what, content)
    allowed = _is_own(Path(entry.file)) or digest in _known()
    mark, place = entry.node.start_mark, entry.path or "file"
    use = Use(
        entry.file,
        mark.line + 1,
        mark.column + 1,
        place,
        replace_unprintable(what),
        digest=digest,
        allowed=allowed,
    )
    entry.problems.append(use)
    if len(entry.problems) >= MOST_PROBLEMS:
        entry.report("names too many files")
    return allowed


def may_read(entry: Entry, named: str, base: Path, more: str = "") -> bool:
    """Whether the file `named`, relative to `base`, may be read; always
    allowed inside the document's folder.
    """
    path = real_path(base / expand_path(named))
    if path.is_relative_to(real_path(Path(entry.file)).parent):
        return True
    return may_use(entry, f"reads {path}{more}")


def may_run(entry: Entry, named: str) -> str:
    """The text of the ssh_config `named`; it needs consent wherever it is,
    because its options can run commands.
    """
    path = expand_path(named).absolute()
    try:
        content = read_regular(path)
    except (OSError, ValueError) as error:
        entry.report(f"{named}: {getattr(error, 'strerror', '') or error}")
        return ""
    directives = _directives(content)
    more = ("; it has " + "; ".join(directives)) if directives else ""
    may_use(entry, f"follows {path}, which may run commands here{more}", content)
    return content.decode("utf-8", "replace")


def asks_for(table: Mapping[str, Entry], keys: Sequence[str], host: str = "") -> None:
    """Note the uses of these keys that need consent: files outside the
    folder, variables that are sent to `host`.
    """
    for key in keys:
        named = take_text(table, key)
        if named and not (key in _SSHS_OWN and _is_usual(named)):
            may_read(table[key], named, Path(), _MORE.get(key, "").format(host=host))
    for key, meant in _VARIABLES.items():
        variable = take_text(table, key)
        if variable and not variable.startswith(_OURS):
            may_use(table[key], f"sends the variable {variable[:80]} to {host} as {meant}")


def _is_usual(named: str) -> bool:
    """Whether the file is in ~/.ssh, where ssh itself finds it."""
    return real_path(expand_path(named)).is_relative_to(real_path(expand_path("~/.ssh")))


def no_secrets(instead: str) -> dict[str, str]:
    """Key that would hold a secret -> why it is refused; `instead` says what to use."""
    return {key: f"`{key}` would keep a secret in this file; {instead}" for key in SECRETS}


def _is_own(file: Path) -> bool:
    """Whether the file is in the user's own folders or Rankdeck's
    samples, so that no other person wrote it.
    """
    folders = (config_folder(), console_state_folder(), find_shipped("sample-clusters"))
    return any(real_path(file).is_relative_to(real_path(folder)) for folder in folders)


def noted_uses(root: Entry) -> tuple[Use, ...]:
    """The uses that were noted while the document was read, each once."""
    return tuple(dict.fromkeys(p for p in root.problems if isinstance(p, Use)))


def require_trust(root: Entry) -> None:
    """Raise UntrustedError if the user did not agree to a use; removes the
    uses from the problems: mistakes stay.
    """
    uses = noted_uses(root)
    root.problems[:] = [p for p in root.problems if not isinstance(p, Use)]
    if root.problems:
        return
    if missing := [use for use in uses if not use.allowed]:
        raise UntrustedError(root.file, missing)


def allow_uses(problems: Iterable[Problem]) -> None:
    """Store that the user agreed to these uses; raises RankdeckError."""
    store = _store()
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_lines(store, (p.digest for p in problems if isinstance(p, Use)))
    except OSError as error:
        raise RankdeckError(f"{store}: cannot be written: {error.strerror}") from error


def _store() -> Path:
    return console_state_folder() / "trusted"


def _known() -> frozenset[str]:
    try:
        return frozenset(read_regular(_store(), _STORE_LIMIT).decode().split())
    except (OSError, UnicodeDecodeError):
        return frozenset()


def _digest(entry: Entry, what: str, content: bytes) -> str:
    import hashlib  # loads OpenSSL, which few files need

    file = str(real_path(Path(entry.file)))
    asked = json.dumps([file, entry.path, what, hashlib.sha256(content).hexdigest()])
    return hashlib.sha256(asked.encode()).hexdigest()


def _directives(content: bytes) -> Sequence[str]:
    rows = (line.strip() for line in content.decode("utf-8", "replace").splitlines())
    found = [row[:120] for row in rows if _runs_or_reads(row)]
    more = [f"{len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return [f"`{row}`" for row in found[:_MOST_SHOWN]] + more


def _runs_or_reads(row: str) -> bool:
    word, _, rest = row.replace("=", " ", 1).partition(" ")
    if word.lower() == "match":
        return "exec" in rest.lower()
    return word.lower() in _DIRECTIVES


KEYS = ("theme", "ascii", "diff")


class UiSettings(Value, kw_only=True):
    """How the console looks: the content of `settings.yaml`, and
    where more of the user's files are.
    """

    theme: str = ""
    """Name of a theme; "" is dark, or mono if colour is not wanted."""
    ascii: bool = False
    """Draw with ASCII only; by default if the locale lacks Unicode."""
    diff: bool = True
    """Send only changed cells to the terminal; off for terminals that lose some."""
    theme_folders: tuple[Path, ...] = field(default_factory=lambda: (config_folder() / "themes",))
    """Folders with the user's own themes."""
    views_file: Path = field(default_factory=lambda: config_folder() / "views.json")
    """File with the saved views of the fleet."""


def read_settings(path: Path | None = None) -> UiSettings:
    """The settings in `path`, or by default in the user's folder (defaults if there is no file).

    Raises ConfigError.
    """
    file = path or config_folder() / "settings.yaml"
    plain = lacks_unicode(os.environ)
    if path is None and is_missing(file):
        return UiSettings(ascii=plain)
    root = load_document(file)
    table = root.section(KEYS)
    settings = UiSettings(
        theme=take_text(table, "theme", ""),
        ascii=table["ascii"].truth() if "ascii" in table else plain,
        diff=table["diff"].truth() if "diff" in table else True,
    )
    finish_document(root)
    return settings


def lacks_unicode(environment: Mapping[str, str]) -> bool:
    """True if a locale is set that is not UTF-8; Python itself would assume UTF-8."""
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    chosen = next((environment[n] for n in names if environment.get(n)), "UTF-8")
    return "utf8" not in chosen.lower().replace("-", "")


def operator_name() -> str:
    """The login name of who uses this console; `uid 1000` where the system has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
