"""Decides whether a command is an MPI daemon exactly as its launcher writes it; anything else is refused.

A launcher hands its command to a shell on another node: Open MPI's needs one, for its variables. So the
whole text is read here, and only what cannot mean anything else to a shell is let through.
"""

import re
from collections.abc import Iterable
from typing import Optional

LONGEST = 1 << 16
"""Bytes: the addresses of a thousand nodes fit, many times over."""
_DAEMONS = {
    "plm_ssh_agent": ("prted", "orted"),
    "plm_rsh_agent": ("prted", "orted"),
    "-launcher-exec": ("hydra_pmi_proxy", "hydra_bstrap_proxy"),
}
"""How a launcher is told of our launch agent -> the daemons that it may start."""
_VARIABLES = "PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH OPAL_PREFIX PRTE_PREFIX PMIX_PREFIX"
_FOLDER = r"/[\w./+@%,-]*"
_SETTING = re.compile(
    rf" *(?P<name>{'|'.join(_VARIABLES.split())})={_FOLDER}(?::{_FOLDER})*"
    r"(?::\$(?P=name)|:\$\{(?P=name):-\})? ?; ?export (?P=name) ?; ?",
    re.ASCII,
)
"""`NAME=/a/folder:$NAME; export NAME;` with the blanks that Open MPI 4 and 5 put in."""
_BARE = r"[\w./+@%,:=-]+"
_QUOTED = r'"[\w ./+@%,:=^;\[\]()#~&|<>*?!\'{}-]*"'
_WORD = re.compile(rf"(?:{_BARE}|{_QUOTED})(?= |\Z)", re.ASCII)
"""A plain word, or one in double quotes without `$`, backtick, backslash or a line's end."""


def daemons_of(argv: Iterable[str], job: str) -> tuple[str, ...]:
    """The daemons that this launcher's command may ask us to start; none where it is not told to."""
    words = tuple(argv)
    if f"/tmp/rankdeck.{job}/launch-agent" not in words:
        return ()
    found = [names for word, names in _DAEMONS.items() if word in words]
    return found[0] if found else ()


def daemon_of(command: str) -> Optional[str]:
    """The name of the MPI daemon that this command starts, and nothing else; None for any other."""
    if len(command) > LONGEST:
        return None
    words = _words(command[_program(command) :].strip(" "))
    program = words[0].strip('"') if words else ""
    folder, _, name = program.rpartition("/")
    known = any(name in names for names in _DAEMONS.values())
    # A bare name is looked for where the node's own PATH says.
    if not known or (folder and not folder.startswith("/")):
        return None
    return name


def in_place(command: str) -> str:
    """The same command of a daemon, which then takes the place of the shell."""
    at = _program(command)
    return f"{command[:at]}exec {command[at:].strip(' ')}"


def _program(command: str) -> int:
    """Where the settings end and the program begins."""
    at = 0
    while setting := _SETTING.match(command, at):
        at = setting.end()
    return at


def _words(text: str) -> list[str]:
    """The words of a simple command; empty where something in it is not one."""
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            return []
        words.append(found.group())
        at = found.end()
        while at < len(text) and text[at] == " ":
            at += 1
    return words
