"""Rows of the matrix: files of colleagues that are made to hurt,
and words that a shell would obey.
"""

import ast
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.support.bombs import HEAD, NODE_SETS, TEXTS, UPCALLS

from benchmarks.fault_sites import XDG, LabSite
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from benchmarks.measure import ROOT
from benchmarks.result import MissingError
from rankdeck.config.document import write_documents

SECONDS = 3.0
"""CPU seconds that reading one file may cost, the start of the console included."""
_LIMIT = 60.0
_RUN_LIMIT = 120.0
_WATCHED = r"""
import os, sys
events = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.chmod", "os.truncate")
RUNS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "socket.connect")
def hook(name, given):
    if name == "open" and isinstance(given[2], int) and given[2] & WRITES and given[0] != "/dev/null":
        events.append(f"writes {given[0]}")
    elif name in CHANGES + RUNS:
        events.append(f"{name} {given}")
report = os.dup(1)
sys.addaudithook(hook)
from rankdeck.__main__ import main
sys.argv, code = ["rankdeck", *sys.argv[1:]], None
try:
    code = main()
except SystemExit as ended:
    code = ended.code
finally:
    peak = next(row for row in open("/proc/self/status") if row.startswith("VmHWM"))
    sys.stdout.flush()
    os.write(report, ("\n" + repr((code, os.times()[0] + os.times()[1], int(peak.split()[1]) / 1024, events))).encode())
"""
"""`rankdeck` in a process that notes what it runs and writes, and
what it cost: the last line it prints.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a verb said of a file, and what it did."""

    code: int
    said: str
    cpu: float
    memory: float
    """MiB."""
    did: tuple[str, ...]
    """Programs that it ran, files that it wrote."""


@contextmanager
def away() -> Generator[tuple[Path, Mapping[str, str]]]:
    """A folder to work in, and an environment whose folders are all inside it."""
    with tempfile.TemporaryDirectory(prefix="files.") as name:
        folder = Path(name).resolve()
        own = {variable: str(folder / variable) for variable in XDG}
        for path in own.values():
            Path(path).mkdir(mode=0o700)
        path = {"PYTHONPATH": f"{ROOT}/console:{ROOT}/agents", "PYTHONDONTWRITEBYTECODE": "1"}
        yield folder, {**os.environ, **own, **path}


def watched(folder: Path, environment: Mapping[str, str], *words: str) -> Seen:
    """Run a verb and see what it does; raises TimeoutExpired."""
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LIMIT,
        check=False,
    )
    said, _, last = done.stdout.rpartition("\n")
    code, cpu, memory, did = ast.literal_eval(last)
    return Seen(code, (said + done.stderr).strip(), cpu, memory, tuple(did))


def in_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def judged(name: str, seen: Seen, wanted: str) -> list[str]:
    """What is wrong with the answer to a file."""
    # Where the locale is not UTF-8, other signs are written as their numbers.
    told = in_ascii(seen.said).splitlines()
    wrong = [f"{name}: {one}" for one in seen.did]
    if seen.code != 2:
        wrong.append(f"{name}: exit status {seen.code}")
    if not any(in_ascii(wanted) in line for line in told[:1]):
        wrong.append(f"{name}: said {seen.said[:200]!r}")
    if "Traceback" in seen.said:
        wrong.append(f"{name}: a traceback")
    if seen.cpu > SECONDS:
        wrong.append(f"{name}: took {seen.cpu:.1f} s")
    return wrong


def looked_at(files: Iterable[tuple[str, bytes, str]], more: Mapping[str, str]) -> Tally:
    """`rankdeck check` on each of these files: name, content, how its answer begins."""
    wrong: list[str] = []
    memory = cpu = 0.0
    tried = 0
    with away() as (folder, environment):
        for name, content, wanted in files:
            path = folder / "f.yaml"
            path.write_bytes(content)
            before = tree(folder)
            seen = watched(folder, {**environment, **more}, "check", str(path))
            wrong += judged(name, seen, f"{path}:{wanted}")
            wrong += [f"{name}: {one} is new" for one in tree(folder) - before]
            memory, cpu, tried = max(memory, seen.memory), max(cpu, seen.cpu), tried + 1
    return Tally(wrong=wrong, memory=memory, inputs=tried, note=f"at most {cpu:.1f} s of CPU")


def tree(folder: Path) -> set[str]:
    """Everything below a folder."""
    return {str(path) for path in folder.rglob("*")}


def bombs(_: Sites) -> Tally:
    """Files that multiply, nest, repeat, and are no text."""
    return looked_at(((name, *case) for name, case in TEXTS.items()), {})


