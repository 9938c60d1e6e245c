"""When a supervisor may close, without any process."""

from rankdeck_agent.job.rank_table import RankTable


def test_a_node_closes_when_its_processes_and_started_ranks_have_ended():
    table = RankTable((0, 1), had_processes=True, processes={9: "torchrun"})
    table.started(0, 10, 11)
    assert not table.may_close(0, 0)
    table.processes.clear()
    assert not table.may_close(0, 0)
    table.exited(0)
    assert table.may_close(0, 0)


def test_a_node_that_waits_for_a_daemon_stays_open_until_it_is_told():
    table = RankTable((0,))
    assert not table.may_close(0, 0)
    table.cancelled = True
    assert table.may_close(0, 0)


def test_a_daemon_in_the_background_is_waited_for_while_ranks_may_come():
    table = RankTable((0,), had_daemons=True)
    assert not table.may_close(1000, others=1)
    assert table.may_close(1001, others=0)


def test_what_a_rank_left_behind_holds_the_end_up_for_a_moment_only():
    table = RankTable((0,), had_processes=True)
    table.started(0, 10, 11)
    table.exited(0)
    assert not table.may_close(100, others=1)
    assert table.may_close(102, others=1)


def test_an_exit_is_recorded_once_per_start():
    table = RankTable((0,))
    table.started(0, 10, 11)
    assert table.exited(0)
    assert not table.exited(0)
    table.started(0, 12, 13)
    assert not table.all_exited
    assert table.exited(0)
