"""What is said of a job's own nodes beside its failure: the worst and nearest, and nothing else."""

import json
from pathlib import Path

from textual.geometry import Size

from rankdeck.backends.remote_log import Recording
from rankdeck.cli.jobs import job_summary
from rankdeck.cli.shapes import job_shape
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import NodeNote, RankState
from rankdeck.model.rank import State
from rankdeck.reports.job import ReportSource, _texts, secrets_of
from rankdeck.rules.job_news import (
    MOST,
    NodeHistory,
    node_notes,
    note_words,
    time_of_note,
    with_reasons,
)
from rankdeck.state.history import History
from rankdeck.state.history_thread import HistoryThread
from rankdeck.state.job_recorder import NodeNotes
from rankdeck.state.jobs import Jobs
from rankdeck.ui.screens.job_head import head_lines
from rankdeck.ui.themes import UNICODE
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Event, Sample
from tests.support.judged_fleet import JudgedFleet
from tests.unit.test_history import JOB, NODE, PLAN

START, FAILED, END = 1.8e9, 1.8e9 + 100, 1.8e9 + 110
TWO = replace(PLAN, nodes=(NODE, replace(NODE, node="n2", ranks=(1,))))
RAN = replace(
    JOB,
    plan=TWO,
    ranks=(*JOB.ranks, RankState(rank=1, node="n2", state=State.CANCELLED)),
    created=START,
    ended=END,
    first_failure=FirstFailure(
        rank=0, node="n1", exit_code=3, signal=None, at=FAILED
    ),
)  # fmt: skip
RUNS = replace(RAN, state=State.RUNNING, ended=None, first_failure=None)


def event(
    at,
    node="n1",
    check="kernel.xid",
    text="Xid 79, GPU has fallen off the bus · reset it",
    level=Level.BAD,
    device="0000:3b:00.0",
    kind="event",
):
    return Occurrence(at, node, kind, level, check, device, text)


def began(
    at, check="gpu.temp", text="GPU 0 is at 95 C · hot", level=Level.BAD, node="n1", device="0"
):
    return Occurrence(at, node, "began", level, check, device, text)


def silence(at, lasts, node="n1", check="node.silent"):
    """The agent of a node is gone, or cannot be started there, for so many seconds."""
    text = "the agent has gone · try to log in"
    kinds = ((at, "began", Level.UNKNOWN), (at + lasts, "ended", Level.OK))
    return [Occurrence(t, node, kind, level, check, "", text) for t, kind, level in kinds]


def noted(*occurrences, job=RAN, **heard):
    return node_notes(job, NodeHistory(events=occurrences, **heard))


def test_an_agent_that_was_gone_for_a_moment_is_not_noted_one_that_was_longer_is() -> None:
    short, long = silence(START + 20, 2), silence(START + 20, 20, node="n2")
    assert noted(*silence(START + 20, 2, check="node.ssh")) == ()
    while_it_lasts = noted(short[0], job=RUNS)

    assert [note.node for note in while_it_lasts] == ["n1"]
    assert [note.node for note in noted(*short, *long)] == ["n2"]
    assert noted(*short, job=replace(RAN, node_notes=while_it_lasts)) == ()


def test_a_silence_is_noted_once_it_has_lasted_or_a_rank_has_failed() -> None:
    (began, _) = silence(START + 20, 20)

    assert noted(began, job=replace(RAN, first_failure=None), now=START + 30) == ()
    assert len(noted(began, job=replace(RAN, first_failure=None), now=START + 36)) == 1
    assert len(noted(began, job=RAN, now=START + 30)) == 1


def test_a_short_silence_that_two_consoles_wrote_down_is_not_noted() -> None:
    one, other = silence(START + 20, 2), silence(START + 20.1, 2)
    told = (one[0], other[0], one[1], other[1])

    assert noted(*told) == ()


def test_an_xid_shortly_before_the_failure_is_told_with_its_distance():
    (note,) = noted(event(FAILED - 3))

    assert note_words(note) == "n1: 0000:3b:00.0: Xid 79, GPU has fallen off the bus"
    assert time_of_note(note, RAN) == "3 s before the failure"


def test_what_was_bad_on_the_culprits_node_is_a_reason_for_the_verdict_and_once() -> None:
    notes = noted(event(FAILED - 3), event(FAILED - 2, node="n2"), began(FAILED, level=Level.WARN))
    shown = with_reasons(replace(RAN, node_notes=notes))

    assert shown.first_failure.evidence == (
        "n1: 0000:3b:00.0: Xid 79, GPU has fallen off the bus, 3 s before the failure",
    )
    assert with_reasons(shown) == shown