def groups(_: Sites) -> Tally:
    """Node sets that name groups, where looking a group up runs programs."""
    with tempfile.TemporaryDirectory() as name:
        conf = Path(name) / "clustershell/groups.conf"
        conf.parent.mkdir()
        conf.write_text(UPCALLS)
        lines = ("cluster: c\nnodes: [{}]\n", HEAD + "on: {}\n")
        files = (
            (text, line.format(json.dumps(text)).encode(), "")
            for text in NODE_SETS
            for line in lines
        )
        return looked_at(files, {"XDG_CONFIG_HOME": name})


def no_files(_: Sites) -> Tally:
    """Pipes, sockets, folders and devices, as a document and as what a document names."""
    wrong: list[str] = []
    tried = 0
    with away() as (folder, environment), odd_places(folder) as places:
        for kind, path in places.items():
            for name, words in _ways(folder, path).items():
                seen = watched(folder, environment, *words)
                tried += 1
                wrong += judged(f"{kind}, {name}", seen, f"is a {kind}, not a regular file")
    return Tally(wrong=wrong, inputs=tried)


def _ways(folder: Path, path: Path) -> Mapping[str, Sequence[str]]:
    """How a path comes to be read -> the verb that reads it."""
    texts = {
        "a file of a job": HEAD + f"files: {{x: {{from: {json.dumps(str(path))}}}}}\n",
        "ssh.config": f"cluster: c\nnodes: [n1]\nssh: {{config: {json.dumps(str(path))}}}\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    named = {name: ("check", str(folder / f"{name}.yaml")) for name in texts}
    return {"the document": ("check", str(path)), **named}


@contextmanager
def odd_places(folder: Path) -> Generator[Mapping[str, Path]]:
    """Kind -> a place of that kind, none of which a reader may wait for."""
    places = {kind: folder / kind for kind in ("pipe", "folder", "socket")}
    os.mkfifo(places["pipe"])
    places["folder"].mkdir()
    if os.geteuid() == 0:
        places["device"] = folder / "device"
        os.mknod(places["device"], 0o600 | stat.S_IFCHR, os.stat("/dev/zero").st_rdev)  # noqa: PTH116
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(places["socket"]))
        yield places


# ---- words that a shell would obey ---------------------------------------------------------

NASTY = (
    "$(touch X)", "`touch X`", "-rf", "--", "; touch X", "& touch X", "| touch X", "> X", "a b", "", "'", '"', "it's",
    "\n", "l1\nl2\n", "\r\n", "\t", "\\", "\\\\", "x\\", "\\n", "*", "~", "$HOME", "${HOME}", "%s", "%d%n", "#", "!", "a!b", "!!",
    "é漢字😀", "EOF", "=", "A=b", "--np", "-x", "@file", "{a,b}", "(", "[a-z]", "\x0b", "\u2028", "\x1b[31m", "^a^b",
)  # fmt: skip
"""Words with a meaning to some shell, launcher or program."""
SAID = """#!/bin/sh
# What a rank was given: its words, a variable, its folder and a file of the job.
said="${0%/*}/said"
rank=${RANKDECK_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${RANK:-0}}}}
{
    printf '%s\\0' "$@"
    printf 'V=%s\\0' "$NASTY"
    printf 'in %s\\0' "$PWD"
    printf 'file %s\\0' "$(cat "$RANKDECK_RUN/its file"; echo .)"
} >"$said.$RANKDECK_NODE.$rank.part"
mv "$said.$RANKDECK_NODE.$rank.part" "$said.$RANKDECK_NODE.$rank"
"""
VALUE = "a 'b' \"c\" $(touch X) `touch X` \\ !x\nend"
FOLDER = "it's $(touch X) \\\\ !x `touch X` \\"
LAUNCHERS = ("plain", "mpi", "torchrun", "tensorflow")
SHELLS = ("sh", "bash", "dash", "zsh", "fish", "csh", "tcsh", "ksh", "mksh")
"""Of those, the ones that this machine has are the login shells of the nodes in turn."""


def words(
    shells: Sequence[str], launchers: Sequence[str], most: int | None = None
) -> Callable[[Sites], Tally]:
    """A row that starts a job with every nasty word, for each launcher and `most` login shells."""

    def run(sites: Sites) -> Tally:
        present = [found for shell in shells if (found := shutil.which(shell))][:most]
        if not present:
            raise MissingError(f"none of {', '.join(shells)} is installed")
        wrong = [
            f"{Path(shell).name}, {launcher}: {one}"
            for shell in present
            for launcher in launchers
            for one in _given(sites.lab, shell, launcher)
        ]
        names = ", ".join(Path(shell).name for shell in present)
        return Tally(wrong=wrong, inputs=len(present) * len(launchers) * len(NASTY), note=names)

    return run


