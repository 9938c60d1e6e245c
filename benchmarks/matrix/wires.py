"""Wires and clocks: links cut, slow, one way or flapping; jump
hosts, names, clocks and homes that go.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.support.processes import descendants

from benchmarks.fault_plants import need, need_root
from benchmarks.fault_run import wait
from benchmarks.fault_sites import LabSite, compile_c
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.scene import Scene, ask, counted, elapsed, ended, playing, untold, writing
from benchmarks.matrix.sites import Sites
from rankdeck.config.document import write_documents
from rankdeck.values import replace

VICTIM = "n2"
PAUSE = 0.01
LINES_A_SECOND = 80
"""What a rank writes at most with that pause."""
NAMED_LIMIT = 60.0
AGAIN_LIMIT = 60.0
PATIENCE = 20.0
"""Seconds after which a node that does not answer must be named."""
MUTE = (
    r"n\d: does not answer",
    r"n\d: did not answer",
    r"n\d: answers again",
    r"on its nodes: n\d: silent",
)
"""What may be said of a node that cannot be reached."""
MAY_BE = ("pending", "running", "lost", "done")
CLOCK_SET = (
    rf"{VICTIM}: the clock of the node was set by ",
    rf"on its nodes: {VICTIM}: clock is ",
)

Harm = Callable[[LabSite], None]
Prepare = Callable[[LabSite], AbstractContextManager[LabSite]]


@contextmanager
def as_it_is(site: LabSite) -> Generator[LabSite]:
    """The lab without any preparation."""
    yield site


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What is done to the way between console and node while a job writes."""

    harm: Harm
    lasts: float
    """Seconds of it; then it is undone."""
    undo: Harm = LabSite.mend
    named: bool = False
    """Lasts long enough that the node must be named."""
    nodes: int = 3
    allowed: tuple[str, ...] = MUTE
    """What `run` may say."""
    prepare: Prepare = as_it_is

    def __call__(self, sites: Sites) -> Tally:
        with self.prepare(sites.lab) as site:
            return self._play(site)

    def _play(self, site: LabSite) -> Tally:
        count = int((self.lasts + 12) * LINES_A_SECOND)
        with playing(site, writing(count, PAUSE, nodes=self.nodes)) as scene:
            scene.start(short=True)
            named = self._hurt(scene, site)
            again = self._mend(scene, site)
            scene.finish(self.lasts + 120)
            missing = counted(scene, 2 * self.nodes, count)
            wrong = [*untold(scene, self.allowed), *shown(scene), *listed(scene)]
            note = f"named after {named:.1f} s, right again after {again:.1f} s"
            return ended(
                scene, state="done", seconds=max(named, again), missing=missing,
                wrong=[*dict.fromkeys(wrong)], note=note,
            )  # fmt: skip

    def _hurt(self, scene: Scene, site: LabSite) -> float:
        """Do it for its time; seconds until the node was named."""
        began = time.monotonic()
        self.harm(site)
        limit = NAMED_LIMIT if self.named else 0.0
        named = elapsed(lambda: "lost" in scene.states(VICTIM), limit) if self.named else 0.0
        wait(scene.over, began + self.lasts - time.monotonic())
        return NAMED_LIMIT if named is None else named

    def _mend(self, scene: Scene, site: LabSite) -> float:
        """Undo it; seconds until all ranks run and are heard again."""
        self.undo(site)
        since = time.monotonic()
        ranks = scene.ranks_on(VICTIM)

        def again() -> bool:
            fine = scene.states() <= {"running", "done"} and scene.speaking(ranks, since)
            return fine or scene.over()

        found = elapsed(again, AGAIN_LIMIT)
        return AGAIN_LIMIT if found is None else found


def shown(scene: Scene) -> list[str]:
    """Which states the other console ever named that no rank of a job that went well has."""
    seen = scene.watch.seen.get(scene.job, ())
    states = {rank["state"] for one in seen for rank in one.job["ranks"]}
    return [f"a rank was called {state}" for state in sorted(states - set(MAY_BE))]


def listed(scene: Scene) -> list[str]:
    """What `jobs` says of a job that ended well, and should not."""
    done = scene.ask("jobs", "--json")
    found = (json.loads(line) for line in done.stdout.splitlines())
    job = next((one for one in found if one["job"] == scene.job), None)
    if job is None:
        return ["`jobs` does not know the job"]
    wrong = [f"jobs: {job['state']}"] if job["state"] != "done" else []
    wrong += [f"jobs: first failure {job['first_failure']}"] if job["first_failure"] else []
    return wrong + [f"jobs: {t}" for t in job["troubles"] if "does not answer" in t]


# ---- the links --------------------------------------------------------------------------