def test_what_happened_on_other_nodes_or_at_other_times_is_not_told():
    others = (
        event(FAILED, node="n9"),
        event(START - 61),
        event(END + 61),
        event(FAILED, level=Level.OK),
        event(FAILED, kind="ended"),
        event(FAILED, check="agent.kernel"),
        event(FAILED, check="kernel.log"),
        began(FAILED, check="node.coverage"),
    )

    assert noted(*others) == ()
    assert len(noted(event(START - 59), event(END + 59, text="Xid 31"))) == 2


def test_the_worst_comes_first_and_of_these_the_nearest():
    notes = noted(
        event(FAILED - 1, check="kernel.link", text="a", level=Level.WARN),
        event(FAILED - 50, text="b"),
        event(FAILED + 2, text="c"),
    )

    assert [note.text for note in notes] == ["c", "b", "a"]


def test_many_alike_are_one_with_a_count_and_there_are_never_many():
    alike = [event(FAILED + n, device=f"0000:{n}b:00.0") for n in range(8)]
    different = [event(FAILED + 10, check=f"kernel.{c}", text=c) for c in "abcdefghijk"]
    notes = noted(*alike, *different)

    assert len(notes) == MOST
    assert (notes[0].count, notes[0].at) == (8, FAILED)


def test_different_xids_are_not_folded_into_one():
    assert len(noted(event(FAILED, text="Xid 31, x"), event(FAILED, text="Xid 79, x"))) == 2


def test_an_event_and_the_reason_it_gave_rise_to_are_told_once_with_the_time_of_the_event():
    reason = began(
        FAILED + 1,
        "kernel.xid",
        "Xid 79, GPU has fallen off the bus · a · b",
        device="0000:3b:00.0",
    )
    (note,) = noted(event(FAILED - 3), reason)

    assert (note.at, note.count) == (FAILED - 3, 1)


def test_a_warning_that_was_there_when_its_node_was_first_looked_at_says_nothing():
    first = {"n1": START + 2}

    assert noted(began(START + 3, level=Level.WARN), first_heard=first) == ()
    (bad,) = noted(began(START + 3), first_heard=first)
    (later,) = noted(began(START + 40, level=Level.WARN), first_heard=first)
    assert time_of_note(bad, RAN) == "there when the node was first looked at"
    assert not later.before


def test_an_event_has_its_own_time_also_when_it_is_heard_at_the_first_look():
    (note,) = noted(event(START + 3, level=Level.WARN), first_heard={"n1": START + 2})

    assert not note.before


def test_what_is_bad_since_long_before_is_told_as_such_once():
    present = NodeNote(
        at=START - 5000, node="n2", level=Level.BAD, check="disk.nvme", text="x", before=True
    )
    (note,) = noted(job=RUNS, present=[present])
    again = noted(
        job=replace(RUNS, node_notes=(note,)), present=[replace(present, at=START - 4999.7)]
    )

    assert time_of_note(note, RUNS) == "since before the job"
    assert again == (note,)


def test_what_an_operator_has_acknowledged_is_not_told():
    ack = Ack("n1", "kernel.xid", FAILED + 900, "me")

    assert noted(event(FAILED), acks=[ack]) == ()
    assert len(noted(event(FAILED, node="n2"), acks=[ack])) == 1


def test_a_full_disk_that_the_job_speaks_of_itself_is_not_told_twice():
    full = event(FAILED, check="disk.full", text="/home is full", kind="began")
    said = replace(RAN, full_disks=("n1",))

    assert len(noted(full)) == 1
    assert noted(full, job=said) == ()


def test_what_was_noted_stays_when_nobody_remembers_it_any_more():
    kept = noted(event(FAILED))

    assert noted(job=replace(RAN, node_notes=kept)) == kept


def test_made_up_faults_say_so_everywhere():
    (note,) = noted(event(FAILED), simulated={"n1": ("gpu",)})
    job = replace(RAN, node_notes=(note,))

    assert note.simulated
    assert "SIMULATED" in job_summary(job)
    assert job_shape(job)["nodes_said"][0]["simulated"] is True
    assert "SIMULATED" in text_of(head_lines(job, UNICODE, Size(120, 40)))


def test_a_console_that_has_not_heard_the_node_leaves_what_another_noted() -> None:
    (known,) = noted(began(START + 3), first_heard={"n1": START + 2}, simulated={"n1": ("gpu",)})
    job = replace(RAN, node_notes=(known,))

    assert (known.before, known.simulated) == (True, True)
    assert noted(began(START + 3), job=job) == (known,)


