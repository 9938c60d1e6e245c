"""Which orphans are the MPI daemon of the job, without any process."""

from pathlib import Path

from rankdeck_agent.job.mpi_daemons import Daemons
from rankdeck_agent.job.rank_table import RankTable
from rankdeck_agent.wire import NodePlan


def test_a_daemon_in_the_background_is_nothing_that_a_rank_left_over() -> None:
    table = RankTable((0,), daemons={5: "daemon 1"}, had_daemons=True)
    ended: list[str] = []
    daemons = Daemons(
        NodePlan("t-1", "n2", (0,)), Path("absent"), None, table, lambda name, _: ended.append(name)
    )
    assert daemons.left_over([7]) == [7]

    daemons.ended(5, {"code": 0, "signal": None})  # it left another process in the background
    daemons.adopt([7])

    assert daemons.left_over([7, 9]) == [9]
    daemons.settle(0)
    assert ended == ["daemon 1"]
    assert daemons.left_over([7]) == [7], "it has ended: whatever has its number is another one"
