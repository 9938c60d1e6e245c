"""Space and floods: full disks on nodes and on the head, logs without
end, and all ranks failing at once.
"""

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import WIDE, Terminal, terminal

from benchmarks.fault_model import Shape
from benchmarks.fault_plants import inside, need, need_root, processes
from benchmarks.fault_run import wait
from benchmarks.fault_sites import DemoSite, LabSite
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.scene import (
    Scene,
    counted,
    elapsed,
    ended,
    job_file,
    playing,
    rankdeck,
    untold,
    writing,
)
from benchmarks.matrix.screens import console_in_pty
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.wires import preloaded
from rankdeck.values import replace

VICTIM = "n2"
NODE_STATE = "/run/home/.local/state/rankdeck"
LIMIT = 60.0
SEARCH = 300.0
"""Seconds in which all of a log of 10 GB is searched on its node."""
RANKS = 6
REFUSED = re.compile("no space|disk|quota|read-only|could not be written", re.IGNORECASE)
NO_SPACE = (rf"{VICTIM}: no space left for ", rf"{VICTIM}: there is space again")
SHARED = (r"on its nodes: ",)
"""What the embedded nodes see is this machine: what others do to it may be told."""


QUOTA = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t write(int file, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    ssize_t done = real(file, data, size);
    if (done < 0 && errno == ENOSPC) errno = EDQUOT;
    return done;
}

int mkdir(const char *path, mode_t mode) {
    static int (*real)(const char *, mode_t);
    if (!real) real = dlsym(RTLD_NEXT, "mkdir");
    int done = real(path, mode);
    if (done < 0 && errno == ENOSPC) errno = EDQUOT;
    return done;
}
"""
"""Preloaded: a small disk says what a file system with quotas
says; few kernels of labs have these.
"""


# ---- a small disk on a node -------------------------------------------------------------


@contextmanager
def small_state(site: LabSite, options: str) -> Generator[None]:
    """The state folder of a node on a disk of its own."""
    mount = f"mount -t tmpfs -o mode=0700,{options} tmpfs {NODE_STATE}"
    inside(site, VICTIM, f"mkdir -p {NODE_STATE} && chmod 0700 {NODE_STATE} && {mount}")
    try:
        yield
    finally:
        inside(site, VICTIM, f"umount -l {NODE_STATE}")


def node_full(sites: Sites) -> Tally:
    """The logs fill the disk of a node; later there is space again."""
    return _filled(sites.lab, "No space left on device")


def node_quota(sites: Sites) -> Tally:
    """The logs use up the user's quota on a node; later it is raised."""
    with preloaded(sites.lab, "quota", QUOTA) as site:
        return _filled(site, "Disk quota exceeded")


def _filled(site: LabSite, why: str) -> Tally:
    count = 40_000
    with small_state(site, "size=2m"), playing(site, writing(count, 0)) as scene:
        scene.start(short=True)
        named = elapsed(lambda: _told(scene, f"({why})"), LIMIT)
        inside(site, VICTIM, f"mount -o remount,size=64m {NODE_STATE}")
        scene.finish()
        return ended(
            scene, state="done", seconds=LIMIT if named is None else named,
            missing=counted(scene, 6, count), wrong=untold(scene, NO_SPACE),
        )  # fmt: skip


def _told(scene: Scene, text: str) -> bool:
    return any(text in one for one in scene.shape().get("troubles", ()))