def test_seconds_count_from_the_first_failure():
    notes = (*noted(event(FAILED - 3)), *noted(began(START + 3), first_heard={"n1": START + 2}))
    said = job_shape(replace(RAN, node_notes=notes))["nodes_said"]

    assert [one["seconds"] for one in said] == [-3.0, None]
    assert said[0]["level"] == "bad"


def text_of(lines):
    return "\n".join("".join(text for text, _ in line) for line in lines)


def test_the_head_has_one_line_where_there_is_little_room_and_none_where_there_is_less():
    notes = noted(
        event(FAILED, text="one"), event(FAILED + 1, text="two"), event(FAILED + 2, text="three")
    )
    job = replace(RAN, node_notes=notes)
    heads = {h: text_of(head_lines(job, UNICODE, Size(100, h))) for h in (18, 24, 40)}

    assert "one" not in heads[18]
    assert "one" in heads[24]
    assert "and 2 more" in heads[24]
    assert "two" in heads[40]
    assert "and 1 more" in heads[40]


# ---- from the history of nodes to the job


class Watch:
    """A fleet of two nodes, its history, and a job that runs on the first."""

    def __init__(self, history: History, now: float = START) -> None:
        self.now = now
        nodes = tuple(Node(name=name, address="x") for name in ("n1", "n2"))
        self.fleet = JudgedFleet(Cluster(name="c", nodes=nodes), wall=lambda: self.now)
        self.log = history.nodes_of("c")
        self.jobs = Jobs()
        self.jobs.restore(RUNS)
        self.notes = NodeNotes(self.jobs, self.fleet, HistoryThread(history), self.log)

    async def look(self, now: float) -> list[str]:
        """One second of a session."""
        self.now = now
        self.fleet.take_changes()
        self.log.add(self.fleet.event_log.take())
        await self.notes.notice(now)
        return [note.text for note in self.jobs.job("j-1").node_notes]

    def tell(self, node: str, at: float, text: str) -> None:
        self.now = at
        self.fleet.apply(node, Sample(1, at, {"cpu.used": {"": 1.0}}))
        self.fleet.apply(node, Event(at, "bad", "kernel.xid", text))


async def test_an_event_comes_to_the_job_once_a_second_and_is_kept_with_it(
    tmp_path: Path,
) -> None:
    with History(tmp_path / "history.db") as history:
        watch = Watch(history)
        before = await watch.look(START + 1)
        watch.tell("n1", START + 2, "Xid 79, gone")
        after = await watch.look(START + 3)
        history.save(watch.jobs.job("j-1"))
        (kept,) = history.load("c")

    assert (before, after) == ([], ["Xid 79, gone"])
    assert [note.text for note in kept.node_notes] == after


async def test_what_another_console_wrote_of_the_nodes_is_noted_too(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as one, History(path) as two:
        watch = Watch(one)
        await watch.look(START + 1)
        two.nodes_of("c").add([event(START + 2), event(START + 3, node="n9")])

        assert await watch.look(START + 4) == ["Xid 79, GPU has fallen off the bus"]


async def test_a_job_that_ended_gets_no_later_notes(tmp_path: Path) -> None:
    with History(tmp_path / "history.db") as history:
        watch = Watch(history)
        watch.jobs.restore(RAN)
        watch.log.add([event(END + 30)])
        in_time = await watch.look(END + 31)
        watch.log.add([event(END + 70, check="kernel.oom", text="OOM")])

        assert await watch.look(END + 62) == in_time
        assert await watch.look(END + 3600) == in_time
    assert in_time == ["Xid 79, GPU has fallen off the bus"]


async def test_a_reason_that_is_there_at_the_first_look_is_known_as_such(
    tmp_path: Path,
) -> None:
    with History(tmp_path / "history.db") as history:
        watch = Watch(history)
        watch.now = START + 20
        sample = Sample(1, watch.now, {"gpu.lost": {"0": 1}, "gpu.temp": {"0": 40}})
        watch.fleet.apply("n1", sample)
        await watch.look(START + 21)
        (note,) = watch.jobs.job("j-1").node_notes

    assert note.check == "gpu.lost"
    assert note.before


async def test_a_report_has_them_with_their_level_as_a_word():
    job = replace(RAN, node_notes=noted(event(FAILED - 3)))
    source = ReportSource(job, (), (), {})
    texts = _texts(source, Recording((), {}), secrets_of(source))

    (note,) = json.loads(texts["job.json"])["node_notes"]
    assert (note["node"], note["check"], note["level"]) == ("n1", "kernel.xid", "bad")