def cut(site: LabSite) -> None:
    """Nothing goes through, nothing is refused."""
    site.cut(VICTIM)


def slow(site: LabSite) -> None:
    """Less than the ranks of the node write, in each direction."""
    for towards_head in (False, True):
        site.throttle(VICTIM, "32kbit", towards_head=towards_head)


def deaf(site: LabSite) -> None:
    """What the head sends does not arrive; what the node sends does."""
    site.throttle(VICTIM, "0")


def mute(site: LabSite) -> None:
    """What the node sends does not arrive; what the head sends does."""
    site.throttle(VICTIM, "0", towards_head=True)


def flap(site: LabSite) -> None:
    """Ten seconds of a link that is up for as long as it is down."""
    for _ in range(5):
        site.cut(VICTIM)
        time.sleep(1)
        site.mend()
        time.sleep(1)


# ---- the jump host, and names -----------------------------------------------------------

JUMP = "n1"


@contextmanager
def behind_a_jump_host(site: LabSite) -> Generator[LabSite]:
    """A cluster of n2 and n3, which are reached through n1 only."""
    lab = site.lab
    config = lab.folder / "jump_config"
    away = " ".join(lab.address(node) for node in lab.nodes if node != JUMP)
    common = f"User {lab.user}\n  IdentityFile {lab.folder}/id\n"
    known = f"  UserKnownHostsFile {lab.folder}/known_hosts\n"
    jump = f"Host {away}\n  ProxyJump {lab.address(JUMP)}\n"
    config.write_text(f"Host *\n  {common}{known}{jump}")
    content = yaml.safe_load(Path(site.cluster).read_text())
    content["nodes"] = [node for node in content["nodes"] if node["name"] != JUMP]
    content["ssh"]["config"] = str(config)
    jumping = _clustered(site, "jump.yaml", content)
    ask(jumping, "trust", jumping.cluster)
    yield jumping


def restart_jump_host(site: LabSite) -> None:
    """End it at once and start it again."""
    site.crash(JUMP)
    time.sleep(1)
    site.mend()


@contextmanager
def by_name(site: LabSite) -> Generator[LabSite]:
    """The cluster with names instead of addresses; they are forgotten for the time of the harm."""
    content = yaml.safe_load(Path(site.cluster).read_text())
    for node in content["nodes"]:
        node["address"] = node["name"]
    hosts = site.lab.folder / "hosts"
    known = hosts.read_text()
    try:
        yield _clustered(site, "names.yaml", content)
    finally:
        hosts.write_text(known)


def forget_names(site: LabSite) -> None:
    """No name resolves, and the connection to the node breaks."""
    hosts = site.lab.folder / "hosts"
    (site.lab.folder / "hosts.kept").write_text(hosts.read_text())
    hosts.write_text("127.0.0.1 localhost\n")
    first = site.first_process(VICTIM)
    for _ in range(10):  # also what was just about to connect
        for pid in descendants(first)[1:]:
            with suppress(OSError):
                if _serves(Path(f"/proc/{pid}/cmdline").read_bytes()):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _serves(words: bytes) -> bool:
    """Whether this is an sshd of one connection, and not the one that listens."""
    return b"sshd:" in words and b"[listener]" not in words


def know_names(site: LabSite) -> None:
    """Names resolve again."""
    folder = site.lab.folder
    (folder / "hosts").write_text((folder / "hosts.kept").read_text())


def _clustered(site: LabSite, name: str, content: object) -> LabSite:
    file = site.lab.folder / name
    file.write_text(write_documents([content]))
    return replace(site, cluster=str(file))


# ---- clocks -----------------------------------------------------------------------------

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_AHEAD"), O_RDONLY);
    if (file >= 0) ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, at);
    if (ahead && ahead != MAP_FAILED && (clock == CLOCK_REALTIME || clock == 5)) at->tv_sec += *ahead;
    return done;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""
"""Preloaded: the clock of the day goes as many seconds ahead as
the file CLOCK_AHEAD says (a long).
"""
HOUR = 3600


def set_clock(site: LabSite, ahead: int) -> None:
    """Set the clock of the node so many seconds ahead of the head's."""
    with (site.lab.folder / "ahead").open("r+b") as file:
        file.write(ahead.to_bytes(8, sys.byteorder, signed=True))


@contextmanager
def an_hour_off(site: LabSite) -> Generator[LabSite]:
    """The clock of one node is an hour fast, for all that sshd starts there."""
    ahead = site.lab.folder / "ahead"
    ahead.write_bytes(bytes(8))
    set_clock(site, HOUR)
    with preloaded(site, "clock", CLOCK, f"CLOCK_AHEAD={ahead}"):
        yield site