@dataclass(frozen=True, slots=True)
class Refused:
    """A launch onto a node that can keep nothing: said in words, and nothing is left anywhere."""

    options: str
    fill: str = "true"
    """Done to the disk before, by root on the node."""

    def __call__(self, sites: Sites) -> Tally:
        site = sites.lab
        with small_state(site, self.options):
            inside(site, VICTIM, f"cd {NODE_STATE} && {self.fill}")
            began = time.monotonic()
            with playing(site, job_file(["sleep", "300"])) as scene:
                code = scene.finish(LIMIT)
                seconds = time.monotonic() - began
                return self._judged(scene, code, seconds)

    def _judged(self, scene: Scene, code: int | None, seconds: float) -> Tally:
        said = [one.text for one in scene.said]
        wrong = [] if any(VICTIM in t and REFUSED.search(t) for t in said) else [f"said: {said}"]
        wrong += ["`run` did not end"] if code is None else []
        wrong += ["`run` gave exit code 0"] if code == 0 else []
        wrong += [text for text in said if "Traceback" in text]
        left = scene.left() if scene.job else 0
        return Tally(left=left, state="refused", seconds=seconds, wrong=wrong)


FILL = "dd if=/dev/zero of=ballast bs=4k 2>/dev/null; true"
INODES = "i=0; while touch f$i 2>/dev/null; do i=$((i+1)); done"


# ---- a small disk on the head -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FullHead:
    """History and cache of the console on a disk that takes nothing any more."""

    fill: str
    """Done to the disk, by the lab's root on the head."""
    before: bool = False
    """Already when the job is launched."""
    options: str = "size=8m"
    told: bool = True
    """Nothing can be written there: that must be said. A history that is there needs no inode."""

    def __call__(self, sites: Sites) -> Tally:
        site = sites.lab
        folder = site.lab.folder / "console"
        with _head_disk(site, folder, self.options):
            if self.before:
                self._spoil(site, folder)
            with playing(site, writing(3000, 0.05)) as scene:
                if self.before:  # no other console hears of the job before it asks the nodes
                    wait(lambda: len([*processes(scene.job)]) >= RANKS, LIMIT)
                else:
                    scene.start(short=True)
                    self._spoil(site, folder)
                    time.sleep(3)
                return self._cancelled(scene)

    def _spoil(self, site: LabSite, folder: Path) -> None:
        site.lab.as_root(["sh", "-c", f"cd {folder} && {self.fill}"])

    def _cancelled(self, scene: Scene) -> Tally:
        """Another console lists the job and cancels it; then nothing of it runs."""
        listed = scene.ask("jobs", "--json")
        known = any(json.loads(x)["job"] == scene.job for x in listed.stdout.splitlines())
        began = time.monotonic()
        done = scene.ask("cancel", scene.job, "--json")
        seconds = time.monotonic() - began
        scene.finish(LIMIT)
        wrong = [] if known else ["`jobs` does not know the job"]
        wrong += [] if done.returncode == 0 else [f"cancel: {done.stdout} {done.stderr}"]
        if self.told and "cannot be written" not in listed.stderr:
            wrong.append("`jobs` says nothing of the disk")
        wrong += [*_traces(scene, listed, done)]
        state = json.loads(done.stdout)["state"] if done.stdout else ""
        tally = ended(scene, state="cancelled", seconds=seconds, wrong=wrong)
        return replace(tally, state=state, right=state == "cancelled")


def _traces(scene: Scene, *done: subprocess.CompletedProcess[str]) -> Generator[str]:
    for text in (scene.words(), *(one.stderr for one in done)):
        if "Traceback" in text:
            yield text[-500:]


@contextmanager
def _head_disk(site: LabSite, folder: Path, options: str) -> Generator[None]:
    site.lab.as_root(["mount", "-t", "tmpfs", "-o", f"mode=0777,{options}", "tmpfs", str(folder)])
    try:
        yield
    finally:
        site.lab.as_root(["umount", "-l", str(folder)], check=False)


# ---- floods -----------------------------------------------------------------------------


def _roomy(site: DemoSite) -> DemoSite:
    """The embedded cluster with room for hundreds of ranks."""
    file = site.place() / "roomy.yaml"
    file.write_text(Path(site.cluster).read_text().replace("slots: 4", "slots: 256"))
    return replace(site, cluster=str(file))


def _plain(command: str, ranks: int = 1, nodes: int = 1, **more: object) -> Shape:
    return job_file(["sh", "-c", command], nodes=nodes, ranks_per_node=ranks, **more)


