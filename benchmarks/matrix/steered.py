"""Rows of text that would steer a terminal: what ranks write, what nodes say, names of files."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.terminal import WIDE, Terminal, terminal

from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import LIAR, clean_up, launched, lying, on_terminal, rankdeck
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steering import SHOWN, planted, reached

QUIT_LIMIT = 1.0
"""Seconds from q to the end of the console."""
HEARD_LIMIT = 30.0
"""Seconds until the honest nodes are heard, on a busy machine."""
HONEST = ("sakuya", "sakura")
HEARD = ("ok", "warn", "bad")
"""A busy machine is warned of; a node that is not heard is unknown."""
PATIENT = 10.0
"""The same for a test, which may share its machine with others."""
CURSOR = " ▸"
PAUSE = 0.4
"""Seconds for a screen to be painted between two keys."""
RAW = b"".join(f"{SHOWN} ".encode() + bytes((n,)) + b"\n" for n in range(256))
"""Every byte by itself: those of 0x80 to 0x9f steer terminals of eight bits."""
WRITES = "cat {file}; cat {file} >&2; echo over; sleep 600"
KEYS: tuple[tuple[str, ...], ...] = (
    ("\r", "\x1b", "j", "\r", "\x1b", "j", "\r", "\x1b"),  # the page of every node
    ("2", "\r", "\r", "f", "t", "W", "n", "\x1b", "c", "\r", "\x1b", "M", "D", "l", "i"),
    ("\x1b", "\x1b", "4", "5", "3", "j", "j", "\t", "j", "?", "\x1b", "1"),
)


def noisy_file(site: DemoSite) -> Path:
    """All that is planted, as a file that ranks copy to their output."""
    file = site.place() / "planted.txt"
    file.write_bytes("\n".join(planted()).encode() + b"\n" + RAW + b"last line\n")
    return file


def noisy_job(site: DemoSite) -> str:
    """A job on every node whose ranks have written all of it; its id."""
    return launched(site, "noisy", WRITES.format(file=noisy_file(site)))


# ---- the command line ----------------------------------------------------------------------


def on_the_command_line(*, short: bool) -> Callable[[Sites], Tally]:
    """A run of the verbs that show what others wrote."""

    def run(sites: Sites) -> Tally:
        site = sites.demo
        job = noisy_job(site)
        try:
            tried = [*_verbs(site, job, SHORT if short else VERBS)]
            tried += [] if short else [*_names(site), *_errors(site)]
        finally:
            clean_up(site, job)
        return Tally(wrong=tried, inputs=len(planted()) + len(RAW))

    return run


VERBS: tuple[tuple[str, ...], ...] = (
    ("logs", "JOB"),
    ("logs", "JOB", "--merge"),
    ("logs", "JOB", "--collapse"),
    ("logs", "JOB", "--diff"),
    ("logs", "JOB", "--json"),
    ("jobs",),
    ("inspect", "JOB"),
    ("nodes", "--live", "--wait", "8"),
    ("status", "--wait", "8"),
    ("health", "--wait", "8"),
    ("images", "--image", "/etc/hostname"),
)
SHORT = (VERBS[0], VERBS[1], ("nodes", "--live", "--wait", f"{HEARD_LIMIT:.0f}"))
"""The last has to see what a node says, so it waits for it as long as a busy machine needs."""
SILENT = ("--json", "status", "health", "jobs", "inspect", "images", "--diff")
"""Verbs that may show nothing of it."""


def _verbs(site: DemoSite, job: str, verbs: Sequence[Sequence[str]]) -> Iterator[str]:
    """Ranks have written it, and one node says it in the place of every text."""
    for verb in verbs:
        words = [job if word == "JOB" else word for word in verb]
        with lying(site, "text" if "logs" not in verb else "", (), planted(colours=False)):
            ended = on_terminal(rankdeck(site, *words), site.environment())
        said = [*ended.faults(), *reached(ended.written, screen=False)]
        if SHOWN.encode() not in ended.written and not {*SILENT} & {*verb}:
            said.append("shows nothing of what was planted")
        yield from (f"{' '.join(verb)}: {one}" for one in said)


BOXED = {"job": "boxed", "launch": "plain", "nodes": 1, "command": ["true"]}


def _names(site: DemoSite) -> Iterator[str]:
    """Names of files and images, given on the command line, and what files say."""
    folder = site.place() / "odd"
    folder.mkdir(exist_ok=True)
    texts = [text for text in planted() if "\0" not in text and "/" not in text]
    for text in texts[:: len(texts) // 8]:
        job, cluster = folder / f"{text}.yaml", folder / f"c{text}.yaml"
        boxed = folder / "boxed.yaml"
        boxed.write_text(json.dumps({**BOXED, "env": {"A": text}, "container": {"image": text}}))
        job.write_text(json.dumps({"job": text, "launch": text, "command": [text], text: text}))
        cluster.write_text(json.dumps({"cluster": text, "nodes": [{"name": text}], text: 1}))
        for words in (
            rankdeck(site, "run", str(job), "--dry-run"),
            rankdeck(site, "run", str(boxed), "--dry-run"),
            rankdeck(site, "images", "--image", text),
            rankdeck(site, "report", text, "--output", str(folder / text)),
            [*rankdeck(site)[:3], "-c", str(cluster), "check"],
            [*rankdeck(site)[:3], "-c", text, "check"],
            rankdeck(site, text),
        ):
            ended = on_terminal(words, site.environment())
            said = [*ended.faults(), *reached(ended.written, screen=False)]
            yield from (f"{words[3:]!r}: {one}" for one in said)


def _errors(site: DemoSite) -> Iterator[str]:
    """What programs of a node complain of."""
    for verb in ("jobs", "nodes --live --wait 8", "images --image /etc/hostname"):
        with lying(site, "steering-error", (), planted(colours=False)):
            ended = on_terminal(rankdeck(site, *verb.split()), site.environment())
        said = [*ended.faults(), *reached(ended.written, screen=False)]
        yield from (f"{verb}, the agent complains: {one}" for one in said)


# ---- the screens ---------------------------------------------------------------------------


def on_the_screens(kind: str, *, short: bool = False) -> Callable[[Sites], Tally]:
    """A run of the console while a node tells this kind of lie and ranks have written it all."""

    def run(sites: Sites) -> Tally:
        site = sites.demo
        job = noisy_job(site)
        odd = _odd_jobs(site)
        names = {LIAR: "sakuya", job: "noisy-x"}
        try:
            with lying(site, kind, (), planted(colours=False), names=names, command="true"):
                return _looked_at(site, *((KEYS[1:2], PATIENT) if short else (KEYS, QUIT_LIMIT)))
        finally:
            clean_up(site, job)
            for file in odd:
                file.unlink(missing_ok=True)

    return run


def _odd_jobs(site: DemoSite) -> list[Path]:
    """Job files beside the cluster file, whose names steer."""
    folder = site.layout.root / "jobs"
    folder.mkdir(exist_ok=True)
    texts = [text for text in planted(lines=True) if "\0" not in text and "/" not in text]
    files = [folder / f"{text}.yaml" for text in texts[::7]]
    for file in files:
        with suppress(OSError):
            file.write_text("job: odd\nlaunch: plain\ncommand: [true]\nnodes: 1\n")
    return files


def _looked_at(site: DemoSite, keys: Sequence[Sequence[str]], quit_limit: float) -> Tally:
    env, cwd = site.environment(), str(site.place())
    with terminal(rankdeck(site), env, *WIDE, cwd) as shown, metered(shown.process.pid) as cost:
        wrong = [*opened(shown)]
        for part in keys:
            wrong += pressed(shown, part)
        took = shown.leaves(20)
        if took is None or took > quit_limit:
            wrong.append(f"q took {took or 20:.1f} s; {shown.text()[:300] if took is None else ''}")
        if shown.process.returncode not in (0, None):
            wrong.append(f"the console ended with {shown.process.returncode}")
    written = shown.written
    if SHOWN.encode() not in written:
        wrong.append("nothing of what was planted was shown")
    wrong += reached(written, screen=True)
    if b"Traceback" in written:
        wrong.append(f"traceback: {written[written.index(b'Traceback') :][:300]!r}")
    return Tally(wrong=wrong, memory=cost.memory, cpu=cost.cpu, inputs=len(written))


def opened(shown: Terminal) -> Iterator[str]:
    """The fleet has the honest nodes, and they are heard."""
    if not shown.shows("sakuya", "sakura", LIAR):
        yield f"the fleet screen does not come: {shown.text()[-200:]!r}"
    deadline = time.monotonic() + HEARD_LIMIT
    while (odd := [*_not_well(shown)]) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    yield from (f"an honest node is not heard: {line!r}" for line in odd)
    time.sleep(5 * PAUSE)  # for the lies to come in


def _not_well(shown: Terminal) -> Iterator[str]:
    lines = [line.strip(CURSOR) for line in shown.text().splitlines()]
    for name in HONEST:
        row = next((line for line in lines if line.startswith(name)), name)
        if not any(f" {level} " in row for level in HEARD):
            yield row[:80]


def pressed(shown: Terminal, keys: Sequence[str]) -> Iterator[str]:
    """Press these keys, then go back to the fleet: what is not as it must be."""
    for key in keys:
        shown.press(key)
        time.sleep(PAUSE)
        if shown.process.poll() is not None:
            yield f"the console ended at {key!r}"
            return
    for key in ("\x1b", "\x1b", "\x1b", "1"):
        shown.press(key)
        time.sleep(PAUSE)
    deadline = time.monotonic() + 10
    while (odd := [*_not_well(shown)]) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    yield from (f"no honest node in the fleet after {keys!r}: {line!r}" for line in odd)


LIES = ("text", "types", "null", "huge", "deep", "many", "halves", "long", "noise", "cut")
ROWS: tuple[Row, ...] = (
    Row(
        name="steering-verbs",
        group=Group.NODES,
        does="every control in logs, nodes' texts, names of files and errors: the command line",
        run=on_the_command_line(short=False),
    ),
    Row(
        name="steering",
        group=Group.NODES,
        does="every control in logs and in what nodes say: three verbs",
        run=on_the_command_line(short=True),
        short=True,
    ),
    Row(
        name="screen",
        group=Group.NODES,
        does="every control in logs and in what nodes say: the screens of a job",
        run=on_the_screens("text", short=True),
        short=True,
    ),
    *(
        Row(
            name=f"screen-{kind}",
            group=Group.NODES,
            does=f"the console on a terminal beside a node that lies: {kind}",
            run=on_the_screens(kind),
        )
        for kind in LIES
    ),
)
