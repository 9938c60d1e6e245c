"""What events make of a job, also when they come late, twice, or make no sense."""

import pytest

from rankdeck.cli.jobs import job_sentence
from rankdeck.cli.shapes import job_shape
from rankdeck.errors import UnknownJobError
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.job import NodeNote
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk, Tail
from rankdeck.rules import ends
from rankdeck.rules.failure_evidence import CLOCKS
from rankdeck.rules.progress import ProgressReader
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodePlan, ProcessPlan
from rankdeck_agent.wire.job_events import EventError
from tests.support.node_events import node_event, planned_event

PLAN = Plan(
    job="t-1",
    name="t",
    cluster="c",
    backend="ssh",
    nodes=(
        NodePlan("t-1", "n1", (0, 1), (ProcessPlan("mpirun", ("mpirun",)),)),
        NodePlan("t-1", "n2", (2, 3)),
    ),
)


class Feed:
    """A job and the numbered events of its nodes."""

    def __init__(self, plan=PLAN):
        self.jobs = Jobs()
        self.jobs.add(plan, 100.0)
        self.seq = {"n1": 0, "n2": 0}

    def tell(self, node, kind, at=1.0, **fields):
        event = node_event("t-1", node, kind, at, seq=self.seq[node], **fields)
        self.seq[node] += 1
        self.jobs.apply(event)
        return event

    def made(self, node, kind, at=1.0, **fields):
        self.jobs.apply(node_event("t-1", node, kind, at, **fields))

    def start_all(self):
        for rank in range(4):
            self.tell("n1" if rank < 2 else "n2", "started", rank=rank, pid=10 + rank)

    def exit(self, rank, code=0, signal=None, at=2.0):
        node = "n1" if rank < 2 else "n2"
        return self.tell(node, "exited", at, rank=rank, code=code, signal=signal)

    def close(self):
        self.tell("n1", "closed", 3.0)
        self.tell("n2", "closed", 3.0)

    def write(self, rank, text, offset=0):
        node = "n1" if rank < 2 else "n2"
        self.jobs.apply(Chunk("t-1", node, rank, "out", offset, 1.5, text.encode()))

    @property
    def job(self):
        return self.jobs.job("t-1")


def test_a_job_goes_from_pending_over_running_to_done():
    feed = Feed()
    assert feed.job.state is State.PENDING
    feed.start_all()
    assert feed.job.state is State.RUNNING
    for rank in range(4):
        feed.exit(rank)
    feed.close()

    assert (feed.job.state, feed.job.exit_code, feed.job.ended) == (State.DONE, 0, 3.0)


def test_the_first_failing_rank_gives_name_code_and_last_lines():
    feed = Feed()
    feed.start_all()
    feed.write(2, "one\ntwo\nlast words\n")
    feed.exit(2, 3, at=2.0)
    for rank in (0, 1, 3):
        feed.exit(rank, None, 15, at=2.1)
    feed.tell("n1", "ended", 2.2, name="mpirun", code=143, signal=None)
    feed.close()
    first = feed.job.first_failure

    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 3)
    assert (first.rank, first.node, first.exit_code, first.tied) == (2, "n2", 3, ())
    assert first.lines == ("one", "two", "last words")


def test_within_the_clocks_uncertainty_a_victim_is_not_the_culprit():
    feed = Feed()
    feed.start_all()
    feed.made("n1", "connected", uncertainty=0.01)
    feed.made("n2", "connected", uncertainty=0.01)
    feed.exit(0, None, 15, at=2.0)
    feed.exit(2, 3, at=2.015)

    assert feed.job.first_failure.rank == 2


def test_on_one_node_its_own_order_counts():
    feed = Feed()
    feed.start_all()
    feed.exit(0, None, 9, at=2.0)
    feed.exit(1, 1, at=2.001)

    assert (feed.job.first_failure.rank, feed.job.first_failure.tied) == (0, ())


def test_between_ranks_that_fail_too_close_to_tell_it_is_undecided_and_nobody_is_accused():
    feed = Feed()
    feed.start_all()
    feed.exit(0, 4, at=2.0)
    feed.exit(2, 5, at=2.001)
    first = feed.job.first_failure

    assert (first.what, first.rank, first.sure) == ("undecided", None, None)
    assert {one.rank for one in first.between} == {0, 2}
    assert first.decides == CLOCKS