def _numbered(lines: int) -> str:
    """The command that writes so many lines of a hundred bytes, each with its number."""
    return f"seq -f '%012.0f {'x' * 86}' {lines}"


@dataclass(frozen=True, slots=True)
class BigLog:
    """One rank that writes so many lines of a hundred bytes; `run` prints each once."""

    lines: int
    limit: float

    def __call__(self, sites: Sites) -> Tally:
        writer = _numbered(self.lines)
        with playing(sites.demo, _plain(writer)) as scene:
            scene.start(short=True)
            scene.finish(self.limit)
            same = _same(f"{writer} | sed 's/^/[0] /'", scene.output)
            size = scene.output.stat().st_size - self.lines * (100 + 4)
            wrong = [*untold(scene, SHARED)] + (
                [] if same else ["what was printed is not what was written"]
            )
            lost, doubled = max(-size, 0), max(size, 0)
            tally = ended(scene, state="done", seconds=None, wrong=wrong)
            scene.output.unlink()
            return replace(tally, lost=lost, doubled=doubled)


@dataclass(frozen=True, slots=True)
class KeptLog:
    """A log of so many lines, which stays on its node: a screen shows its
    end and its beginning, and searches it.
    """

    lines: int
    limit: float

    def __call__(self, sites: Sites) -> Tally:
        writer = _numbered(self.lines)
        with playing(sites.demo, _plain(writer), "--detach") as scene:
            wait(lambda: scene.job, LIMIT)
            scene.watch.order(follow=scene.job)
            wait(lambda: scene.shape().get("state") in ("done", "failed"), self.limit)
            file = sites.demo.folder(scene.job, "sakuya") / "rank.0/out"
            size = file.stat().st_size - self.lines * 100
            wrong = [] if _same(writer, file) else ["what was kept is not what was written"]
            argv, env = rankdeck(sites.demo, "attach", scene.job), sites.demo.environment()
            with (
                terminal(argv, env, *WIDE, str(sites.demo.place())) as shown,
                metered(shown.process.pid) as cost,
            ):
                took = self._look(shown)
            wrong += [f"{what} is not shown" for what, seconds in took.items() if seconds is None]
            tally = ended(scene, state="done", seconds=None, wrong=[*wrong, *untold(scene, SHARED)])
            file.unlink()
            return replace(
                tally, lost=max(-size, 0), doubled=max(size, 0), memory=cost.memory,
                seconds=max(took["its end"] or 0, took["its beginning"] or 0),
                note=", ".join(f"{what} after {s or 0:.1f} s" for what, s in took.items()),
            )  # fmt: skip

    def _look(self, shown: Terminal) -> dict[str, float | None]:
        """Seconds until the screen shows each of these; None where it does not."""
        middle, first = f"{self.lines // 2:012d} xx", f"{1:012d} xx"
        found = {"its end": shown.after("", f"{self.lines:012d} xx")}
        found["the rank alone"] = shown.after("\r", "following")
        found["a line of its middle"] = shown.after(
            f"/{middle}\r", f"{middle}x", "1 of 1", limit=SEARCH
        )
        found["its beginning"] = shown.after("g", first)
        return found


def _same(command: str, file: Path) -> bool:
    """Whether the file holds what the command prints."""
    wanted = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
    assert wanted.stdout
    with wanted, file.open("rb") as kept:
        return _digest(wanted.stdout.read) == _digest(kept.read)


def _digest(read: Callable[[int], bytes]) -> bytes:
    found = hashlib.blake2b()
    while data := read(1 << 20):
        found.update(data)
    return found.digest()


CUT = "rank 0: its lines of more than 10,000 characters are cut here"
"""What `run` says of a line that it does not show whole."""


