"""Files of a study: a page with plots that is safe to open, JSON that says all, CSV."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rankdeck.errors import RankdeckError
from rankdeck.rules.secrets import Secrets
from rankdeck.scaling.report_files import report_plots, study_files, write_study_files
from rankdeck.values import replace
from tests.support.scaling_study import (
    amdahl,
    falling,
    made_study,
    plan_of,
    planned,
    point,
    trials_of,
)

FOUR = tuple(map(point, (1, 2, 4, 8)))


def drawings(page: str) -> list[ET.Element]:
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_page_has_plots_with_ideal_line_law_points_and_spread() -> None:
    page = study_files(falling(), now=1_700_000_000.0)["report.html"]
    speedup, efficiency, number = drawings(page)

    titles = [one.text for one in speedup.iter("title")]
    assert titles[0] == "measured"
    assert titles[1].startswith("Amdahl, ")
    assert titles[2] == "ideal"
    assert len(list(speedup.iter("circle"))) == len(list(number.iter("circle"))) == 4
    assert len([one for one in efficiency.iter("line") if one.get("class") == "mark"]) == 1
    assert "with 8 ranks: all 4 cores of the busiest node are in use" in page
    assert "failed: 1 run with 4 ranks on 1 node: rank 2 on n1, exit 3" in page


def test_points_lie_where_their_speed_up_is() -> None:
    study = made_study(plan_of(*FOUR), trials_of(plan_of(*FOUR), amdahl(0.0)))
    (circles, ideal) = (list(drawings(study_files(study)["report.html"])[0].iter(name)) for name in ("circle", "polyline"))  # fmt: skip
    dashed = next(one for one in ideal if one.get("stroke-dasharray") == "6 4")
    ends = [tuple(map(float, spot.split(","))) for spot in dashed.get("points").split()]

    assert (float(circles[0].get("cx")), float(circles[0].get("cy"))) == pytest.approx(
        ends[0], abs=0.1
    )
    assert (float(circles[-1].get("cx")), float(circles[-1].get("cy"))) == pytest.approx(
        ends[-1], abs=0.1
    )


def test_a_law_that_does_not_hold_is_not_drawn() -> None:
    plan = plan_of(*FOUR)
    study = made_study(plan, trials_of(plan, lambda one, _: {"mflops": 100.0 / one.ranks**2}))

    assert not [line for plot in report_plots(study) for line in plot.lines if line.drawn == "law"]


def test_without_results_there_is_a_page_and_no_plot() -> None:
    page = study_files(planned())["report.html"]

    assert drawings(page) == []
    assert "it takes from what is measured" in page


def test_text_of_jobs_and_nodes_cannot_become_markup_or_a_formula() -> None:
    study = falling()
    evil = "</svg><script>alert(1)</script>"
    trials = tuple(replace(one, text=one.text and f"={evil}") for one in study.trials)
    plan = replace(study.plan, job=evil, notes=(evil,))
    files = study_files(made_study(plan, trials))

    assert "<script" not in files["report.html"]
    rows = list(csv.DictReader(io.StringIO(files["runs.csv"])))
    assert [row["text"][:2] for row in rows if row["text"]] == ["'="]


def test_json_and_csv_have_every_run_with_all_its_numbers() -> None:
    files = study_files(falling())
    found = json.loads(files["report.json"])
    rows = list(csv.DictReader(io.StringIO(files["runs.csv"])))

    assert len(found["runs"]) == len(rows) == 12
    assert found["offered"] == ["mflops", "gosa", "wall"]
    assert [row["outcome"] for row in rows].count("failed") == 1
    assert all(row["wall"] == "12.0" for row in rows if row["outcome"] == "measured")
    assert found["curves"][0]["points"][3]["efficiency"] == pytest.approx(0.505, abs=1e-3)


def test_a_secret_in_a_value_is_in_no_file() -> None:
    points = [replace(one, fixed={"env.KEY": "hunter2-long-secret"}) for one in FOUR]
    study = made_study(plan_of(*points), trials_of(plan_of(*points), amdahl(0.1)))
    files = study_files(study, Secrets([{"API_TOKEN": "hunter2-long-secret"}]))

    assert [name for name, text in files.items() if "hunter2" in text] == []


def test_files_are_readable_by_their_owner_only_and_a_full_path_is_an_error(tmp_path: Path) -> None:
    made = write_study_files(falling(), tmp_path / "out")

    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    (tmp_path / "file").touch()
    with pytest.raises(RankdeckError, match="cannot be written"):
        write_study_files(falling(), tmp_path / "file" / "out")