def test_where_every_rank_fails_alike_nobody_is_accused_and_the_job_has_their_exit_code():
    feed = Feed()
    feed.start_all()
    for rank in range(4):
        feed.write(rank, "FileNotFoundError: [Errno 2] No such file or directory: 'mesh.dat'\n")
        feed.exit(rank, 3, at=2.0 + rank / 10)
    feed.close()
    first = feed.job.first_failure

    assert (first.what, first.rank, first.node, first.sure) == ("all", None, "", None)
    assert len(first.between) == 3, "some of them, whose output is shown first"
    assert first.sentence == "every rank, each exit 3: nobody is accused"
    assert first.evidence[0].startswith(
        "all 4 ranks failed alike; each: it raised FileNotFoundError"
    )
    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 3)


def test_where_all_were_told_to_end_it_is_said_by_whom():
    feed = Feed()
    feed.start_all()
    feed.write(-1, "slurmstepd: error: *** JOB 91 ON n1 CANCELLED AT 10:00 DUE TO PREEMPTION ***\n")
    for rank in range(4):
        feed.write(rank, f"[rank: {rank}] Received SIGTERM: 15\n")
        feed.exit(rank, None, 15, at=2.0 + rank / 100)
    feed.tell("n1", "ended", 2.2, name="mpirun", code=1, signal=None)
    feed.close()
    first = feed.job.first_failure

    assert (first.what, first.rank, first.who) == ("scheduler", None, "the scheduler")
    assert first.explained[0].means == "Slurm ended the job for one of higher priority"
    assert first.sentence.startswith("the scheduler, it ended the job: slurmstepd: error: ***")
    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 1)


def test_a_failure_that_is_told_late_still_comes_first():
    feed = Feed()
    feed.start_all()
    feed.exit(0, 1, at=5.0)
    feed.exit(2, 7, at=2.0)

    assert feed.job.first_failure.rank == 2


def test_a_launcher_that_fails_alone_is_the_failure():
    feed = Feed()
    chunk = Chunk("t-1", "n1", -1, "err", 0, 1.5, b"no such program\n")
    feed.jobs.apply(chunk)
    feed.tell("n1", "ended", 2.0, name="mpirun", code=213, signal=None)
    feed.close()
    first = feed.job.first_failure

    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 213)
    assert (first.rank, first.node, first.lines) == (None, "n1", ("no such program",))


def test_what_ends_after_a_cancel_is_cancelled():
    feed = Feed()
    feed.start_all()
    feed.tell("n1", "cancel", 2.0, grace=1)
    feed.tell("n2", "cancel", 2.0, grace=1)
    for rank in range(4):
        feed.exit(rank, None, 15, at=2.5)
    feed.close()

    assert feed.job.state is State.CANCELLED
    assert {rank.state for rank in feed.job.ranks} == {State.CANCELLED}
    assert feed.job.first_failure is None


def test_a_lost_node_that_knows_nothing_any_more_is_no_failure_of_a_job_that_was_cancelled():
    feed = Feed()
    feed.start_all()
    lost = feed.job
    feed.made("n1", "lost", 1.5, why="its run folder is gone")
    assert feed.job.first_failure.what == "node"
    kept = replace(lost, first_failure=feed.job.first_failure)
    again = Feed()
    again.jobs.restore(kept, seen={"n1": 1, "n2": 1})
    for rank in (2, 3):
        again.tell("n2", "started", rank=rank, pid=10 + rank)
    again.tell("n2", "cancel", 2.0, grace=1)
    for rank in (2, 3):
        again.exit(rank, None, 15, at=2.5)
    again.tell("n2", "closed", 3.0)
    again.made("n1", "not started", 6.0, why="no run folder")

    assert (again.job.state, again.job.first_failure) == (State.CANCELLED, None)