@contextmanager
def preloaded(site: LabSite, name: str, source: str, *variables: str) -> Generator[LabSite]:
    """A library of C before all others, for all that sshd starts on one node."""
    folder = site.lab.folder
    compile_c(source, folder / f"{name}.so", "cc", "-shared", "-fPIC")
    config = folder / "sshd_config"
    before = config.read_text()
    preload = " ".join((f"SetEnv LD_PRELOAD={folder}/{name}.so", *variables))
    config.write_text(f"{before}Match LocalAddress {site.lab.address(VICTIM)}\n  {preload}\n")
    try:
        _restart(site)
        yield site
    finally:
        config.write_text(before)
        _restart(site)


def _restart(site: LabSite) -> None:
    site.crash(VICTIM)
    site.mend()


def jump_clock(site: LabSite) -> None:
    """Set it an hour back, and some time later two hours on."""
    set_clock(site, 0)
    time.sleep(8)
    set_clock(site, 2 * HOUR)


def keep_clock(site: LabSite) -> None:
    """Leave it where it is."""


FILE_SERVER = "file-server.pid"


# ---- the home folder --------------------------------------------------------------------


@contextmanager
def on_a_file_server(site: LabSite) -> Generator[LabSite]:
    """The home folder of the node comes from a file system in a process, which can be stopped."""
    into = ("nsenter", "-t", str(site.first_process(VICTIM)), "-m")
    home = "/run/home"
    kind = (*into, "stat", "-f", "-c", "%T", home)
    with subprocess.Popen([*into, "bindfs", "-f", home, home], start_new_session=True) as mount:
        (site.lab.folder / FILE_SERVER).write_text(str(mount.pid))
        wait(lambda: "fuse" in subprocess.run(kind, capture_output=True, text=True).stdout, 10)
        try:
            yield site
        finally:
            answer(site)
            mount.kill()
            _restart(site)


def hang(site: LabSite) -> None:
    """The file server answers no more."""
    os.kill(int((site.lab.folder / FILE_SERVER).read_text()), signal.SIGSTOP)


def answer(site: LabSite) -> None:
    """It answers again."""
    os.kill(int((site.lab.folder / FILE_SERVER).read_text()), signal.SIGCONT)


def need_bindfs() -> str:
    return need_root() or need("bindfs")()


# ---- the rows ---------------------------------------------------------------------------

_ROWS = (
    ("wires.cut", "link cut for 10 s", Wire(harm=cut, lasts=10), True),
    ("wires.cut30", "link cut for 30 s", Wire(harm=cut, lasts=30, named=True), False),
    ("wires.cut600", "link cut for ten minutes", Wire(harm=cut, lasts=600, named=True), False),
    ("wires.slow", "32 kbit/s for 30 s", Wire(harm=slow, lasts=30), False),
    ("wires.deaf", "nothing reaches the node for 8 s", Wire(harm=deaf, lasts=8), True),
    ("wires.deaf30", "nothing reaches the node for 30 s", Wire(harm=deaf, lasts=30, named=True), False),
    ("wires.mute30", "nothing comes from the node for 30 s", Wire(harm=mute, lasts=30, named=True), False),
    ("wires.flap", "link down and up, five times", Wire(harm=flap, lasts=10), True),
)  # fmt: skip


def _row(name: str, does: str, run: Wire, short: bool) -> Row:
    return Row(name=name, group=Group.WIRES, does=does, run=run, short=short)


ROWS: tuple[Row, ...] = (
    *(_row(*row) for row in _ROWS),
    Row(
        name="wires.jump",
        group=Group.WIRES,
        does="jump host restarted",
        run=Wire(harm=restart_jump_host, lasts=5, nodes=2, prepare=behind_a_jump_host),
    ),
    Row(
        name="wires.names",
        group=Group.WIRES,
        does="connection broken, names resolve no more for 30 s",
        run=Wire(harm=forget_names, undo=know_names, lasts=30, named=True, prepare=by_name),
    ),
    Row(
        name="wires.home",
        group=Group.WIRES,
        does="home folder on a file server that hangs for 30 s",
        run=Wire(harm=hang, undo=answer, lasts=30, named=True, prepare=on_a_file_server),
        lacking=need_bindfs,
    ),
    # Last: a clock that was wrong shortly before a job is told of that job too.
    Row(
        name="wires.clock",
        group=Group.WIRES,
        does="clock an hour off",
        run=Wire(harm=keep_clock, lasts=5, prepare=an_hour_off, allowed=CLOCK_SET),
        lacking=need("cc"),
    ),
    Row(
        name="wires.clock-jumps",
        group=Group.WIRES,
        does="clock set an hour back and two on",
        run=Wire(harm=jump_clock, lasts=20, prepare=an_hour_off, allowed=CLOCK_SET),
        lacking=need("cc"),
    ),
)
