"""Rows with other users of the machine: the private broker, /tmp, modes, secrets, the exporter."""

import json
import os
import resource
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from tests.support.processes import descendants

from benchmarks.fault_plants import processes
from benchmarks.fault_run import wait
from benchmarks.fault_sites import IMPORTS, XDG, DemoSite
from benchmarks.matrix.lying import (
    LIAR,
    clean_up,
    launched,
    lying,
    on_terminal,
    place,
    rankdeck,
    started,
)
from benchmarks.matrix.meter import Cost, metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites

NOBODY = 65534
LIMIT = 30.0
NODES = 3


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
"""One that every user may run."""


def lacking() -> str:
    """Why nobody else can be played on this machine, or ""."""
    if os.geteuid():
        return "needs root, to be another user"
    return "" if PYTHON else "no python3 that every user may run"


def as_nobody(script: str, *words: str, told: str = "") -> str:
    """What a program of another user prints, to which `told` is told."""
    done = subprocess.run(
        [PYTHON or "python3", "-c", script, *words], user=NOBODY, group=NOBODY, extra_groups=(),
        input=told, capture_output=True, text=True, timeout=LIMIT, check=True, cwd="/",
    )  # fmt: skip
    return done.stdout


# ---- a console that serves its numbers -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exporter:
    """`rankdeck export`: a console whose view of the nodes anybody can ask for."""

    process: "subprocess.Popen[str]"
    port: int
    errors: Path
    cost: Cost

    def page(self, limit: float = 5.0) -> str:
        """The numbers now; raises OSError."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=limit) as answer:
            return answer.read().decode()

    def nodes_up(self) -> int:
        """How many nodes send samples, as far as it says; -1 where it does not answer."""
        try:
            page = self.page()
        except OSError:
            return -1
        lines = (line for line in page.splitlines() if line.startswith("rankdeck_node_up"))
        return sum(line.endswith(" 1") for line in lines)

    def broker(self) -> int:
        """The port of its private broker: the other one on which it listens."""
        listening = {port for _, port in listeners(self.process.pid)} - {self.port}
        return listening.pop()

    def faults(self) -> Iterator[str]:
        """What is wrong now that it was attacked."""
        if not wait(lambda: self.nodes_up() == NODES, LIMIT):
            yield f"{self.nodes_up()} of {NODES} nodes are up afterwards"
        if self.process.poll() is not None:
            yield f"the console ended with {self.process.returncode}"
        if "Traceback" in (told := self.errors.read_text()):
            yield f"traceback: {told[-300:]}"


@contextmanager
def exporting(site: DemoSite, limits: tuple[int, int] | None = None) -> Generator[Exporter]:
    """An exporter that has heard all nodes; `limits` of descriptors, soft and hard."""
    errors = site.place() / "export.err"
    prefix = [] if limits is None else ["prlimit", "--nofile={}:{}".format(*limits)]
    argv = [*prefix, *rankdeck(site, "export", "--simulated", "--listen", "127.0.0.1:0")]
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            argv, env={**site.environment(), "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdout
        port = int(process.stdout.readline().rsplit(":", 1)[1].split("/")[0])
        with metered(process.pid) as cost:
            one = Exporter(process, port, errors, cost)
            wait(lambda: one.nodes_up() == NODES, LIMIT)
            yield one
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def listeners(pid: int) -> Iterator[tuple[str, int]]:
    """Address (as the kernel writes it) and port of every TCP socket on which a process listens."""
    own = set[str]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.add(str(entry.readlink()))
    for name in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                address, _, port = words[1].partition(":")
                yield address, int(port, 16)


# ---- the private broker --------------------------------------------------------------------


def broker_logins(sites: Sites) -> Tally:
    """Without, with wrong, with another node's and with replayed credentials."""
    site, wrong = sites.demo, list[str]()
    with lying(site, ""):
        with exporting(site) as one:
            login = json.loads((place(site) / "login.json").read_text())
            name, password, port = login["username"], login["password"], one.broker()
            wrong += _refused(port, {"none": ("", ""), "wrong": (name, "wrong")})
            wrong += _abused(one, port, name, password)
            wrong += one.faults()
        with exporting(site) as two:
            wrong += _refused(two.broker(), {"replayed": (name, password)})
            wrong += two.faults()
    return Tally(wrong=wrong, memory=max(one.cost.memory, two.cost.memory), inputs=5)


