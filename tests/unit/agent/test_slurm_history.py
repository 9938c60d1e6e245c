"""Jobs that ended, as Slurm's accounting tells them."""

from rankdeck_agent.schedulers.slurm.ended_jobs import NO_HISTORY, _sentence, ended_rows

ROWS = """\
7|7|COMPLETED|0:0|None|1795358381|1795358382|1795358390|n[1-2]|debug|ann|2|8|train|with|bars
7.batch|7.batch|COMPLETED|0:0||1795358381|1795358382|1795358390|n1||||4|batch
9|8_3|FAILED|7:0|None|1795358381|1795358382|1795358400|n1|debug|bob|1|4|x
10|10|CANCELLED by 1001|0:15|None|1795358381|1795358382|1795358399|None assigned|debug|bob|1|4|\x1b[31mred
11|11|TIMEOUT|0:0|TimeLimit|1795358381|1795358382|1795358398|n2|debug||x|y|z
12|12|RUNNING|0:0|None|1795358381|1795358382|Unknown|n1|debug|ann|1|4|runs
a banner | of the site
13|13|FAILED
"""


def test_the_newest_comes_first_and_what_is_not_over_is_left_out() -> None:
    rows = list(ended_rows(ROWS))

    assert [row["id"] for row in rows] == ["9", "10", "11", "7"]
    failed, cancelled, late, done = rows
    assert (failed["shown"], failed["user"], failed["code"], failed["nodes"]) == ("8_3", "bob", 7, "n1")  # fmt: skip
    assert "1001" in cancelled["text"]
    assert "\x1b" not in cancelled["name"]
    assert (late["text"], late["user"], late["count"]) == ("its time limit was over", "", 0)
    assert (done["name"], done["count"], done["cpus"], done["code"]) == ("train|with|bars", 2, 8, 0)
    assert (done["start"], done["end"]) == (1795358382.0, 1795358390.0)


def test_why_there_is_no_history_is_one_sentence() -> None:
    assert _sentence("Slurm accounting storage is disabled") == NO_HISTORY
    assert (
        _sentence("Connection refused") == "Slurm's accounting does not answer: Connection refused"
    )
    assert _sentence("") == ""
