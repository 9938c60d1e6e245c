"""Reports of an acceptance run: page, JSON, JUnit, Prometheus, node lists, matrix."""

import csv
import html
import json
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankdeck.acceptance.command import acceptance_outcome, request_of
from rankdeck.acceptance.heatmap import outcome_headline
from rankdeck.acceptance.planning import stages_of
from rankdeck.acceptance.report_files import report_files, write_reports
from rankdeck.acceptance.report_page import acceptance_page
from rankdeck.acceptance.run import AcceptanceRun, RunState, measured_cells, next_step
from rankdeck.acceptance.values import Answer, Kind, Outcome, Stage, Verdict
from rankdeck.cli.parser import make_parser
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.rules.secrets import Secrets
from rankdeck.values import replace
from tests.support.acceptance_run import (
    Outputs,
    healthy,
    judged,
    made_run,
    names,
    result,
    slow_sender,
)
from tests.support.browser import assert_self_contained, parsed, rendered

HOSTILE = '"><script>document.title="taken"</script>\x1b[2J\u202e]]>&'
NOW = 1_700_000_500.0


def files_of(run: AcceptanceRun, outputs: Outputs | None = None, *secrets: str) -> dict[str, str]:
    known = Secrets([{f"TOKEN_{number}": one for number, one in enumerate(secrets)}])
    return report_files(run, outputs or Outputs(), known, NOW)


def said(page: str) -> str:
    return " ".join("".join(parsed(page).itertext()).split())


def hostile_run() -> AcceptanceRun:
    """Every text of the run is hostile."""
    run = made_run(4, slow_sender("n2"))
    return replace(
        run, cluster=HOSTILE, operator=HOSTILE, baseline=HOSTILE, changed=HOSTILE, notes=(HOSTILE,),
        results=tuple(replace(one, text=HOSTILE) for one in run.results),
        identity={"n1": {HOSTILE: HOSTILE}}, differing={"n1": HOSTILE},
    )  # fmt: skip


# ---- page


def test_the_page_begins_with_the_outcome_and_the_sentences() -> None:
    page = files_of(made_run(8, slow_sender("n3")))["report.html"]

    text = said(page)
    assert "accepted except n3 (not good), n99 (left out)" in text
    assert "n3 sends at 5.68 Gb/s (others 9.42 Gb/s) with 7 of 7 partners" in text
    assert "n2: its driver is 550.90, 7 of 8 have 570.12" in text
    assert "Changed since: driver 550.90 → 570.12 on n1" in text
    assert "busy: job 4711 of alice" in text
    assert "ssh n3 iperf3 -c n" in text
    assert "9.41 Gbits/sec" in text
    assert_self_contained(page)


def cells_of(page: str) -> dict[str, int]:
    """How many cells of heat maps have which colour."""
    found: dict[str, int] = {}
    for one in parsed(page).iter("rect"):
        kind = one.get("class", "")
        found[kind] = found.get(kind, 0) + 1
    return found


PROVED = (
    (Verdict(kind=Kind.SENDS, subject="n3", answer=Answer.SLOW, sentence="", nodes=("n3",), recipe="iperf3"),
     "swap the cable of n3 with that of n1, then", ("n3", "n1", "n2", "n4"), (Stage.PAIRS, Stage.CONFIRM)),
    (Verdict(kind=Kind.PAIR, subject="n2–n6", answer=Answer.SLOW, sentence="", ends=("n2", "n6")),
     "put n2 on another switch port, then", ("n2", "n6", "n1", "n4"), (Stage.PAIRS, Stage.CONFIRM)),
    (Verdict(kind=Kind.HCA, subject="n3", answer=Answer.SLOW, sentence="", nodes=("n3",)),
     "swap the cable of this port with that of another port of n3, then", ("n3", "n1", "n2", "n4"), (Stage.PAIRS, Stage.CONFIRM)),
    (Verdict(kind=Kind.NODE, subject="n3", answer=Answer.WRONG_VALUES, sentence="", nodes=("n3",)),
     "after the repair:", ("n3", "n1", "n2", "n4"), (Stage.PAIRS, Stage.CONFIRM)),
    (Verdict(kind=Kind.NODE, subject="n3", answer=Answer.SLOW, sentence="", nodes=("n3",), stage=Stage.SINGLE, recipe="sysbench"),
     "after the repair:", ("n3", "n1", "n2", "n4"), (Stage.SINGLE,)),
    (Verdict(kind=Kind.UPLINK, subject="leaf A", answer=Answer.SLOW, sentence="", leaves=("A",)),
     "after the repair:", (), (Stage.PAIRS, Stage.CONFIRM, Stage.INSIDE, Stage.CROSSING, Stage.ALONE)),
    (Verdict(kind=Kind.SCALE, subject="soak", answer=Answer.UNSTEADY, sentence="", stage=Stage.SOAK),
     "while nobody else works there:", (), (Stage.GROUPS, Stage.SOAK)),
)  # fmt: skip


