"""Two consoles that follow one job do not take each other's knowledge away."""

from pathlib import Path

from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.job import Job, NodeNote
from rankdeck.model.rank import State
from rankdeck.model.stall import Explained
from rankdeck.rules.job_versions import merge_versions
from rankdeck.state.history import History
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from tests.support.node_events import node_event
from tests.unit.test_history import JOB, PLAN
from tests.unit.test_jobs_state import Feed

RUNNING = replace(JOB, state=State.RUNNING, ended=None, exit_code=None, first_failure=None)
CANCELLED = replace(JOB, state=State.CANCELLED, exit_code=None, first_failure=None)
NOTE = NodeNote(at=1.0, node="n1", level=Level.BAD, check="kernel.xid", text="Xid 79")


def both(tmp_path: Path, first: Job, second: Job) -> Job:
    """What is kept when one console writes after another."""
    path = tmp_path / "history.db"
    with History(path) as one, History(path) as two:
        one.save(first)
        two.save(second)
        (kept,) = one.load("c")
    return kept


def test_a_job_that_ended_is_not_made_to_run_again(tmp_path: Path) -> None:
    assert both(tmp_path, JOB, RUNNING) == JOB


def test_a_job_that_ran_is_ended_by_whoever_saw_its_end(tmp_path: Path) -> None:
    assert both(tmp_path, RUNNING, JOB) == JOB


def test_the_richer_first_failure_wins_whoever_writes_last(tmp_path: Path) -> None:
    rich = replace(JOB.first_failure, explained=(Explained("means", "try"),))
    knows = replace(JOB, first_failure=rich)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    assert both(tmp_path / "a", knows, JOB).first_failure == rich
    assert both(tmp_path / "b", JOB, knows).first_failure == rich


def test_a_cancelled_job_does_not_turn_into_a_failed_one_without_a_failure(
    tmp_path: Path,
) -> None:
    nameless = replace(JOB, first_failure=None)

    assert both(tmp_path, CANCELLED, nameless).state is State.CANCELLED


def test_a_console_may_change_its_own_word(tmp_path: Path) -> None:
    with History(tmp_path / "history.db") as history:
        history.save(JOB)
        history.save(CANCELLED)

        assert history.load("c") == (CANCELLED,)


def test_notes_and_troubles_of_both_are_kept() -> None:
    mine = replace(JOB, node_notes=(NOTE,), notes=("n2: b",))
    word = merge_versions(mine, JOB)

    assert (word.node_notes, word.troubles) == ((NOTE,), ("n1: a sentence", "n2: b"))


def test_of_two_notes_alike_that_of_the_console_that_saw_more_is_kept_whoever_writes_last(
    tmp_path: Path,
) -> None:
    lost = replace(NOTE, check="gpu.lost", text="GPU 1 is lost", before=True)
    late = replace(JOB, node_notes=(NOTE, lost))
    early = replace(JOB, node_notes=(replace(NOTE, at=2.0, count=2), replace(lost, before=False)))
    unheard = replace(JOB, node_notes=(NOTE, replace(NOTE, check="disk", text="full")))
    simulated = replace(
        unheard,
        node_notes=tuple(replace(n, simulated=True, before=True) for n in unheard.node_notes),
    )
    for name in "abcd":
        (tmp_path / name).mkdir()

    assert both(tmp_path / "c", unheard, simulated).node_notes == simulated.node_notes
    assert both(tmp_path / "d", simulated, unheard).node_notes == simulated.node_notes
    assert both(tmp_path / "a", late, early).node_notes == early.node_notes
    assert both(tmp_path / "b", early, late).node_notes == early.node_notes


def test_a_node_that_is_back_is_not_said_to_be_mute_because_it_once_was() -> None:
    mute, said = {"n1": "no route"}, "n1: does not answer: no route"
    lost = tuple(replace(rank, state=State.LOST, node="n1") for rank in RUNNING.ranks)

    assert said not in merge_versions(JOB, replace(RUNNING, mute=mute)).troubles
    gone = replace(RUNNING, ranks=lost, mute=mute)
    assert said in merge_versions(gone, replace(gone, mute={})).troubles


def test_what_another_console_wrote_is_news_once_and_ones_own_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    other = replace(JOB, id="j-2", plan=replace(PLAN, job="j-2"))
    with History(path) as one, History(path) as two:
        one.save(JOB)
        two.save(other)
        heard = [turn.job for turn in one.news("c")]
        again = one.news("c")
        of_another = two.news("d")

    assert heard == [other]
    assert again == of_another == ()


