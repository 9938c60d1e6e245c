"""The page of a job: complete, safe to open, without a secret, of a size that a ticket takes."""

import html
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from rankdeck.backends.remote_log import Recording
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import NodeNote, RankState
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk
from rankdeck.prometheus.site_past import JobNumbers
from rankdeck.reports.html import LARGEST
from rankdeck.reports.job import Logs, ReportSource, write_html
from rankdeck.state.fleet import Fleet
from rankdeck.state.history_thread import open_history
from rankdeck.state.job_recorder import MOST_NODES, JobRecorder, node_numbers
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Event, Hello, Sample
from tests.support.browser import assert_self_contained, parsed, rendered
from tests.support.judged_fleet import JudgedFleet
from tests.ui.support.stage import cluster_of, plan_of
from tests.unit.test_history import JOB
from tests.unit.test_report_secrets import FORMS, SECRETS, planted

HOSTILE = (
    "</pre><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&\x1b[2J\x00\u202e"
)
START = 1_700_000_000.0


def page_of(source: ReportSource, recording: Recording, chunks: list[Chunk]) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        logs = Logs(folder / "logs")
        for chunk in chunks:
            logs.take(chunk)
        with (folder / "r.html").open("wb") as file:
            write_html(source, recording, logs, file)
        return (folder / "r.html").read_text("utf-8")