@pytest.mark.parametrize(("verdict", "begins", "nodes", "stages"), PROVED)
def test_with_a_verdict_stands_the_one_command_that_shows_whether_a_repair_helped(
    verdict: Verdict, begins: str, nodes: tuple[str, ...], stages: tuple[Stage, ...]
) -> None:
    run = made_run(8, slow_sender("n3"))
    run = replace(
        run,
        plan=replace(run.plan, soak=1800.0, seconds=2.0),
        verb="rankdeck accept -c '/sites/hall 2.yaml'",
    )
    words, command, _ = next_step(run, verdict).split("`")
    cluster = Cluster(name="lab", nodes=tuple(Node(name=name) for name in names(8)))

    # It is read by the program itself.
    options = make_parser().parse_args(shlex.split(command)[1:])
    request = request_of(cluster, options)

    assert (words.strip(), options.cluster) == (begins, "/sites/hall 2.yaml")
    assert ",".join(nodes) in command
    assert ({*request.nodes}, stages_of(request)) == ({*nodes}, stages)
    assert request.recipes == ((verdict.recipe,) if verdict.recipe else ())
    assert (request.seconds, request.soak) == (2, 1800.0 if Stage.SOAK in stages else 0.0)


def test_while_a_run_goes_on_nothing_is_to_be_swapped() -> None:
    run = replace(made_run(8, slow_sender("n3")), progress=RunState.RUNNING)

    assert [next_step(run, one) for one in run.verdicts] == [""]


def test_the_heat_map_has_a_cell_a_directed_pair() -> None:
    page = files_of(made_run(8, slow_sender("n3")))["report.html"]

    assert cells_of(page) == {"good": 49, "slow": 7}
    assert "n3 → n4: 5.658 Gb/s, 60% of the median: slow" in said(page)


def test_three_nodes_are_no_population_and_only_a_far_slower_cell_is_slow() -> None:
    for speed, counted in ((6.5, {"good": 6}), (4.7, {"good": 4, "slow": 2})):
        run = made_run(3, lambda a, b, speed=speed: speed if {a, b} == {"n1", "n2"} else 9.4)
        assert cells_of(files_of(run)["report.html"]) == counted


@pytest.mark.parametrize(
    ("virtual", "counted"),
    [(names(8), {"good": 49, "fair": 7}), (("n3", "n4"), {"good": 49, "fair": 1, "slow": 6})],
)
def test_no_cell_between_nodes_of_one_machine_is_slow(
    virtual: tuple[str, ...], counted: dict[str, int]
) -> None:
    run = made_run(8, slow_sender("n3"))
    run = judged(replace(run, plan=replace(run.plan, virtual=virtual)))

    assert cells_of(files_of(run)["report.html"]) == counted


LEAVES = {f"n{number}": "A" if number < 5 else "B" for number in range(1, 9)}


def narrow(a: str, b: str) -> float | None:
    return (healthy(a, b) or 0.0) * (1.0 if LEAVES[a] == LEAVES[b] else 0.5)


def test_pairs_that_cross_a_narrow_uplink_are_slow_cells_and_the_headline_says_so() -> None:
    run = replace(made_run(8, narrow, LEAVES), progress=RunState.DONE)
    shown = measured_cells(run, "iperf3")

    assert {(LEAVES[a] == LEAVES[b], cell.answer) for (a, b), cell in shown.items()} == {
        (True, Answer.GOOD),
        (False, Answer.SLOW),
    }
    assert {round(cell.share or 0, 1) for cell in shown.values()} == {1.0, 0.5}
    assert outcome_headline(run) == "accepted except leaves A, B (slow), n99 (left out)"


def test_suspects_that_were_not_confirmed_are_named() -> None:
    run = made_run(8, lambda a, b: 2.0 if (a, b) == ("n2", "n6") else healthy(a, b))

    assert "iperf3: suspected and not confirmed: n2→n6." in acceptance_page(run, 0.0)
    printed = acceptance_outcome(run, Cluster(name="lab", nodes=()))
    assert "suspected, and not measured again: n2→n6 (iperf3)" in printed