def test_ranks_that_save_their_state_and_report_success_were_cancelled_all_the_same():
    feed = Feed()
    feed.start_all()
    for node in ("n1", "n2"):
        feed.tell(node, "cancel", 2.0, grace=1)
    for rank in range(4):
        feed.exit(rank, 0, at=2.5)
    feed.close()

    assert (feed.job.state, feed.job.exit_code) == (State.CANCELLED, None)
    assert {(rank.state, rank.exit_code) for rank in feed.job.ranks} == {(State.DONE, 0)}


def test_a_job_that_was_over_before_the_cancel_is_done():
    feed = Feed()
    feed.start_all()
    for rank in range(4):
        feed.exit(rank, 0, at=1.9)
    for node in ("n1", "n2"):
        feed.tell(node, "cancel", 2.0, grace=1)
    feed.close()

    assert (feed.job.state, feed.job.exit_code) == (State.DONE, 0)


def test_a_failure_before_the_cancel_makes_a_failed_job():
    feed = Feed()
    feed.start_all()
    feed.exit(2, 3, at=1.5)
    feed.tell("n1", "cancel", 2.0, grace=1)
    for rank in (0, 1, 3):
        feed.exit(rank, None, 15, at=2.5)
    feed.close()

    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 3)


def test_ranks_that_each_believed_to_be_alone_make_a_failed_job():
    spec = JobSpec(name="t", launch=Launch.MPI, command=("a",))
    feed = Feed(replace(PLAN, spec=spec))
    feed.start_all()
    for rank in range(4):
        feed.write(rank, "rank 0 of 1\n")
        feed.exit(rank)
    feed.close()

    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 1)
    assert feed.job.first_failure.what == "job"
    assert "alone" in feed.job.first_failure.explained[0].means


def test_what_a_failed_rank_said_comes_with_its_end():
    feed = Feed()
    feed.start_all()
    said = ["Traceback (most recent call last):", "KeyError: \x1b]0;x\x07'lr'"]
    feed.tell("n2", "exited", 2.0, rank=2, code=1, signal=None, said=said)
    feed.exit(0, None, 15, at=2.1)

    assert feed.job.first_failure.evidence[0] == "it raised KeyError: 'lr'"
    assert feed.job.first_failure.lines == (said[0], "KeyError: 'lr'")


