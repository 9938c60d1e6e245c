"""Decides whether a command starts an MPI daemon, written exactly as an
MPI launcher writes it, and nothing else.

Launchers write the command for a shell on the other node; Open MPI's needs a shell, because it sets
variables. So the whole text is parsed here, and only text that a shell cannot understand in another
way is accepted.
"""

import re
from collections.abc import Iterable
from typing import Optional

SKIP_SSH_OPTIONS = r"""while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -[BbcDEeFIiJLlmOopQRSWw]) shift; [ $# -eq 0 ] || shift ;;
    -*) shift ;;
    *) break ;;
    esac
done
"""
"""Lines of sh: of the words `[SSH OPTIONS] HOST COMMAND...` with which a launcher
calls our launch agent, drop the options.
"""
LONGEST = 1 << 16
"""Longest command in characters; many times what the addresses of a thousand nodes need."""
_DAEMONS = {
    "plm_ssh_agent": ("prted", "orted"),
    "plm_rsh_agent": ("prted", "orted"),
    "-launcher-exec": ("hydra_pmi_proxy", "hydra_bstrap_proxy"),
}
"""The launcher's option that names our launch agent -> the daemons that this launcher may start."""
_VARIABLES = "PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH OPAL_PREFIX PRTE_PREFIX PMIX_PREFIX"
_FOLDER = r"/[\w./+@%,-]*"
_FOLDERS = rf"{_FOLDER}(?::{_FOLDER})*"
_NAME = rf"(?P<name>{'|'.join(_VARIABLES.split())})"
_SPACED = r"/[\w ./+@%,-]*"
_END = " ?; ?"
_FLAG = r"(?:OMPI|PRTE)_have_d?llp"
_SETTINGS = tuple(
    (re.compile(f" *{text}{_END}", re.ASCII), then)
    for text, then in (
        # For users of bash: `NAME=/a/folder:$NAME; export NAME;` with the
        # blanks that Open MPI 4 and 5 write.
        (
            rf"{_NAME}={_FOLDERS}(?::\$(?P=name)|:\$\{{(?P=name):-\}})?{_END}export (?P=name)",
            r"\g<0>",
        ),
        # Open MPI quotes no folder with a blank: that is done here.
        (
            rf"{_NAME}=(?P<value>{_SPACED}(?::{_SPACED})*)(?P<rest>:\$(?P=name)|:\$\{{(?P=name):-\}})?{_END}export (?P=name)",
            r'\g<name>="\g<value>"\g<rest>; export \g<name>; ',
        ),
        # For users of csh; rewritten, because the agent starts daemons with sh.
        (rf"set path = \( (?P<value>{_FOLDER}) \$path \)", r"PATH=\g<value>:$PATH; export PATH; "),
        (rf"setenv {_NAME} (?P<value>{_FOLDERS})", r"\g<name>=\g<value>; export \g<name>; "),
        (rf"if \( \$\?{_NAME} == 1 \) set {_FLAG}", ""),
        (rf"if \( \$\?{_NAME} == 0 \) setenv (?P=name) {_FOLDERS}", ""),
        (
            rf"if \( \$\?{_FLAG} == 1 \) setenv {_NAME} (?P<value>{_FOLDERS}):\$(?P=name)",
            r"\g<name>=\g<value>${\g<name>:+:$\g<name>}; export \g<name>; ",
        ),
    )
)
"""Settings that a launcher writes before the daemon, in the syntax of the
user's login shell -> the same for sh.
"""
_PREFIX = re.compile(rf'_PREFIX="({_SPACED})"', re.ASCII)
"""Where Open MPI is, if there is a blank in it: after `_SETTINGS`."""
_PROFILE = "( test ! -r ./.profile || . ./.profile;"
"""What Open MPI writes before everything else, with a `)` at the end, for users of sh and ksh. It
is removed: the environment of a job comes from its plan.
"""
_BARE = r"[\w./+@%,:=-]+"
_QUOTED = r'"[\w ./+@%,:=^;\[\]()#~&|<>*?!\'{}-]*"'
_WORD = re.compile(rf"(?:{_BARE}|{_QUOTED})(?= |\Z)", re.ASCII)
"""A plain word, or one in double quotes without `$`, backtick, backslash or newline."""


def daemons_of(argv: Iterable[str], job: str) -> tuple[str, ...]:
    """Names of the daemons that this launcher may ask us to start; none
    if it does not use our launch agent.
    """
    words = tuple(argv)
    if f"/tmp/rankdeck.{job}/launch-agent" not in words:
        return ()
    found = [names for word, names in _DAEMONS.items() if word in words]
    return found[0] if found else ()


def daemon_of(command: str) -> Optional[str]:
    """The name of the MPI daemon if the command starts one and
    does nothing else; otherwise None.
    """
    if len(command) > LONGEST:
        return None
    words = _words(_parts(command)[1])
    program = words[0].strip('"') if words else ""
    folder, _, name = program.rpartition("/")
    known = any(name in names for names in _DAEMONS.values())
    # A bare name is searched in the PATH of the node.
    if not known or (folder and not folder.startswith("/")):
        return None
    return name


def in_place(command: str) -> str:
    """The daemon's command for sh, with `exec`: the daemon replaces the shell."""
    settings, program = _parts(command)
    return f"{settings}exec {program}"


def _parts(command: str) -> "tuple[str, str]":
    """The settings, rewritten for sh, and the rest: the program with its arguments."""
    text = command.strip(" ")
    if text.startswith(_PROFILE) and text.endswith(")"):
        text = text[len(_PROFILE) : -1]
    settings, at = "", 0
    found = _setting(text, at)
    while found:
        settings, at = settings + found[0], found[1]
        found = _setting(text, at)
    return settings, _quoted(text[at:].strip(" "), _PREFIX.findall(settings))


def _quoted(text: str, prefixes: Iterable[str]) -> str:
    """The command, with a program below one of these folders in quotes: the folders have blanks."""
    for prefix in prefixes:
        program = f"{prefix}/bin/"
        if text.startswith(program):
            name = text[len(program) :].partition(" ")[0]
            return f'"{program}{name}"{text[len(program) + len(name) :]}'
    return text


def _setting(text: str, at: int) -> "Optional[tuple[str, int]]":
    """The setting at this position, rewritten for sh, and where it ends; None if there is none."""
    for pattern, then in _SETTINGS:
        found = pattern.match(text, at)
        if found:
            return found.expand(then), found.end()
    return None


def _words(text: str) -> list[str]:
    """The words of a simple command; empty if any part is not a plain or quoted word."""
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