def test_what_was_not_measured_has_another_colour_than_what_failed() -> None:
    def speed(a: str, b: str) -> float | None:
        return None if (a, b) == ("n1", "n2") else -1.0 if (a, b) == ("n3", "n4") else healthy(a, b)

    page = files_of(made_run(8, speed))["report.html"]

    assert cells_of(page) == {"good": 54, "unknown": 1, "bad": 1}


def test_a_path_that_failed_in_one_run_and_was_full_in_another_is_no_good_cell() -> None:
    run = made_run(8)
    broke = result("n1", "n2", -1.0, stage=Stage.CONFIRM, round=9)
    run = judged(replace(run, results=(*run.results, broke, replace(broke, repeat=1))))

    assert cells_of(files_of(run)["report.html"]) == {"good": 55, "bad": 1}


@pytest.mark.long
def test_a_large_run_has_leaves_against_leaves_and_the_suspects_alone() -> None:
    leaves = {node: f"L{number // 35}" for number, node in enumerate(names(140))}
    page = acceptance_page(made_run(140, slow_sender("n33"), leaves), NOW)

    assert cells_of(page) == {"good": 12, "slow": 4 + 139}
    assert "leaf L0 → L1: median 100%, 35 of 1225 not good" in said(page)
    assert len(page) < 400_000


@pytest.mark.long
def test_what_nodes_said_is_text_on_the_page_and_runs_in_no_browser(tmp_path: Path) -> None:
    page = files_of(hostile_run(), Outputs(f"{HOSTILE}\n" * 3))["report.html"]
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")

    assert_self_contained(page)
    shown = rendered(file)

    assert "<title>taken</title>" not in shown
    assert "<script" not in shown
    assert "Heat map: iperf3" in shown


# ---- secrets


def test_no_secret_is_in_any_file() -> None:
    run = made_run(8, slow_sender("n3"))
    run = replace(
        run, notes=("it said S3cretValue",), results=tuple(replace(one, text="S3cretValue") for one in run.results)
    )  # fmt: skip
    outputs = Outputs("token: S3cretValue and hf_" + "Ab3d" * 8 + "\n")

    for name, text in files_of(run, outputs, "S3cretValue").items():
        plain = html.unescape(text)
        assert "S3cretValue" not in plain, name
        assert "hunter2hunter2" not in plain, name
        assert "hf_Ab3d" not in plain, name


# ---- JSON


def test_the_json_says_everything_and_its_version() -> None:
    report = json.loads(files_of(made_run(8, slow_sender("n3")))["report.json"])

    assert report["version"] == 1
    assert report["accepted"] is False
    assert report["nodes"] == {"good": "n[1-2,4-8]", "bad": "n3", "not-measured": "n99"}
    assert report["answers"]["n3"] == "slow"
    assert report["verdicts"][0]["kind"] == "node, sending"
    assert len(report["results"]) == 8 + 8 * 7 * 2
    one = report["results"][8]
    assert (one["stage"], one["outcome"], one["unit"]) == ("pairs", "measured", "Gb/s")
    assert one["raw"] == "n1-n8.out"
    assert report["plan"]["seed"] == 7
    assert report["populations"]["iperf3"]["all"]["count"] == 56


def test_every_field_of_the_json_is_in_the_documentation() -> None:
    report = json.loads(files_of(made_run(4))["report.json"])
    page = (Path(__file__).parents[2] / "docs/acceptance.md").read_text()

    names_ = {*report, *report["results"][0], *report["stages"][0]}
    assert [name for name in sorted(names_) if f"`{name}`" not in page] == []


# ---- JUnit

ATTRIBUTES = {
    "testsuites": ({"name"}, {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
    ),
    "testcase": ({"name"}, {"name", "time", "classname"}),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
    "system-out": (set(), set()),
}
"""Element -> attributes that it must have, and those that it may have: what
Jenkins' and GitLab's readers agree on.
"""


def junit(run: AcceptanceRun) -> ET.Element:
    """The JUnit file, checked for what readers of it ask."""
    root = ET.fromstring(files_of(run)["junit.xml"].partition("\n")[2])
    for one in root.iter():
        must, may = ATTRIBUTES[one.tag]
        assert must <= {*one.attrib} <= may, one.tag
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases)
        for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(count, "")) == sum(1 for c in cases if c.find(kind) is not None)
    return root


def case(root: ET.Element, suite: str, name: str) -> ET.Element:
    (found,) = [
        one for one in root.iter("testcase") if (one.get("classname"), one.get("name")) == (suite, name)
    ]  # fmt: skip
    return found