def _refused(port: int, logins: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for what, (name, password) in logins.items():
        if _client(port, name, password) is not None:
            yield f"{what} credentials were accepted"


def _client(port: int, name: str, password: str) -> paho.Client | None:
    """A client that is logged in, or None where it was refused."""
    answers = list[bool]()
    client = paho.Client(CallbackAPIVersion.VERSION2, f"attack-{secrets.token_hex(4)}")
    client.on_connect = lambda _c, _u, _f, reason, _p: answers.append(not reason.is_failure)
    if name:
        client.username_pw_set(name, password)
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait(lambda: answers, 10)
    if answers and answers[0]:
        return client
    client.disconnect()
    client.loop_stop()
    return None


def _abused(one: Exporter, port: int, name: str, password: str) -> Iterator[str]:
    """The login of one node, used to listen and to speak as another."""
    client, heard = _client(port, name, password), list[str]()
    if client is None:
        yield "the right credentials were refused"
        return
    client.on_message = lambda _c, _u, message: heard.append(message.topic)
    client.subscribe("#")
    sample = {"seq": 1, "at": time.time(), "values": {"gpu.temp": {"0": 31337}}}
    for node in ("sakuya", "sakura"):
        client.publish(f"rankdeck/1/demo/{node}/sample", json.dumps(sample), qos=1)
    time.sleep(3)
    client.disconnect()
    client.loop_stop()
    if heard:
        yield f"a node could read {heard[0]}"
    if "31337" in one.page():
        yield "a node could speak as another"


def broker_crowd(sites: Sites) -> Tally:
    """Half packets, slow clients, 2,000 connections, with few descriptors at first."""
    with ExitStack() as stack, exporting(sites.demo, (256, 8192)) as one:
        port, wrong = one.broker(), list[str]()
        for number in range(2000):
            link = stack.enter_context(socket.socket())
            link.settimeout(2)
            with suppress(OSError):
                link.connect(("127.0.0.1", port))
                link.sendall(_BEGINNINGS[number % len(_BEGINNINGS)])
        up = one.nodes_up()
        wrong += [] if up == NODES else [f"{up} of {NODES} nodes are up meanwhile"]
        wrong += one.faults()
    return Tally(wrong=wrong, memory=one.cost.memory, cpu=one.cost.cpu, inputs=2000)


_CONNECT = b"\x10\x80\x01\x00\x04MQTT\x04\xc2\x00\x3c\x00\x01a"
_BEGINNINGS = (b"", b"\x10", _CONNECT, b"\x10\xff\xff\xff\x7f", b"\x30\xff\xff\xff\xff", b"GET /")


# ---- the exporter --------------------------------------------------------------------------


def exporter_attacked(sites: Sites) -> Tally:
    """Header bombs, requests that never end, readers that never read."""
    with exporting(sites.demo) as one:
        wrong = [
            f"listens on {address}:{port}"
            for address, port in listeners(one.process.pid)
            if not address.endswith("0100007F")
        ]
        for name, attack in _ATTACKS.items():
            with ExitStack() as stack:
                attack(stack, one.port)
                began = time.monotonic()
                if one.nodes_up() < 0:
                    wrong.append(f"{name}: a scrape gets no answer in 5 s")
                elif (took := time.monotonic() - began) > 3:
                    wrong.append(f"{name}: a scrape takes {took:.1f} s")
        wrong += one.faults()
    return Tally(wrong=wrong, memory=one.cost.memory, cpu=one.cost.cpu, inputs=len(_ATTACKS))


def _opened(stack: ExitStack, port: int) -> socket.socket:
    link = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
    link.settimeout(2)
    return link


def _bomb(stack: ExitStack, port: int) -> None:
    link = _opened(stack, port)
    with suppress(OSError):
        link.sendall(b"GET /metrics HTTP/1.1\r\n")
        for _ in range(100_000):
            link.sendall(b"X-A: " + b"a" * 1000 + b"\r\n")


def _no_end(stack: ExitStack, port: int) -> None:
    link = _opened(stack, port)
    with suppress(OSError):
        for _ in range(1000):
            link.sendall(b"\xff\x00" * 5000)


def _slow_writers(stack: ExitStack, port: int) -> None:
    for _ in range(200):
        with suppress(OSError):
            _opened(stack, port).sendall(b"GET /metrics HTTP/1.1\r\nX")


def _slow_readers(stack: ExitStack, port: int) -> None:
    for _ in range(200):
        with suppress(OSError):
            link = _opened(stack, port)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            link.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")


_ATTACKS: Mapping[str, Callable[[ExitStack, int], None]] = {
    "100 MB of headers": _bomb,
    "a line without an end": _no_end,
    "200 requests that never end": _slow_writers,
    "200 readers that never read": _slow_readers,
}


# ---- folders and links under /tmp ----------------------------------------------------------

_PREPARE = """
import os, sys
kind, path, target = sys.argv[1:]
os.umask(0)
{
    "folder": lambda: os.mkdir(path, 0o700),
    "open folder": lambda: os.mkdir(path, 0o777),
    "link": lambda: os.symlink(target, path),
    "dangling link": lambda: os.symlink(target + ".no", path),
    "file": lambda: open(path, "w").close(),
    "pipe": lambda: os.mkfifo(path, 0o666),
}[kind]()
"""
PREPARED = ("folder", "open folder", "link", "dangling link", "file", "pipe")


def prepared_tmp(_: Sites) -> Tally:
    """Another user has made, in six ways, what an MPI job needs under /tmp."""
    wrong = list[str]()
    with tempfile.TemporaryDirectory(prefix="tmp.") as name:
        for kind in PREPARED:
            wrong += [f"{kind}: {one}" for one in _prepared(Path(name), kind)]
    return Tally(wrong=wrong, inputs=len(PREPARED))


def _prepared(root: Path, kind: str) -> Iterator[str]:
    job = f"prepared-{secrets.token_hex(4)}"
    path, victim, state = Path(f"/tmp/rankdeck.{job}"), root / "victim", root / "state"
    victim.mkdir(mode=0o700, exist_ok=True)
    as_nobody(_PREPARE, kind, str(path), str(victim))
    before = path.lstat()
    try:
        answer = _job_run(job, state)
        if answer.get("ok") is not False or "/tmp/rankdeck" not in str(answer.get("error")):
            yield f"the agent says {answer}"
        if not os.path.lexists(path):
            yield "what the other user made was removed"
        elif path.lstat()[:5] != before[:5] or (kind.endswith("folder") and [*path.iterdir()]):
            yield "what the other user made was changed"
        if [*victim.iterdir()] or Path(f"{victim}.no").exists():
            yield "the link was followed"
        if (state / "jobs" / job / "n1").exists() or [*processes(job)]:
            yield "something of the job is left"
    finally:
        with suppress(OSError):
            path.rmdir() if stat.S_ISDIR(before.st_mode) else path.unlink()


def _job_run(job: str, state: Path) -> dict[str, object]:
    """What the agent answers that shall start a job on this machine."""
    plan = {"job": job, "node": "n1", "ranks": [0],
            "processes": [{"name": "rank 0", "argv": ["sleep", "60"], "rank": 0}]}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "job", "run"], input=json.dumps(plan), text=True,
        env={**os.environ, "PYTHONPATH": IMPORTS, "RANKDECK_STATE": str(state)},
        capture_output=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