@dataclass(frozen=True, slots=True)
class NoNewline:
    """One rank that writes so many megabytes and no end of a line, then one line."""

    megabytes: int

    def __call__(self, sites: Sites) -> Tally:
        writer = f"head -c {self.megabytes}M /dev/zero | tr '\\0' x; echo; echo the end"
        with playing(sites.demo, _plain(writer)) as scene:
            scene.start(short=True)
            scene.finish()
            shown = scene.lines()
            file = sites.demo.folder(scene.job, "sakuya") / "rank.0/out"
            missing = self.megabytes * (1 << 20) + len("\nthe end\n") - file.stat().st_size
            fine = len(shown) == 2 and shown[0].startswith("x" * 9000) and shown[1] == "the end"
            wrong = [*untold(scene, (*SHARED, CUT))]
            wrong += [] if fine else [f"shown: {[s[-40:] for s in shown]}"]
            told = any(re.match(CUT, one.text) for one in scene.said)
            wrong += [] if told else ["that a line was cut is not said"]
            tally = ended(scene, state="done", seconds=None, wrong=wrong)
            return replace(tally, lost=max(missing, 0))


def garbage(sites: Sites) -> Tally:
    """Every byte there is, in any order: none but text reaches the
    terminal, and the log is whole.
    """
    size = 4 << 20
    writer = f"head -c {size} /dev/urandom | tee sent; echo; echo the end"
    with playing(sites.demo, _plain(f'cd "$RANKDECK_RUN"; {writer}')) as scene:
        scene.start(short=True)
        with console_in_pty(sites.demo, scene.job) as console:
            scene.finish()
            console.terminal.read_for(2)
            text = console.screen(3)
        folder = sites.demo.folder(scene.job, "sakuya")
        sent = (folder / "sent").read_bytes() + b"\nthe end\n"
        missing = len(sent) - (folder / "rank.0/out").stat().st_size
        found = set(re.findall(rb"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]", scene.output.read_bytes()))
        wrong = [f"control codes printed: {sorted(found)}"] if found else []
        wrong += [] if "the end" in text else [f"the last line is not on the screen:\n{text}"]
        tally = ended(scene, state="done", seconds=None, wrong=[*wrong, *untold(scene, SHARED)])
        return replace(tally, lost=abs(missing))


QUIET = r"""
rank=${RANKDECK_RANK:-$RANK}
if [ "$rank" = 0 ]; then timeout %d yes 'a line of the rank that never stops'; exit 0; fi
i=0
while [ $i -lt %d ]; do i=$((i+1)); echo "quiet $rank $(date +%%s.%%1N)"; sleep 1; done
"""


@dataclass(frozen=True, slots=True)
class Beside:
    """A rank that writes as fast as it can beside 15 that say something once a second."""

    seconds: int

    def __call__(self, sites: Sites) -> Tally:
        writer = QUIET % (self.seconds, self.seconds)
        with playing(_roomy(sites.demo), _plain(writer, 8, 2)) as scene:
            late = _Lateness(scene)
            scene.start(short=True)
            with console_in_pty(_roomy(sites.demo), scene.job) as console:
                console.type_for(self.seconds / 2)
                stale = _stale(console.screen(2))
            scene.finish(600)
            late.stop()
            wrong = [f"a quiet line was printed after {late.worst:.1f} s"] if late.worst > 3 else []
            wrong += [f"quiet ranks on the screen: {stale}"] if stale else []
            tally = ended(
                scene, state="done", seconds=late.worst, key=max(console.keys),
                wrong=[*wrong, *untold(scene, SHARED)],
            )  # fmt: skip
            return replace(tally, memory=max(scene.cost.memory, console.cost.memory))


def _stale(screen: str) -> str:
    """What is wrong with the quiet ranks in a picture of the wall; "" where all are fresh."""
    now = time.time()
    newest: dict[str, float] = {}
    for rank, stamp in re.findall(r"quiet (\d+) (\d{10}\.\d)", screen):
        newest[rank] = max(newest.get(rank, 0.0), float(stamp))
    old = {rank: now - stamp for rank, stamp in newest.items() if now - stamp > 6}
    return "" if len(newest) == 15 and not old else f"{len(newest)} of 15, old: {old}"


