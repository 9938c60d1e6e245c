"""Acceptance runs on disk: kept at once and once, baselines declared,
carried elsewhere, and drift from them.
"""

import json
from contextlib import closing
from pathlib import Path

import pytest

from rankdeck.acceptance.measure import RawOutputs
from rankdeck.acceptance.run import BaselineValue, changed_since, list_drifts
from rankdeck.acceptance.store import KEEP, AcceptanceRuns, Baseline, KeptRun
from rankdeck.acceptance.values import Outcome, Result, Stage
from rankdeck.errors import ConfigError, HistoryError
from rankdeck.values import replace

RUN = KeptRun("r1", "c", 1000.0, "abc", "ro644", "first")
ONE = Result(
    stage=Stage.PAIRS, recipe="iperf3", sender="n1", receiver="n2", outcome=Outcome.MEASURED, value=95.5, unit="Mb/s",
)  # fmt: skip
NORMAL = Baseline(
    cluster="c",
    recipe="iperf3",
    params="p",
    median=95.0,
    mad=0.5,
    count=56,
    run="r1",
    accepted_by="ro644",
    at=2000.0,
)


@pytest.fixture
def runs(tmp_path: Path):
    store = AcceptanceRuns(tmp_path / "acceptance.db")
    yield store
    store.close()


def test_each_measurement_is_on_disk_at_once_and_once(runs: AcceptanceRuns, tmp_path: Path) -> None:
    lost = replace(
        ONE, repeat=1, value=None, outcome=Outcome.NOT_MEASURED, text="the node was busy"
    )
    rail = replace(ONE, rail=1)
    group = replace(ONE, stage=Stage.GROUPS, receiver="", group=("n1", "n2", "n4"), round=1)
    runs.begin(RUN)
    runs.add("r1", [(ONE, "p")])
    runs.add("r1", [(replace(ONE, value=1.0), "p"), (lost, "p"), (rail, "p"), (group, "p")])

    # As after a kill: the first is still open.
    again = AcceptanceRuns(tmp_path / "acceptance.db")
    assert again.measurements("r1") == (ONE, lost, rail, group)
    assert again.runs("c") == (RUN,)
    assert again.runs("other") == ()
    again.close()


def test_a_baseline_is_what_was_declared_last(runs: AcceptanceRuns) -> None:
    of_node = replace(NORMAL, subject="n1")
    runs.declare([NORMAL, of_node])
    runs.declare([replace(NORMAL, median=94.0)])

    assert runs.baselines("c") == (replace(NORMAL, median=94.0), of_node)


def test_old_runs_go_and_those_of_a_baseline_stay(runs: AcceptanceRuns) -> None:
    runs.begin(RUN)
    runs.add("r1", [(ONE, "p")])
    runs.declare([NORMAL])
    gone: list[str] = []
    for number in range(KEEP + 5):
        gone += runs.begin(KeptRun(f"s{number}", "c", 2000.0 + number, "abc"))
        runs.add(f"s{number}", [(ONE, "p")])

    kept = {run.id for run in runs.runs("c")}
    assert "r1" in kept
    assert len(kept) == KEEP + 1
    assert gone == [f"s{number}" for number in range(5)]
    assert runs.measurements("r1") == (ONE,)
    assert runs.measurements("s0") == ()


def test_a_baseline_is_carried_to_another_cluster_with_its_conditions(runs: AcceptanceRuns) -> None:
    runs.begin(RUN)
    runs.identify("r1", {"n1": {"driver": "550"}})
    runs.declare([NORMAL])

    text = runs.exported("c")
    runs.imported("customer", "base.json", text.encode())

    assert json.loads(text)["conditions"] == {"r1": {"n1": {"driver": "550"}}}
    assert runs.baselines("customer") == (replace(NORMAL, cluster="customer"),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: "no JSON", "base.json:1:1: baselines: no file that Rankdeck exported"),
        (lambda body: "{}", "baselines: no file that Rankdeck exported"),
        (lambda body: json.dumps(body | {"version": 99}), "version: is not 1"),
        (lambda body: json.dumps(body | {"baselines": [3]}), r"baselines\[0\]"),
        (lambda body: json.dumps(body).replace("95.0", "NaN"), "no file that Rankdeck exported"),
        (
            lambda body: json.dumps(body).replace("95.0", '"x"'),
            r"baselines\[0\].median: is missing or wrong",
        ),
        (
            lambda body: json.dumps(body).replace('"mad"', '"mat"'),
            r"baselines\[0\].mad: is missing or wrong",
        ),
    ],
)
def test_a_spoilt_file_declares_nothing_and_its_mistakes_are_named(
    runs: AcceptanceRuns, change, said: str
) -> None:
    runs.declare([NORMAL])
    body = json.loads(runs.exported("c"))

    with pytest.raises(ConfigError, match=said):
        runs.imported("other", "base.json", change(body).encode())

    assert runs.baselines("other") == ()


def test_what_cannot_be_kept_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "acceptance.db").mkdir()
    store = AcceptanceRuns(tmp_path / "acceptance.db")

    with pytest.raises(HistoryError, match="nothing was kept"):
        store.add("r1", [(ONE, "p")])
    store.close()


# ---- drift

THEN = {f"n{number}": BaselineValue(96.0, 0.4) for number in range(1, 17)}


def test_one_node_that_lost_15_percent_is_named_and_no_other() -> None:
    now = {name: 96.2 if int(name[1:]) % 2 else 95.8 for name in THEN} | {"n3": 81.6}

    (one,) = list_drifts(now, THEN, unit="Mb/s")

    assert (one.subject, one.sentence) == ("n3", "n3: 81.6 Mb/s, was 96 (−15.0 %)")


def test_a_small_loss_on_all_is_seen_by_its_sign_with_what_changed() -> None:
    facts = {name: {"driver": "550.90", "kernel": "6.1"} for name in THEN}
    changed = changed_since(
        {name: one | {"driver": "570.12"} for name, one in facts.items()}, facts
    )

    (whole,) = list_drifts(dict.fromkeys(THEN, 94.5), THEN, changed)

    assert whole.sentence == (
        "−1.6 % against the baseline, on 16 of 16 measured; "
        "changed since: driver 550.90 → 570.12 on n[1-16]"
    )


def test_what_did_not_move_and_what_is_new_says_nothing() -> None:
    now = {name: 96.1 if int(name[1:]) % 2 else 95.9 for name in THEN} | {"n99": 10.0}

    assert list_drifts(now, THEN) == ()
    assert changed_since({"n1": {"a": "1"}}, {"n1": {"b": "2"}, "n2": {"a": "3"}}) == ""


def test_raw_outputs_of_a_run_that_is_not_kept_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder, other = tmp_path / "acceptance", tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("x")
    outputs = RawOutputs(folder)
    paths = {run: Path(outputs.write(run, ONE, b"9.1 GB/s")) for run in ("r1", "r2")}
    (folder / "linked").symlink_to(other)
    for run in ("r1", "linked", "../other", "", "never"):
        outputs.remove(run)

    assert not paths["r1"].exists()
    assert paths["r2"].read_text() == "9.1 GB/s"
    assert (other / "mine").exists()


def test_a_damaged_file_of_runs_is_told_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "acceptance.db"
    path.write_bytes(b"no database at all " * 400)
    with closing(AcceptanceRuns(path)) as runs:
        (told,) = runs.troubles
    assert "was not usable" in told
    assert "acceptance.db.old1" in told