# ---- modes ---------------------------------------------------------------------------------


@contextmanager
def open_demo(root: Path) -> Generator[Callable[..., str]]:
    """An embedded cluster of its own below `root`, where umask 000 forbids nothing.

    Gives a function that runs a command there and returns what it prints.
    """
    folders = {name: str(root / name[4:-5].lower()) for name in XDG}
    for folder in folders.values():
        Path(folder).mkdir(mode=0o755)
    env = {**os.environ, **folders, "PYTHONPATH": IMPORTS}

    def command(*words: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "rankdeck", *words], env=env, umask=0, cwd=root, text=True,
            capture_output=True, stdin=subprocess.DEVNULL, timeout=90, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{words}: {done.stderr[-300:]}")
        return done.stdout

    command("demo", "up")
    try:
        yield command
    finally:
        command("demo", "down")


def modes(_: Sites) -> Tally:
    """Every file that we make, with umask 000."""
    with tempfile.TemporaryDirectory(prefix="modes.") as name, open_demo(Path(name)) as command:
        root = Path(name)
        root.chmod(0o755)
        file = root / "job.yaml"
        file.write_text(_JOB_OF_MODES)
        command("-c", "demo", "run", str(file), "--no-preflight", check=False)
        (told,) = (
            json.loads(line) for line in command("-c", "demo", "jobs", "--json").splitlines()
        )
        command("-c", "demo", "report", told["job"], "--output", str(root / "r.tar.gz"))
        command("-c", "demo", "export-script", str(file), "--output", str(root / "job.sh"))
        command("-c", "demo", "ack", "sakuya", "node.silent", "--for", "1h", "--why", "known")
        command("-c", "demo", "status", "--wait", "10", check=False)
        made = [*_made(root)]
        wide = [f"{stat.filemode(mode)} {path.relative_to(root)}" for path, mode in made
                if mode & 0o077 and path != file]  # fmt: skip
        seen = [*_read_by_nobody(root, {str(file)})]
    return Tally(wrong=[*wide, *seen], inputs=len(made))