class _Lateness:
    """How late the lines of quiet ranks are printed, as seconds since they were written."""

    def __init__(self, scene: Scene) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(scene.output,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self, file: Path) -> None:
        wait(file.exists, 30)
        with file.open("rb") as printed:
            while not self._over.is_set():
                for stamp in re.findall(rb"quiet \d+ (\d{10}\.\d)", printed.read()):
                    self.worst = max(self.worst, time.time() - float(stamp))
                self._over.wait(0.1)


def children(sites: Sites) -> Tally:
    """A rank that starts ten thousand programs, each gone at once."""
    writer = 'i=0; while [ $i -lt 10000 ]; do i=$((i+1)); /bin/true; done; echo "started $i"'
    with playing(_roomy(sites.demo), _plain(writer)) as scene:
        scene.start(short=True)
        scene.finish(300)
        wrong = [] if scene.lines() == ["started 10000"] else [f"printed: {scene.lines()}"]
        return ended(scene, state="done", seconds=None, wrong=[*wrong, *untold(scene, SHARED)])


FAILS = 'read x <"{gate}"; echo "rank ${{RANKDECK_RANK:-$RANK}} gives up"; exit 3'
FAILED = (
    r"on its nodes: ",
    r"first failure",
    r"corrected: ",
    r"  (because|\||means|also|  try)",
    r"matrix-\S+: failed",
    r"stopping the other",
)


