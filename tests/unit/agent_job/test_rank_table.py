"""When a supervisor may close, without any process."""

from rankdeck_agent.job.ranks import RankTable


def test_a_node_closes_when_its_processes_and_started_ranks_have_ended():
    tally = RankTable((0, 1), had_processes=True, processes={9: "torchrun"})
    tally.started(0, 10, 11)
    assert not tally.may_close(0, 0)
    tally.processes.clear()
    assert not tally.may_close(0, 0)
    tally.exited(0)
    assert tally.may_close(0, 0)


def test_a_node_that_waits_for_a_daemon_stays_open_until_it_is_told():
    tally = RankTable((0,))
    assert not tally.may_close(0, 0)
    tally.cancelled = True
    assert tally.may_close(0, 0)


def test_a_daemon_in_the_background_is_waited_for_while_ranks_may_come():
    tally = RankTable((0,), had_daemons=True)
    assert not tally.may_close(1000, others=1)
    assert tally.may_close(1001, others=0)


def test_what_a_rank_left_behind_holds_the_end_up_for_a_moment_only():
    tally = RankTable((0,), had_processes=True)
    tally.started(0, 10, 11)
    tally.exited(0)
    assert not tally.may_close(100, others=1)
    assert tally.may_close(102, others=1)


def test_an_exit_is_recorded_once_per_start():
    tally = RankTable((0,))
    tally.started(0, 10, 11)
    assert tally.exited(0)
    assert not tally.exited(0)
    tally.started(0, 12, 13)
    assert not tally.all_exited
    assert tally.exited(0)