_JOB_OF_MODES = """\
job: modes
launch: plain
command: [sh, -c, 'echo out; echo err >&2; exit 3']
nodes: 2
ranks_per_node: 1
files: {deep/er.txt: text}
env: {SECRET_TOKEN: s3cr3t}
"""


def _made(root: Path) -> Iterator[tuple[Path, int]]:
    """Everything below the folders of a user, with its mode; links have none."""
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if (not stat.S_ISLNK(mode) and path.parent != root) or path.suffix in (".gz", ".sh"):
            yield path, mode


_READ = """
import os, sys
for base, _, files in os.walk(sys.argv[1]):
    for name in files:
        path = os.path.join(base, name)
        try:
            open(path, "rb").close()
        except OSError:
            continue
        print(path)
"""


def _read_by_nobody(root: Path, fine: set[str]) -> Iterator[str]:
    for path in as_nobody(_READ, str(root)).splitlines():
        if path not in fine:
            yield f"another user can read {Path(path).relative_to(root)}"


# ---- secrets -------------------------------------------------------------------------------

_SCAN = """
import os, sys
words = [word.encode() for word in sys.stdin.read().split()]
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ", "comm", "maps", "stat"):
        try:
            with open("/proc/%s/%s" % (pid, name), "rb") as file:
                data = file.read()
        except OSError:
            continue
        if any(word in data for word in words):
            print(pid, name, data[:100])
"""


def secrets_kept(sites: Sites) -> Tally:
    """A job's secret and a broker's password: what others see of processes, reports and cores."""
    site, marker = sites.demo, secrets.token_hex(16)
    file = site.place() / "secret.yaml"
    file.write_text(_JOB_OF_SECRETS.format(marker=marker))
    _allow_cores(site)
    job = ""
    try:
        with lying(site, ""), exporting(site) as one:
            password = json.loads((place(site) / "login.json").read_text())["password"]
            job = started(site, str(file))
            wrong = [*_seen_by_nobody(marker, password), *_in_outputs(site, job, marker, password)]
            wrong += _cores(one.process.pid)
    finally:
        clean_up(site, job)
    return Tally(wrong=wrong, left=len([*processes(job)]), inputs=2)


_JOB_OF_SECRETS = """\
job: secret
launch: plain
command: [sh, -c, 'echo started; sleep 600']
nodes: 3
ranks_per_node: 1
grace: 1
env: {{API_TOKEN: {marker}}}
"""


def _seen_by_nobody(*words: str) -> Iterator[str]:
    for line in as_nobody(_SCAN, told=" ".join(words)).splitlines():
        yield f"another user sees a secret: {line}"


def _allow_cores(site: DemoSite) -> None:
    """From now on what the nodes and this program start may leave a core."""
    servers = (pid for node in site.nodes() for pid in descendants(site.first_process(node)))
    for pid in (os.getpid(), *servers):
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (hard, hard))