def test_a_slow_pair_fails_its_case_with_the_sentence_about_its_node() -> None:
    root = junit(made_run(8, slow_sender("n3")))

    slow = case(root, "pairs.iperf3", "n3 → n6").find("failure")
    assert slow is not None
    assert "60% of the median" in slow.get("message", "")
    assert "n3 sends at" in (slow.text or "")
    assert case(root, "pairs.iperf3", "n6 → n3").find("failure") is None
    assert case(root, "verdict", "n3").find("failure") is not None
    assert case(root, "verdict", "n99").find("skipped") is not None


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.NOT_MEASURED, "error"),
        (Outcome.REFUSED, "error"),
        (Outcome.FAILED, "failure"),
        (Outcome.EXCLUDED, "skipped"),
    ],
)
def test_what_was_not_measured_is_an_error_and_no_failure(outcome: Outcome, kind: str) -> None:
    run = made_run(4)
    odd = result("n1", "", None, stage=Stage.SINGLE, recipe="stream", outcome=outcome, text="why")
    root = junit(replace(run, results=(*run.results, odd)))

    found = case(root, "single.stream", "n1")
    assert [one.tag for one in found if one.tag != "system-out"] == [kind]
    assert "why" in found[0].get("message", "")


def test_hostile_words_are_text_in_junit_too() -> None:
    root = junit(hostile_run())

    assert not list(root.iter("script"))
    assert any("<script>" in (one.text or "") for one in root.iter("system-out"))


def test_a_run_that_goes_on_has_only_what_has_ended() -> None:
    run = made_run(4)
    waiting = result("n1", "n2", None, outcome=Outcome.PENDING, text="")
    root = junit(replace(run, results=(waiting,), progress=RunState.RUNNING))

    assert [suite.get("name") for suite in root] == ["verdict"]


# ---- Prometheus


def test_prometheus_reads_bandwidths_in_bytes_and_verdicts_as_0_or_1() -> None:
    text = files_of(made_run(8, slow_sender("n3")))["rankdeck_acceptance.prom"]

    families = {one.name: one for one in text_string_to_metric_families(text)}
    rates = {
        (s.labels["a"], s.labels["b"]): s.value
        for s in families["rankdeck_acceptance_bandwidth_bytes_per_second"].samples
    }
    assert rates["n6", "n3"] == pytest.approx(9.4e9 / 8)
    assert len(rates) == 56
    verdicts = families["rankdeck_acceptance_verdict"].samples
    assert {s.labels["verdict"] for s in verdicts if s.labels["node"] == "n3" and s.value} == {
        "slow"
    }
    assert len([s for s in verdicts if s.labels["node"] == "n99"]) == len(Answer)
    assert families["rankdeck_acceptance_accepted"].samples[0].value == 0
    assert families["rankdeck_acceptance_value"].samples[0].labels["unit"] == "events/s"
    assert families["rankdeck_acceptance_timestamp_seconds"].samples[0].value == 1_700_000_150


def test_promtool_finds_nothing_to_say(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on PATH")
    text = files_of(hostile_run())["rankdeck_acceptance.prom"]

    done = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- lists and matrix


def test_node_lists_have_a_name_a_line_and_the_node_set() -> None:
    files = files_of(made_run(8, slow_sender("n3")))

    assert files["good.txt"].split() == ["n1", "n2", "n4", "n5", "n6", "n7", "n8"]
    assert (files["good.nodes"], files["bad.txt"], files["bad.nodes"]) == ("n[1-2,4-8]\n", "n3\n", "n3\n")  # fmt: skip
    assert files["not-measured.txt"] == "n99\n"


def test_the_matrix_is_a_table_without_formulas() -> None:
    run = made_run(4)
    odd = result("=cmd()", "n2", 9.4)
    rows = list(csv.DictReader(files_of(replace(run, results=(*run.results, odd)))["matrix.csv"].splitlines()))  # fmt: skip

    assert len(rows) == 13
    assert rows[0]["recipe"] == "iperf3"
    assert float(rows[0]["value"]) > 9
    assert rows[-1]["sender"] == "'=cmd()"


def test_files_are_their_owners_alone_and_a_folder_that_takes_none_is_named(tmp_path: Path) -> None:
    made = write_reports(made_run(4), Outputs(), tmp_path / "out")

    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    (tmp_path / "file").write_text("")
    with pytest.raises(RankdeckError, match="file: cannot be written"):
        write_reports(made_run(4), Outputs(), tmp_path / "file")