@pytest.mark.long
def test_of_many_ranks_that_fail_at_once_each_end_is_judged_when_it_is_new(monkeypatch):
    half = 128
    nodes = (
        NodePlan("t-1", "n1", tuple(range(half))),
        NodePlan("t-1", "n2", tuple(range(half, 2 * half))),
    )
    feed, judged = Feed(replace(PLAN, nodes=nodes)), list[int]()

    def count(end, *_):
        judged.append(end.rank)

    monkeypatch.setattr(ends, "_RULES", (count, *ends._RULES))
    ranks = range(2 * half)
    for rank in ranks:
        feed.tell(nodes[rank // half].node, "started", rank=rank, pid=rank + 1)
    for rank in ranks:
        feed.tell(nodes[rank // half].node, "exited", 2.0, rank=rank, code=3, said=["it failed"])
        assert feed.job.first_failure is not None

    # Each once as it runs, before and after the first has failed, and once as it has ended.
    assert len(judged) <= 3 * len(ranks)


def test_a_node_that_was_lost_before_corrects_the_answer():
    feed = Feed()
    feed.start_all()
    feed.tell(
        "n1",
        "exited",
        10.0,
        rank=1,
        code=14,
        signal=None,
        said=["Connection reset by peer"],
    )
    before = feed.job.first_failure
    feed.made("n2", "lost", 24.0, why="no route", heard=9.0)
    after = feed.job.first_failure

    assert (before.rank, before.settled) == (1, False)
    assert (after.what, after.node, after.at) == ("node", "n2", 9.0)


def stopped_for_a_lost_node() -> Feed:
    """A job whose node n2 was lost: what ran on n1 was ended."""
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", 24.0, why="no route", heard=9.0)
    feed.tell("n1", "cancel", 34.0, grace=1, by="abort")
    for rank in (0, 1):
        feed.exit(rank, None, 15, at=34.5)
    feed.tell("n1", "closed", 35.0)
    return feed


def test_a_lost_node_that_is_asked_once_more_went_away_when_it_did():
    feed = stopped_for_a_lost_node()
    feed.jobs.cancelled("t-1", CancelReport("t-1", State.LOST, (), {"n2": "no answer"}), 9.0)
    before = feed.job
    feed.made("n2", "lost", 60.0, why="refused")

    assert feed.job == before
    assert before.first_failure.at == 9.0


def test_a_node_that_is_back_in_time_to_be_stopped_stays_what_failed_first():
    feed = stopped_for_a_lost_node()
    feed.tell("n1", "ended", 34.6, name="mpirun", code=1, signal=None, said=["Terminated"])
    feed.made("n2", "connected", 50.0)
    for rank in (2, 3):
        feed.exit(rank, None, 15, at=50.5)
    feed.tell("n2", "closed", 51.0)
    feed.jobs.cancelled("t-1", CancelReport("t-1", State.CANCELLED), 9.0)

    first = feed.job.first_failure
    assert (feed.job.state, first.what, first.node, first.at) == (State.FAILED, "node", "n2", 9.0)


def test_a_job_that_is_stopped_for_a_lost_node_has_failed_and_was_not_cancelled():
    feed = stopped_for_a_lost_node()
    report = CancelReport("t-1", State.LOST, (), {"n2": "no answer"})
    feed.jobs.cancelled("t-1", report, 9.0)

    assert (feed.job.state, feed.job.exit_code) == (State.FAILED, 1)
    assert feed.job.first_failure.what == "node"


def test_a_rank_that_ends_a_moment_before_the_record_of_the_cancel_was_cancelled():
    feed = Feed()
    feed.start_all()
    feed.tell("n1", "cancel", 2.0, grace=1)
    feed.exit(2, None, 15, at=1.99)
    feed.tell("n2", "cancel", 2.01, grace=1)
    feed.close()

    assert feed.job.state is State.CANCELLED


def test_a_supervisor_that_is_gone_is_blamed_and_not_its_ranks():
    feed = Feed()
    feed.start_all()
    feed.tell("n1", "trouble", 5.0, text="the supervisor is gone", gone=4.5)
    feed.tell("n1", "closed", 5.0)

    first = feed.job.first_failure
    assert (first.what, first.name, first.node) == ("launcher", "supervisor", "n1")


def test_a_lost_node_loses_its_ranks_until_it_is_back():
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", 5.0, why="no route")
    lost = [rank.state for rank in feed.job.ranks]
    feed.made("n2", "connected", 33.0)

    assert lost == [State.RUNNING, State.RUNNING, State.LOST, State.LOST]
    assert [rank.state for rank in feed.job.ranks] == [State.RUNNING] * 4
    assert feed.job.troubles == ()


def test_a_cancelled_job_does_not_wait_for_a_dead_node():
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", why="gone")
    feed.tell("n1", "cancel", 2.0, grace=1)
    feed.exit(0, None, 15, at=2.5)
    feed.exit(1, None, 15, at=2.5)
    feed.tell("n1", "closed", 3.0)
    feed.jobs.cancelled("t-1", CancelReport("t-1", State.LOST, (), {"n2": "no answer"}), 9.0)

    assert feed.job.state.final
    assert "n2: not verified: no answer" in feed.job.troubles


def test_a_second_cancel_that_finds_nothing_takes_back_that_a_node_was_not_verified():
    feed = Feed()
    feed.start_all()
    feed.made("n2", "lost", why="gone")
    for rank in (0, 1):
        feed.exit(rank, None, 15)
    feed.tell("n1", "closed", 3.0)
    feed.jobs.cancelled("t-1", CancelReport("t-1", State.LOST, (), {"n2": "no answer"}), 9.0)
    kept = feed.job
    assert [rank.state for rank in kept.ranks[2:]] == [State.LOST] * 2
    assert kept.unproven == ("n2",)

    later = Jobs()
    later.restore(kept)
    later.cancelled("t-1", CancelReport("t-1", State.CANCELLED), 19.0)

    assert {rank.state for rank in later.job("t-1").ranks[2:]} == {State.CANCELLED}
    assert later.job("t-1").troubles[-1] == "n2: was asked again: nothing of the job is left there"
    assert not any("does not answer" in text for text in later.job("t-1").troubles)
    assert later.job("t-1").unproven == ()

    later.cancelled("t-1", CancelReport("t-1", State.LOST, (), {"n2": "no answer"}), 29.0)
    assert later.job("t-1").unproven == ("n2",)


def test_an_event_told_twice_counts_once():
    feed = Feed()
    feed.start_all()
    event = feed.exit(0, 3)
    feed.tell("n1", "started", 3.0, rank=0, pid=99)
    feed.jobs.apply(event)

    assert feed.job.ranks[0].state is State.RUNNING


def test_a_node_cannot_speak_for_the_ranks_of_another():
    feed = Feed()
    feed.start_all()
    with pytest.raises(EventError, match="`exited` of rank 3, which does not run there"):
        planned_event(PLAN, "n1", "exited", 2.0, seq=9, rank=3, code=1)
    feed.jobs.apply(Chunk("t-1", "n1", 3, "out", 0, 1.0, b"fake\n"))

    assert feed.job.ranks[3].state is State.RUNNING
    assert len(feed.jobs.log("t-1", 3).lines) == 0


def test_a_restored_job_is_told_again_from_the_beginning():
    feed = Feed()
    feed.start_all()
    feed.exit(0, 3)
    again = Feed()
    again.jobs = Jobs()
    again.jobs.restore(feed.job)
    assert again.job.first_failure.rank == 0
    again.start_all()
    again.exit(0, 0)

    assert [rank.state for rank in again.job.ranks][:2] == [State.DONE, State.RUNNING]
    assert again.job.first_failure is None


def test_changes_are_handed_over_once():
    feed = Feed()
    first = feed.jobs.take_changes()
    second = feed.jobs.take_changes()
    feed.start_all()

    assert (first, second) == (frozenset({"t-1"}), frozenset())
    assert feed.jobs.take_changes() == frozenset({"t-1"})


def test_a_job_is_found_by_what_its_id_begins_with():
    feed = Feed()

    assert feed.jobs.find("t").id == "t-1"
    with pytest.raises(UnknownJobError, match="no job `x`"):
        feed.jobs.find("x")


def test_a_name_means_the_job_of_the_user_not_a_later_run_of_a_study_or_swap_proof():
    feed = Feed()
    spec = JobSpec(name="t", launch=Launch.PLAIN, command=("x",), part_of="w1122-1")
    feed.jobs.add(replace(PLAN, job="run-of-a-proof", spec=spec), 200.0)

    assert feed.jobs.find("t").id == "t-1"
    assert feed.jobs.find("run-of-a-proof").id == "run-of-a-proof"


def test_a_tail_gives_the_last_line_of_a_rank_nobody_watches():
    feed = Feed()
    feed.jobs.apply(Tail("t-1", "n2", 2, "out", 900, 12, "step 12\x1b[2J", 4.0))

    assert (feed.job.ranks[2].last_line, feed.job.ranks[2].heard) == ("step 12", 4.0)


def test_a_job_that_could_not_be_started_is_failed_and_says_why():
    feed = Feed()

    job = feed.jobs.refused("t-1", "n2: no route to host")

    assert job.state is State.FAILED
    assert job.troubles == ("n2: no route to host",)
    assert job.not_started == "n2: no route to host"
    assert job.first_failure is None
    assert job.exit_code == 1


def test_a_launch_that_was_interrupted_says_so_also_where_nodes_were_told_to_end_it():
    feed = Feed()
    for node in ("n1", "n2"):
        feed.tell(node, "cancel", grace=0.0, by="abort")
        feed.tell(node, "closed")

    job = feed.jobs.refused("t-1", "its launch was interrupted")

    assert {rank.state for rank in job.ranks} == {State.CANCELLED}
    assert (job.state, job.not_started) == (State.FAILED, "its launch was interrupted")


def test_a_job_that_no_node_knows_was_never_started():
    feed = Feed()

    feed.made("n1", "not started", why="job t-1 has no run folder on node n1")
    feed.made("n2", "not started", why="job t-1 has no run folder on node n2")

    assert feed.job.state is State.FAILED
    assert feed.job.troubles == ("it was never started: none of its nodes knows it",)
    assert feed.job.first_failure is None


def test_a_job_whose_nodes_forgot_it_after_it_ran_is_not_called_unstarted():
    feed = Feed()
    feed.tell("n1", "ready")

    for node in ("n1", "n2"):
        feed.made(node, "not started", why=f"has no run folder on node {node}")

    assert not any("never started" in text for text in feed.job.troubles)


def test_notes_that_another_console_wrote_stand_beside_our_own():
    killed, hot = (
        NodeNote(at=2.0, node=node, level=Level.BAD, check=check, device="", text=check)
        for node, check in (("n1", "kernel.oom"), ("n2", "gpu.hot"))
    )
    ours, theirs = Feed(), Feed()
    for feed, notes in ((ours, (killed,)), (theirs, (killed, hot))):
        feed.start_all()
        for rank in range(4):
            feed.exit(rank)
        feed.close()
        feed.jobs.set_node_notes("t-1", notes)

    ours.jobs.tell(theirs.job)

    assert ours.job.node_notes == (killed, hot)
    # What the operator here has acknowledged since stays away.
    ours.jobs.set_node_notes("t-1", (hot,))
    ours.jobs.tell(theirs.job)
    assert ours.job.node_notes == (hot,)


def test_a_restored_job_that_its_nodes_have_lost_ended_when_its_ranks_did():
    first = Feed()
    first.tell("n1", "ready")
    first.tell("n1", "started", rank=0)
    second = Feed()
    second.jobs.restore(first.job, seen={})

    for node in ("n1", "n2"):
        second.made(node, "closed", at=300.0, unstarted=f"has no run folder on node {node}")

    assert second.job.state.final
    assert second.job.ended == 300.0


def test_a_node_cannot_say_by_itself_that_a_job_was_never_started():
    feed = Feed()

    feed.tell("n1", "closed", unstarted="has no run folder")
    feed.tell("n2", "closed", unstarted="has no run folder")

    assert not feed.job.troubles


def ended_but_for_its_output():
    feed = Feed()
    feed.start_all()
    for rank in range(4):
        feed.exit(rank)
    feed.tell("n2", "closed", 3.0)
    feed.made("n1", "closing", 3.0)
    return feed


def test_a_job_is_over_while_its_output_is_still_coming():
    feed = ended_but_for_its_output()
    waiting = feed.job
    feed.tell("n1", "closed", 3.0)

    assert (waiting.state, waiting.output_coming) == (State.DONE, True)
    assert (feed.job.state, feed.job.output_coming) == (State.DONE, False)


def test_a_job_is_not_over_while_a_node_tells_again_what_was_known():
    feed = ended_but_for_its_output()
    jobs = Jobs()
    running = Feed()
    running.start_all()
    jobs.restore(running.job, seen={"n1": 9, "n2": 9})
    feed.jobs = jobs

    feed.made("n1", "closing", 3.0)
    feed.made("n2", "closing", 3.0)

    assert feed.job.state is State.RUNNING


def test_a_node_that_goes_away_after_it_has_told_all_is_no_trouble_of_the_job():
    feed = Feed()
    feed.start_all()
    for rank in range(4):
        feed.exit(rank)
    feed.close()

    feed.made("n1", "lost", 30.0, why="no route to host")

    assert feed.job.troubles == ()
    assert feed.job.state is State.DONE


def test_a_node_that_answers_again_is_no_longer_said_to_be_mute():
    feed = Feed()
    feed.start_all()
    feed.made("n1", "lost", 50.0, why="no route to host", heard=30.0)
    assert feed.job.troubles == ("n1: does not answer: no route to host",)

    feed.made("n1", "connected", 61.0)

    assert feed.job.troubles == ()


def test_output_that_a_lost_node_did_not_send_is_said_to_be_there():
    feed = ended_but_for_its_output()

    feed.made("n1", "lost", 30.0, why="does not answer")

    assert feed.job.troubles == ("n1: the rest of the output is on the node",)
    assert feed.job.state is State.DONE


def test_the_words_of_each_rank_are_read_as_it_ends_and_not_all_at_the_verdict():
    feed = Feed()
    feed.start_all()
    for rank in range(4):
        feed.tell(
            f"n{rank // 2 + 1}",
            "exited",
            2.0,
            rank=rank,
            code=3,
            said=[f"RuntimeError: {rank} of 4 gave up"],
        )
    read = ends._reasons.cache_info().misses

    assert feed.job.first_failure is not None
    assert ends._reasons.cache_info().misses == read


def test_a_rank_is_not_shown_to_end_before_it_began_when_a_clock_is_set_back():
    feed = Feed()
    feed.start_all()
    feed.tell("n1", "started", 500.0, rank=0, pid=9)
    feed.exit(0, at=20.0)

    job = feed.jobs.job("t-1")
    (shape,) = [one for one in job_shape(job)["ranks"] if one["rank"] == 0]
    assert (shape["started"], shape["ended"]) == (500.0, 500.0)
    assert job.ranks[0].ended == 20.0  # who failed first goes by what the nodes wrote


def test_a_job_whose_scheduler_has_chosen_no_node_is_on_none() -> None:
    login = NodePlan("t-1", "login", (0, 1), (ProcessPlan("sbatch", ("sbatch",)),), elsewhere=True)
    feed = Feed(replace(PLAN, backend="slurm", nodes=(login,)))
    feed.seq["login"] = 0
    job = feed.jobs.job("t-1")
    assert job.nodes == ()
    assert " on " not in job_sentence(job)

    feed.tell("login", "started", rank=0, pid=10, host="n7")

    assert feed.jobs.job("t-1").nodes == ("n7",)
    assert "running on n7; ranks: 1 pending, 1 running" in job_sentence(feed.jobs.job("t-1"))


def test_progress_is_read_from_output_that_comes_after_the_end_of_its_rank() -> None:
    feed = Feed()
    feed.start_all()
    feed.exit(0, at=3.0)
    feed.jobs.apply(Chunk("t-1", "n1", 0, "out", 0, 2.99, b"begin\nstep 3 of 4 loss 2.5\n"))

    progress = feed.jobs.job("t-1").progress
    assert progress is not None
    assert (progress.step, progress.steps) == (3, 4)


def test_of_a_flood_only_some_lines_are_searched_for_progress_but_the_last_when_the_rank_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []
    take = ProgressReader.take

    def noted(self: ProgressReader, line: str, rank: int, at: float) -> bool:
        searched.append(line)
        return take(self, line, rank, at)

    monkeypatch.setattr(ProgressReader, "take", noted)
    feed = Feed()
    feed.start_all()
    offset = 0
    for turn in range(50):
        data = b"".join(b"step %d loss 2.5\n" % (turn * 100 + n) for n in range(100))
        feed.jobs.apply(Chunk("t-1", "n1", 0, "out", offset, 2 + turn / 100, data))
        offset += len(data)
    during = feed.jobs.job("t-1").progress

    feed.exit(0, at=3.0)
    after = feed.jobs.job("t-1").progress

    assert len(searched) < 100
    assert during is not None
    assert during.step is not None
    assert during.step >= 3999
    assert after is not None
    assert after.step == 4999


@pytest.mark.parametrize("aborted", [False, True])
def test_a_node_that_was_restarted_is_the_cause_and_says_so(aborted: bool):
    feed = Feed()
    feed.start_all()
    if aborted:
        feed.made("n2", "lost", 9.0, why="no route", heard=4.8)
        feed.tell("n1", "cancel", 12.0, grace=1, by="abort")
        feed.exit(0, None, 15, at=12.1)
        feed.exit(1, None, 15, at=12.1)
        feed.made("n2", "connected", 33.0)
    feed.tell("n2", "gone", 35.0, text="restarted", last=4.5, restarted=True)
    feed.close()

    first = feed.job.first_failure
    assert (first.what, first.node, first.at) == ("node", "n2", 4.5)
    assert first.sentence.startswith("node n2, was restarted while the job ran")
    assert "was restarted" in first.explained[0].means
