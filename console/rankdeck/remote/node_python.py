"""The Python that runs the agent on a node: found there, in the round
trip that also looks for the agent file.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from rankdeck.errors import AgentError
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.shell import OnData, last_line

OLDEST = (3, 6)
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\Z", re.ASCII)
_NAME_IT = "or name one with `ssh: {python: …}`"

PLACES = (
    "~/.cache/rankdeck",
    "/var/tmp/rankdeck-UID",
    "/tmp/rankdeck-UID",
    "/dev/shm/rankdeck-UID",
)
"""Folders on a node for the agent file, in order: the first that can be
used; UID stands for the user's number.
"""
OWN_FOLDER = 'd=${f%/*}; case $d in "${HOME:-/-}"/*) ;; *) [ -O "$d" ] && [ ! -L "$d" ];; esac'
"""Whether the folder of the file $f is the user's own: others can make folders in /tmp. Without a
HOME, no folder is below it.
"""
ALONE = "-ES"
"""Options of Python: PYTHONHOME and PYTHONPATH of start-up files are for other programs, and so are
site-packages, whose *.pth files may take longer to run than our command.
"""
_PYTHONS = (
    *("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9"),
    *("python3.8", "python3.7", "python3.6", "/usr/bin/python3", "/usr/libexec/platform-python"),
    "/opt/*/bin/python3",
)
"""Those that are tried, in order, where the user names none. /usr/bin/python3: where shims of pyenv
or conda come first in PATH, they may hide every Python of the system.
"""
_LOOK = r"""name=$1 ask=$2 want=$3 places=$4 first= f= at=0
shift 4
while [ "$at" -lt "$places" ]; do
    case $1 in '~'/*) place=$HOME${1#?};; *-UID) place=${1%UID}$(id -u);; *) place=$1;; esac
    shift
    f=$place/$name first=${first:-$place/$name}
    [ ! -f "$f" ] || ! { OWN_FOLDER; } || { shift $((places - at - 1)); break; }
    f= at=$((at + 1))
done
[ "$f" ] || f=$first at=0
pythons=$1 tried=0
shift
IFS= known= old= bad= agent= who='import sys; print(sys.executable)' line='
'
for named; do
    [ "$tried" -lt "$pythons" ] || break
    tried=$((tried + 1))
    case $named in '~'/*) named=$HOME${named#?};; esac
    for python in $named; do
        answer=$("$python" ALONE -c "$ask" "$f" 2>/dev/null </dev/null)
        case $? in 0) ;; 126 | 127) continue;; *) bad=${bad:-$python}; continue;; esac
        case $answer in *"$line"*)
            answer=${answer##*"$line"} behind=$("$python" ALONE -c "$who" 2>/dev/null </dev/null)
            behind=${behind##*"$line"}
            [ "$("$behind" ALONE -c "$ask" "$f" 2>/dev/null </dev/null)" != "$answer" ] || python=$behind;;
        esac
        case $answer in
            [012].*|3.[0-5]'|'*) [ "$old" ] || old="${answer%%|*}|${answer##*|}|$python";;
            *.*'|'*)
                known="${answer%%|*}|${answer##*|}|$python"
                [ "${answer##*|}" != "$want" ] || agent=$python
                break 2;;
            *) [ "$old" ] || old="?||$python";;
        esac
    done
done
known=${known:-$old} os=
[ "$known" ] || ! [ "$bad" ] || { known="||$bad"; "$bad" ALONE -c "$ask" "$f" </dev/null >&2; }
[ "$known" ] || { known='||'; os=$(sed -n -e '/^ID=/p' -e '/^ID_LIKE=/p' -e '/^VERSION_ID=/p' /etc/os-release 2>/dev/null | tr '\n|' '; '); }
home=$(ls -di "$HOME" 2>/dev/null)
printf '\nrankdeck|%s|%s|%s|%s|%s\n' "$known" "$os" "${home%% *}" "$at" "$f"
shift "$pythons"
[ -z "$agent" ] || [ $# -eq 0 ] || exec "$agent" ALONE "$f" "$@"
""".replace("OWN_FOLDER", OWN_FOLDER).replace("ALONE", ALONE)
"""Arguments: name of the agent file, _ASK, the SHA-256 that the file should have, how many places
there are, these, how many Pythons to try, these, then a command of the agent, if any. Takes the
first place that has the file, else the first, and the first Python that is new enough, else the
first that runs; in place of a wrapper that prints (a module that it loads), the Python that the
wrapper starts. Prints: version, SHA-256 of the agent file, that Python, the system, the inode of
the home folder, the number of the place, the file. One that does not start is named without a
version, and says why on stderr. Last, if it is the right file, it becomes the command.
"""
_ASK = """\
import ctypes, fcntl, hashlib, os, resource, sys, zlib
digest = ""
try:
    with open(sys.argv[1], "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    os.utime(sys.argv[1], None)
except EnvironmentError:
    pass
print("%d.%d|%s" % (sys.version_info[:2] + (digest,)))
"""
"""Run by the node's Python, which may be an old one: prints its version and the SHA-256 of the
agent file on the node, and marks this file as used now. Imports what every command needs and a
Python that somebody built himself may lack.
"""

_ANSWER = re.compile(rb"^rankdeck\|[^|\n]+(?:\|[^|\n]*){5}\|[^\n]*\n", re.MULTILINE)
_MOST_BEFORE = 1 << 20
_NO_END = (
    f"start-up files of the login shell printed {_MOST_BEFORE >> 20} MB before the answer to a command: "
    "have them print only in a terminal"
)

_INSTALLS: Sequence[tuple[frozenset[str], str]] = (
    (frozenset({"debian", "ubuntu"}), "apt install python3"),
    (frozenset({"rhel", "centos", "fedora", "amzn"}), "dnf install python3"),
    (frozenset({"suse", "sles", "opensuse"}), "zypper install python3"),
    (frozenset({"alpine"}), "apk add python3"),
    (frozenset({"arch"}), "pacman -S python"),
)
"""Distributions (ID or ID_LIKE in /etc/os-release) -> the command that installs Python."""
_MODULES = frozenset({"rhel", "centos", "ol"})
"""Those whose releases 8 and 9 have a newer Python beside their own."""


_NO_COMMANDS = (
    "if a start-up file of the login shell (.bashrc) ends or replaces it, have it do so only in a terminal; if this "
    "account may run no commands there (ForceCommand, nologin, a restricted shell, sftp only), name another user"
)


class FoundPython(NamedTuple):
    """What the node's answer says."""

    version: str
    """Of the Python that was found; "" if there is none."""
    digest: str
    """SHA-256 of the agent file on the node; "" if there is none."""
    python: str
    system: str
    """Lines of /etc/os-release, if there is no Python."""
    home: str
    """The inode of the home folder; equal where nodes share it, and perhaps where they do not."""
    place: str
    """Which of the places that is, from 0."""
    path: str
    """Where the agent file is or belongs."""
    complaint: str = ""
    """Why that Python does not start, if it does not."""


def python_look_command(
    agent: str,
    digest: str,
    pythons: Sequence[str],
    places: Sequence[str] = PLACES,
    command: Sequence[str] = (),
) -> tuple[str, ...]:
    """The command that looks for a Python (any, or these) and the agent file of
    this name, in these folders, on a node.

    If the file has this SHA-256, it goes on as this command of the agent, if there is one: a node
    is asked and the login shell started once for both.
    """
    tried = pythons or _PYTHONS
    numbered = (str(len(places)), *places, str(len(tried)), *tried)
    return ("sh", "-c", _LOOK, "sh", agent, _ASK, digest, *numbered, *command)


class LookAnswer:
    """Takes what a look writes: its answer, then the output of the command that it became."""

    def __init__(self, node: str, on_data: OnData) -> None:
        """`on_data` gets the output of the command, without what is before the answer."""
        self._node, self._on_data = node, on_data
        self.said = b""
        """Its stdout until the answer has come."""
        self.found: asyncio.Queue[FoundPython] = asyncio.Queue()
        """Gets the answer when it has come, if it names a Python that runs."""
        self._heard = False

    def take(self, data: bytes) -> None:
        """Take bytes of its stdout. Raises AgentError if start-up files print without end."""
        if self._heard:
            self._on_data(data)
            return
        self.said += data
        answer = _ANSWER.search(self.said)
        if answer:
            self._heard = True
            self.found.put_nowait(parse_found_python(self._node, answer[0], b""))
            self._on_data(self.said[answer.end() :])
        elif len(self.said) > _MOST_BEFORE:
            raise AgentError(self._node, _NO_END)


def parse_found_python(node: str, out: bytes, err: bytes) -> FoundPython:
    """The fields of the answer line, which is among lines that start-up files of
    the login shell print. Raises AgentError.
    """
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        words = line.split("|", 7)
        if words[0] == "rankdeck" and len(words) == 8:
            found = FoundPython(*words[1:])
            return found if found.version else found._replace(complaint=last_line(err))
    # nologin, a forced command and a server for sftp alone say it on stdout.
    said = last_line(err) or last_line(out)
    why = f"it says `{said}`" if said else "it says nothing"
    raise AgentError(node, f"a command over SSH gives no usable answer: {why}; {_NO_COMMANDS}")


def check_python(node: str, found: FoundPython, named: Sequence[str]) -> None:
    """Raise AgentError if the Python that was found cannot run the agent;
    `named`: those that the user wants.
    """
    python = clean_line(found.python, 200)
    if not found.version and found.python:
        why = f"`{python}` does not start: {found.complaint or 'it says nothing'}; repair it, {_NAME_IT}"
    elif not found.version:
        install = install_command(found.system)
        where = (
            f"none of {', '.join(f'`{one}`' for one in named)} runs there"
            if named
            else "no Python there"
        )
        why = f"{where}: {install}, {_NAME_IT}"
    elif not _VERSION.match(found.version):
        why = f"`{python}` gives no version: name a Python 3.6 or newer with `ssh: {{python: …}}`"
    elif tuple(map(int, found.version.split("."))) < OLDEST:
        why = f"`{python}` is {found.version}, too old: install Python 3.6 or newer, {_NAME_IT}"
    else:
        return
    raise AgentError(node, why)


def install_command(system: str) -> str:
    """What to do about a missing Python on a system with these lines of
    /etc/os-release, separated by `;`.
    """
    rows = (row.partition("=") for row in system.replace('"', "").replace("'", "").split(";"))
    values = {key: value for key, _, value in rows}
    names = {values.get("ID", ""), *values.get("ID_LIKE", "").split()}
    for known, command in _INSTALLS:
        if names & known:
            newer = names & _MODULES and values.get("VERSION_ID", "").partition(".")[0] in (
                "8",
                "9",
            )
            return f"`{command}.11`" if newer else f"`{command}`"
    return "install Python 3.6 or newer"