def failed(ranks: int, nodes: int) -> ReportSource:
    """A job whose last rank failed after a minute; its nodes were heard every second."""
    plan = plan_of("train-1", nodes, ranks // nodes)
    states = tuple(
        RankState(
            rank=rank, node=node.node, state=State.CANCELLED, signal=15, started=START + 2, ended=START + 60
        )
        for node in plan.nodes
        for rank in node.ranks
    )  # fmt: skip
    last = replace(states[-1], state=State.FAILED, signal=None, exit_code=3, ended=START + 50)
    first = FirstFailure(
        rank=last.rank, node=last.node, exit_code=3, signal=None, at=START + 50, lines=("last words",)
    )  # fmt: skip
    note = NodeNote(
        at=START + 49, node=last.node, level=Level.BAD, check="kernel.xid", text="Xid 79: it fell off the bus"
    )  # fmt: skip
    job = replace(
        JOB, id="train-1", name="train", plan=plan, ranks=(*states[:-1], last), created=START,
        ended=START + 60, first_failure=first, node_notes=(note,), marks={"ready": START + 1, "started": START + 2},
    )  # fmt: skip
    numbers = [
        {
            "at": START + at, "metrics": ["cpu.used", "gpu.used"], "of": nodes, "simulated": ["gpu"],
            "nodes": {node.node: [50.0 + at / 2, None if at % 20 else 90.0] for node in plan.nodes},
        }
        for at in range(0, 60, 5)
    ]  # fmt: skip
    return ReportSource(job, (), (), {}, JobNumbers(numbers))


def said(page: str) -> str:
    """All text of the page."""
    return " ".join("".join(parsed(page).itertext()).split())


def test_the_page_says_who_failed_first_when_and_with_what_around_it() -> None:
    source = failed(8, 2)
    chunks = [
        Chunk("train-1", "node01", rank, "out", 0, START, b"step 1\n") for rank in range(8)
    ] + [Chunk("train-1", "node02", 7, "err", 0, START, b"CUDA error\n")]

    text = said(page_of(source, Recording((), {"node01": "no route"}), chunks))

    assert "First failure: rank 7 on node02, exit 3" in text
    assert "last words" in text
    assert "node02: Xid 79: it fell off the bus" in text
    assert "1 s before the failure" in text
    assert "[all] step 1" in text
    assert "[7] CUDA error" in text
    assert "running 58 s" in text
    assert "node01: no route" in text
    assert "rank 7: node02, failed, exit 3" in text
    assert "GPU, all of a node · SIMULATED" in text
    assert "CPU · SIMULATED" not in text
    assert "export RANKDECK_JOB=train-1 RANKDECK_NODE=node01" in text


def test_who_was_pulled_down_is_not_drawn_as_who_failed_and_every_phase_can_be_read() -> None:
    source = failed(4, 2)
    first = source.job.first_failure
    assert first is not None
    states = tuple(replace(rank, state=State.FAILED) for rank in source.job.ranks)
    job = replace(
        source.job,
        ranks=states,
        first_failure=replace(first, victims=(0, 1, 2)),
        marks={"ready": START + 20, "started": START + 40},
    )

    page = page_of(replace(source, job=job), Recording((), {}), [])

    assert "rank 0: node01, ended by it, signal 15" in said(page)
    assert "rank 3: node02, failed, exit 3" in said(page)
    assert page.count('class="slow"') == 3
    pale = [rect for rect in parsed(page).iter() if rect.get("class") in ("alt", "none")]
    assert len(pale) > 1
    dark = {one.text for one in parsed(page).iter() if one.get("class") == "ink"}
    assert {"copy 20 s", "start 20 s", "running 20 s"} <= dark


def test_the_page_says_where_its_numbers_come_from_and_what_is_missing() -> None:
    told = failed(8, 2)
    site = replace(told.numbers, source="prom:9090, series of rankdeck", gap=5.5)
    source = replace(told, numbers=site)
    trouble = "The site's metrics are not in it: it is down."
    broken = replace(told, numbers=replace(told.numbers, trouble=trouble))

    text = said(page_of(source, Recording((), {}), []))
    other = said(page_of(broken, Recording((), {}), []))

    assert "Source: prom:9090, series of rankdeck." in text
    assert "Source: what consoles heard" in other
    assert "are not in it: it is down." in other


def test_numbers_that_nobody_heard_are_not_drawn_as_zero() -> None:
    source = replace(failed(8, 2), numbers=JobNumbers())

    text = said(page_of(source, Recording((), {}), []))

    assert "there are no numbers" in text
    assert "Nothing that was written could be read." in text


def hostile_page() -> str:
    source, recording, chunks = planted(HOSTILE, "unrelated")
    job = replace(source.job, name=HOSTILE, cluster=HOSTILE)
    return page_of(replace(source, job=job), recording, chunks)


def test_what_nodes_and_users_wrote_is_text_and_nothing_else() -> None:
    page = hostile_page()

    assert_self_contained(page)
    assert "default-src 'none'" in html.unescape(page)
    assert "<img src=x onerror=alert(1)>" in said(page)


@pytest.mark.long
def test_a_real_browser_shows_it_and_runs_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(hostile_page(), "utf-8")

    shown = rendered(file)

    assert "<title>taken</title>" not in shown
    assert "What happened" in shown
    assert "<svg" in shown
    assert "<script" not in shown


@settings(max_examples=30, deadline=None)
@given(SECRETS)
def test_the_value_of_a_secret_variable_is_nowhere_on_the_page(value: str) -> None:
    page = page_of(*planted(value, value))

    assert value not in html.unescape(page)
    assert "before" in page


@pytest.mark.parametrize("form", FORMS)
def test_what_has_the_form_of_a_secret_is_nowhere_on_the_page(form: str) -> None:
    text, secret = FORMS[form]

    page = page_of(*planted(text, "unrelated"))

    assert secret not in html.unescape(page)
    assert "after" in page


@pytest.mark.long
def test_a_page_of_many_ranks_and_much_output_stays_small() -> None:
    source = failed(4096, 1024)
    noise = b"".join(b"%x line that is like no other %d\n" % (hash(n), n) for n in range(30_000))
    chunks = [Chunk("train-1", "node01", rank, "out", 0, START, noise) for rank in (0, 4095)]

    page = page_of(source, Recording((), {}), chunks)

    assert len(page) < 12 * LARGEST
    assert_self_contained(page)
    assert "960 more nodes" in said(page)


# ---- numbers of nodes are kept while a job runs


def heard(count: int, bad: str = "") -> Fleet:
    made = JudgedFleet(cluster_of(count))
    for node in made.nodes():
        made.apply(node.name, Hello(node.name, True, 1.0))
        made.apply(node.name, Sample(1, 1.0, {"cpu.used": {"": 12.3456}, "mem.used": {"": 40}}))
        if node.name == bad:
            made.apply(node.name, Event(1.0, "bad", "kernel.xid", "Xid 79", "gpu0"))
    return made


async def test_numbers_are_kept_each_second_at_first_then_more_seldom(tmp_path: Path) -> None:
    jobs = Jobs()
    jobs.add(plan_of("train-1", 2, 1), START)
    async with open_history(tmp_path / "h.db") as history:
        recorder = JobRecorder(history, heard(2), "c")
        for second in range(1000):
            recorder.save(jobs.job("train-1"), START + second)
        await history.write()
        rows = await history.ask(lambda kept: kept.numbers("train-1"))

    assert [row["at"] - START for row in rows[:50]] == [*range(50)]
    assert 100 < len(rows) < 400
    assert rows[-1]["at"] > START + 980
    assert rows[0]["metrics"][0] == "cpu.used"
    assert rows[0]["nodes"]["node01"][0] == 12.35


def test_a_node_that_was_never_heard_has_no_numbers() -> None:
    jobs = Jobs()
    jobs.add(plan_of("train-1", 2, 1), START)

    assert node_numbers(Fleet(cluster_of(2)), jobs.job("train-1")) == {}


def test_of_many_nodes_those_that_are_not_ok_are_kept_among_others() -> None:
    jobs = Jobs()
    jobs.add(plan_of("train-1", 300, 1), START)

    kept = node_numbers(heard(300, "node150"), jobs.job("train-1"))

    assert kept["of"] == 300
    assert 30 <= len(kept["nodes"]) <= MOST_NODES
    assert "node150" in kept["nodes"]