@dataclass(frozen=True, slots=True)
class AllFail:
    """So many ranks that all fail at the same moment, while keys are pressed."""

    ranks: int

    def __call__(self, sites: Sites) -> Tally:
        gate = sites.demo.place() / "gate"
        gate.unlink(missing_ok=True)
        subprocess.run(["mkfifo", gate], check=True)
        job = _plain(FAILS.format(gate=gate), self.ranks // 2, 2)
        with playing(_roomy(sites.demo), job) as scene:
            scene.start(short=True)
            with console_in_pty(_roomy(sites.demo), scene.job) as console:
                console.type_for(2)
                with gate.open("w"):
                    began = time.monotonic()
                console.type_for(10)
            named = elapsed(lambda: scene.shape().get("state") == "failed", LIMIT)
            seconds = self._seconds(scene, began, named)
            code = scene.finish()
            wrong = [] if code == 3 else [f"`run` gave exit code {code}"]
            tally = ended(
                scene, state="failed", seconds=seconds, key=max(console.keys),
                wrong=[*wrong, *untold(scene, FAILED)],
            )  # fmt: skip
            return replace(tally, memory=max(scene.cost.memory, console.cost.memory))

    def _seconds(self, scene: Scene, began: float, named: float | None) -> float:
        """From the moment of the failure until another console called the job failed."""
        if named is None:
            return LIMIT
        at = time.time() - (time.monotonic() - began)
        seen = scene.watch.seen[scene.job]
        return next(one.at for one in seen if one.job["state"] == "failed") - at


TICKS = 'import time; [(print("line", i, flush=True), time.sleep(0.1)) for i in range(900)]'


def unread_terminal(sites: Sites) -> Tally:
    """64 panes on a terminal that takes nothing for a minute, then keys again."""
    # One process a rank: a `sleep` for each line would take the console's core from it.
    writer = f"exec {sys.executable} -S -c '{TICKS}'"
    with playing(_roomy(sites.demo), _plain(writer, 32, 2)) as scene:
        scene.start(short=True)
        with console_in_pty(_roomy(sites.demo), scene.job) as console:
            for _ in range(8):
                console.terminal.write(b"+")
            console.terminal.read_for(2)
            time.sleep(60)
            console.terminal.read_for(2)
            began = time.monotonic()
            console.press()
            seconds = time.monotonic() - began
            console.type_for(5)
        tally = ended(
            scene, state="running", seconds=seconds, key=max(console.keys), note="still running"
        )
        scene.watch.order(cancel=scene.job)
        scene.finish(LIMIT)
        memory = max(scene.cost.memory, console.cost.memory)
        return replace(tally, memory=memory, left=scene.left())


FLOOD_LINE = "a line of a rank that has long ended"


def still_streaming(sites: Sites) -> Tally:
    """A job that ended while its flood is still printed: every console says that it has ended."""
    size = len(FLOOD_LINE) + 1
    lines = (300 << 20) // size
    writer = f"yes '{FLOOD_LINE}' | head -n {lines}"
    with playing(_roomy(sites.demo), _plain(writer)) as scene:
        scene.start(short=True)
        events = sites.demo.folder(scene.job, "sakuya") / "events"
        wait(lambda: b'"exited"' in events.read_bytes(), 120)
        began = time.monotonic()
        named = elapsed(lambda: scene.shape().get("state") == "done", LIMIT)
        listed = scene.ask("jobs", "--json")
        asked = time.monotonic() - began
        streams = not scene.over()
        states = [json.loads(x) for x in listed.stdout.splitlines()]
        said = next((one["state"] for one in states if one["job"] == scene.job), "")
        wrong = [] if said == "done" else [f"jobs after {asked:.0f} s: {said}"]
        wrong += [] if scene.finish(900) is not None else ["`run` did not end"]
        printed = scene.output.read_bytes().count(b"\n")
        note = f"{'streamed on' if streams else 'was printed already'} when it was asked"
        tally = ended(
            scene, state="done", seconds=LIMIT if named is None else named,
            wrong=[*wrong, *untold(scene, SHARED)], note=note,
        )  # fmt: skip
        scene.output.unlink()
        return replace(
            tally, lost=max(lines - printed, 0) * size, doubled=max(printed - lines, 0) * size
        )


# ---- the rows ---------------------------------------------------------------------------


def _row(name: str, does: str, run: Callable[[Sites], Tally], **more: object) -> Row:
    return Row(name=f"space.{name}", group=Group.SPACE, does=does, run=run, **more)  # pyright: ignore[reportArgumentType]


def _need_quota() -> str:
    return need_root() or need("cc")()


ROOT_ONLY: dict[str, object] = {"lacking": need_root}
ROWS: tuple[Row, ...] = (
    _row("node-full", "logs fill the disk of a node", node_full, short=True, **ROOT_ONLY),
    _row("node-quota", "logs use up a quota on a node", node_quota, lacking=_need_quota),
    _row("node-plan", "no space for the plan on a node", Refused("size=1m", FILL), **ROOT_ONLY),
    _row("node-inodes", "no inodes on a node", Refused("nr_inodes=40", INODES), **ROOT_ONLY),
    _row("node-readonly", "home of a node can only be read", Refused("ro"), **ROOT_ONLY),
    _row("head-full", "head full in mid-job, cancel", FullHead(FILL), short=True),
    _row("head-full-before", "head full before the launch, cancel", FullHead(FILL, before=True)),
    _row(
        "head-inodes",
        "no inodes on the head, cancel",
        FullHead(INODES, options="nr_inodes=200", told=False),
    ),
    _row("log-300m", "a log of 300 MB", BigLog(3_000_000, 600)),
    _row("log-2g", "a log of 2 GB", BigLog(20_000_000, 3600)),
    _row("log-10g", "a log of 10 GB, on its node", KeptLog(100_000_000, 3600)),
    _row("no-newline", "20 MB without a newline", NoNewline(20), short=True),
    _row("no-newline-100", "100 MB without a newline", NoNewline(100)),
    _row("garbage", "4 MB of random bytes", garbage, short=True),
    _row("quiet", "a rank that floods beside 15 quiet ones", Beside(20)),
    _row("children", "10,000 short-lived children", children),
    _row("fail-64", "64 ranks fail at once", AllFail(64), short=True),
    _row("fail-512", "512 ranks fail at once", AllFail(512)),
    _row("unread", "64 panes, a terminal that reads nothing for a minute", unread_terminal),
    _row("ended", "the job has ended, its flood is still printed", still_streaming),
)