def _cores(console: int) -> Iterator[str]:
    """Who holds secrets leaves no core when it crashes; asked only where cores are plain files."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        return
    for pid, what in _holders(console):
        place = Path(f"/proc/{pid}/cwd").resolve()
        before = {*place.glob("core*")}
        os.kill(pid, signal.SIGABRT)
        wait(lambda pid=pid: has_ended(pid), 10)
        for core in {*place.glob("core*")} - before:
            core.unlink()
            yield f"{what} left a core in {place}"


def has_ended(pid: int) -> bool:
    """Whether the process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def _holders(console: int) -> Iterator[tuple[int, str]]:
    """Processes whose memory has secrets, the console last."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b".pyz\0telemetry" in line:
                yield int(entry.name), "a telemetry agent"
            if b".pyz\0job\0run" in line:
                yield int(entry.name), "a supervisor"
    yield console, "the console"


def _in_outputs(site: DemoSite, job: str, *words: str) -> Iterator[str]:
    archive = site.place() / "secret.tar.gz"
    for verb in (("report", job, "--output", str(archive)), ("jobs", "--json"), ("logs", job)):
        ended = on_terminal(rankdeck(site, *verb), site.environment())
        yield from ended.faults()
        if any(word.encode() in ended.written for word in words):
            yield f"`{verb[0]}` shows a secret"
    with tarfile.open(archive) as packed:
        for entry in packed:
            data = packed.extractfile(entry)
            if data and any(word.encode() in data.read() for word in words):
                yield f"{entry.name} of the report has a secret"


# ---- the control FIFO ----------------------------------------------------------------------

_OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        continue
    print(path)
"""
NONSENSE: Sequence[bytes] = (
    b"exited 0 0\n", b"exited 99 0\n", b"started 0 1 1\n", b"started 0 -1 99999999999999999999\n",
    b"spawn ../../etc/passwd\n", b"spawn x\n", b"exited\n", b"\n\n \n", b"\xff\xfe\x00\n",
    b"exited 0 " + b"9" * 3000 + b"\n", b"x" * 4000,
)  # fmt: skip


def control_fifo(sites: Sites) -> Tally:
    """Another user tries to open it; a rank of ours writes nonsense into it."""
    site = sites.demo
    job = launched(site, "fifo", "echo started; sleep 600")
    control = site.folder(job, LIAR) / "control"
    try:
        wrong = [f"another user can write {p}" for p in as_nobody(_OPEN, str(control)).split()]
        _write_nonsense(control)
        time.sleep(1)
        ended = on_terminal(rankdeck(site, "jobs", "--json"), site.environment())
        wrong += ended.faults()
        ranks = [r for one in ended.objects() if one["job"] == job for r in one["ranks"]]
        wrong += [f"rank {r['rank']} is {r['state']}" for r in ranks
                  if r["node"] != LIAR and r["state"] != "running"]  # fmt: skip
    finally:
        clean_up(site, job)
    return Tally(wrong=wrong, left=len([*processes(job)]), inputs=len(NONSENSE) * 200)


def _write_nonsense(control: Path) -> None:
    handle = os.open(control, os.O_WRONLY | os.O_NONBLOCK)
    try:
        for _ in range(200):
            for line in NONSENSE:
                with suppress(BlockingIOError):
                    os.write(handle, line)
    finally:
        os.close(handle)


ROWS: tuple[Row, ...] = (
    Row(
        name="broker-logins",
        group=Group.USERS,
        does="private broker without, with wrong, another's and replayed credentials",
        run=broker_logins,
        short=True,
    ),
    Row(
        name="broker-crowd",
        group=Group.USERS,
        does="2,000 connections with half packets to a console with 256 descriptors",
        run=broker_crowd,
    ),
    Row(
        name="exporter",
        group=Group.USERS,
        does="header bombs, endless requests and slow readers at the exporter",
        run=exporter_attacked,
        short=True,
    ),
    Row(
        name="prepared-tmp",
        group=Group.USERS,
        does="folders, links, files and pipes of another user where a job needs /tmp",
        run=prepared_tmp,
        short=True,
        lacking=lacking,
    ),
    Row(
        name="modes",
        group=Group.USERS,
        does="mode of everything that is made, with umask 000",
        run=modes,
        short=True,
        lacking=lacking,
    ),
    Row(
        name="secrets",
        group=Group.USERS,
        does="secrets in arguments, environments, reports and cores, as another user sees them",
        run=secrets_kept,
        lacking=lacking,
    ),
    Row(
        name="control-fifo",
        group=Group.USERS,
        does="another user opens the control FIFO of a job, a rank fills it with nonsense",
        run=control_fifo,
        lacking=lacking,
    ),
)