def test_a_word_that_was_mixed_is_news_to_whoever_knew_less(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as one, History(path) as two:
        one.save(JOB)
        two.save(RUNNING)

        assert [turn.job for turn in two.news("c")] == [JOB]


def test_a_removed_job_is_news_too(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as one, History(path) as two:
        one.save(JOB)
        two.forget("j-1")

        assert [(turn.id, turn.gone) for turn in one.news("c")] == [("j-1", True)]


# ---- restored jobs whose nodes are asked again


def failed_feed() -> Feed:
    feed = Feed()
    feed.start_all()
    feed.write(2, "last words\n")
    feed.exit(2, 3, at=2.0)
    return feed


def told_again(feed: Feed, kept: Job, seen: dict[str, int]) -> list[Job]:
    """The job after each event that its nodes tell a console that restored `kept`."""
    again = Feed()
    again.jobs.restore(kept, seen=seen)
    shown = [again.job]

    def tell(node, kind, at=1.0, **fields):
        event = Feed.tell(again, node, kind, at, **fields)
        shown.append(again.job)
        return event

    again.tell = tell
    again.start_all()
    again.exit(2, 3, at=2.0)
    for rank in (0, 1, 3):
        again.exit(rank, None, 15, at=2.5)
    again.close()
    return shown


def test_a_failed_rank_stays_failed_while_its_node_is_asked_again() -> None:
    feed = failed_feed()
    kept, seen = feed.job, {node: seq - 1 for node, seq in feed.seq.items()}

    shown = told_again(feed, kept, seen)

    assert {job.first_failure.rank for job in shown} == {2}
    assert {job.first_failure.lines for job in shown} == {("last words",)}
    assert {job.ranks[2].state for job in shown} == {State.FAILED}
    assert shown[-1].state is State.FAILED


def test_a_job_that_has_ended_keeps_its_verdict_while_it_is_read_again() -> None:
    feed = failed_feed()
    for rank in (0, 1, 3):
        feed.exit(rank, None, 15, at=2.5)
    feed.close()
    kept = replace(feed.job, explained=(Explained("means", "try"),))

    shown = told_again(feed, kept, {})

    assert all(job == kept for job in shown)


def test_that_a_node_does_not_answer_is_said_once_though_two_consoles_word_it() -> None:
    lost = tuple(replace(rank, state=State.LOST, node="n1") for rank in RUNNING.ranks)
    mine = replace(RUNNING, ranks=lost, mute={"n1": "nothing for 15 s"})
    kept = replace(RUNNING, ranks=lost, mute={"n1": "port 22"})

    assert merge_versions(mine, kept).troubles == kept.troubles


def test_another_consoles_word_ends_a_job_whose_node_is_lost_here() -> None:
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", why="gone")
    other = replace(feed.job, state=State.CANCELLED, ended=5.0)

    feed.jobs.tell(other)

    assert feed.job.state is State.CANCELLED
    assert feed.jobs.only_recorded("t-1")


def test_the_nodes_that_did_not_tell_the_end_here_are_known() -> None:
    feed = Feed()
    feed.start_all()
    feed.tell("n1", "closed", 3.0)
    feed.made("n2", "lost", why="gone")
    assert feed.jobs.unreported("t-1") == frozenset()

    feed.jobs.tell(replace(feed.job, state=State.DONE, ended=5.0))

    assert feed.jobs.unreported("t-1") == {"n2"}


def test_a_job_thought_dead_runs_again_when_all_its_nodes_say_so() -> None:
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", why="gone")
    feed.tell("n1", "closed", 3.0)
    feed.jobs.cancelled("t-1", CancelReport("t-1", State.LOST, (), {"n2": "no answer"}), 9.0)
    seen = {node: seq - 1 for node, seq in feed.seq.items()}
    assert feed.job.state.final

    again = Feed()
    again.jobs.restore(feed.job, seen=seen)
    again.start_all()
    again.tell("n1", "closed", 3.0)
    again.jobs.apply(node_event("t-1", "n2", "connected", 4.0))

    assert again.job.state is State.RUNNING


def test_who_keeps_the_other_ranks_running_keeps_them_for_all_consoles(tmp_path: Path) -> None:
    kept = replace(RUNNING, kept=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    assert both(tmp_path / "a", kept, RUNNING).kept
    assert both(tmp_path / "b", RUNNING, kept).kept