def _given(site: LabSite, shell: str, launcher: str) -> list[str]:
    """What a job's ranks were given otherwise than it says, and what was run on the way."""
    place = site.lab.shared / f"words.{Path(shell).name}.{launcher}"
    shutil.rmtree(place, ignore_errors=True)
    (place / FOLDER).mkdir(parents=True)
    (place / "record").write_text(SAID)
    (place / "record").chmod(0o755)
    with _login_shell(site, shell):
        done = subprocess.run(
            site.command([sys.executable, "-m", "rankdeck", "-c", str(_cluster(site, place)),
                          "run", str(_job(place, launcher))]),
            env=site.environment(),
            cwd=place,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RUN_LIMIT,
            check=False,
        )  # fmt: skip
    wrong = _compared(place, 2 if launcher == "tensorflow" else 4)
    if done.returncode:
        wrong.append(f"exit status {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    homes = [site.lab.folder / node for node in site.nodes()]
    wrong += [f"{found} was made" for top in (place, *homes) for found in top.rglob("X")]
    return wrong


@contextmanager
def _login_shell(site: LabSite, shell: str) -> Generator[None]:
    """The user of the lab logs in to this shell; its list of users is mounted in every node."""
    users = site.lab.folder / "passwd"
    before = users.read_text()
    users.write_text(before.replace(":/run/home:/bin/bash", f":/run/home:{shell}"))
    try:
        yield
    finally:
        users.write_text(before)


def _job(place: Path, launcher: str) -> Path:
    spec = {
        "job": "words",
        "launch": launcher,
        "nodes": 2,
        **({} if launcher == "tensorflow" else {"ranks_per_node": 2}),
        "command": [str(place / "record"), *NASTY],
        "env": {"NASTY": VALUE},
        "files": {"its file": VALUE},
        "workdir": str(place / FOLDER),
    }
    path = place / "job.yaml"
    path.write_text(write_documents([spec]))
    return path


def _cluster(site: LabSite, place: Path) -> Path:
    """The cluster of the lab, with names that a shell would obey for what it reads and runs."""
    content = yaml.safe_load(Path(site.cluster).read_text())
    folder = place / FOLDER
    for key in ("identity", "known_hosts"):
        named = folder / f"{key} {FOLDER}"
        named.touch(mode=0o600)
        named.write_bytes(Path(content["ssh"][key]).read_bytes())
        content["ssh"][key] = str(named)
    python = folder / f"python {FOLDER}"
    python.write_text(f'#!/bin/sh\nexec {content["ssh"]["python"]} "$@"\n')
    python.chmod(0o755)
    content["ssh"]["python"] = str(python)
    content["environment"] = {**content.get("environment", {}), "OTHER": VALUE}
    path = place / "cluster.yaml"
    path.write_text(write_documents([content]))
    return path


def _compared(place: Path, ranks: int) -> list[str]:
    """Where what the ranks were given is not what the job says."""
    wanted = [*NASTY, f"V={VALUE}", f"in {place / FOLDER}", f"file {VALUE}.", ""]
    found = [path for path in place.glob("said.*") if path.suffix != ".part"]
    wrong = [] if len(found) == ranks else [f"{len(found)} ranks of {ranks} said something"]
    for path in found:
        given = path.read_bytes().decode("utf-8", "replace").split("\0")
        pairs = zip(given, wanted, strict=False)
        odd = [f"{path.name}: {one!r} for {other!r}" for one, other in pairs if one != other]
        wrong += odd[:3] or (
            [] if len(given) == len(wanted) else [f"{path.name}: {len(given)} words"]
        )
    return wrong


ROWS = (
    Row(
        name="bombs",
        group=Group.FILES,
        does="files that multiply, nest, repeat, are no text, or 50 MB",
        run=bombs,
    ),
    Row(
        name="groups",
        group=Group.FILES,
        does="node sets for which ClusterShell would run programs",
        run=groups,
        short=True,
    ),
    Row(
        name="no-files",
        group=Group.FILES,
        does="pipes, sockets, folders and devices in the place of files",
        run=no_files,
        short=True,
    ),
    Row(
        name="words-short",
        group=Group.FILES,
        does="words that a shell would obey, through one login shell",
        run=words(("fish", "csh", "bash"), ("plain",), 1),
        short=True,
    ),
    Row(
        name="words",
        group=Group.FILES,
        does="the same through every login shell and launcher",
        run=words(SHELLS, LAUNCHERS),
    ),
)
