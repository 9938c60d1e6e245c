"""Nodes after public reports, sick and well: of each is told what is true of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import nvml
from tests.support.sick_nodes import NodeCase, judge_outcome, play_node
from tests.unit.agent import harder_node_cases
from tests.unit.agent.sick_node_cases import KERNEL_LINES, NUMBERS, NVML
from tests.unit.agent.well_node_cases import WELL_LINES, WELL_NUMBERS, WELL_NVML


def wrong(cases: Mapping[str, NodeCase], folder: Path, library: Path | None = None) -> dict[str, tuple[str, ...]]:  # fmt: skip
    verdicts = {
        title: judge_outcome(case, play_node(case, folder / str(number), library))
        for number, (title, case) in enumerate(cases.items())
    }
    return {title: one.why for title, one in verdicts.items() if one.word != "right"}


@pytest.mark.parametrize("cases", [KERNEL_LINES, WELL_LINES], ids=["sick", "well"])
def test_lines_of_the_kernel(cases, tmp_path) -> None:
    assert wrong(cases, tmp_path) == {}


@pytest.mark.parametrize("cases", [NUMBERS, WELL_NUMBERS], ids=["sick", "well"])
def test_numbers(cases, tmp_path) -> None:
    assert wrong(cases, tmp_path) == {}


HARDER = {
    **harder_node_cases.SICK,
    **harder_node_cases.WELL,
    **harder_node_cases.THIRD_SICK,
    **harder_node_cases.THIRD_WELL,
    **harder_node_cases.FOURTH_SICK,
    **harder_node_cases.FOURTH_WELL,
    **harder_node_cases.FIFTH_SICK,
    **harder_node_cases.FIFTH_WELL,
}


def test_numbers_and_lines_of_further_lots(tmp_path) -> None:
    assert wrong({title: case for title, case in HARDER.items() if not case.gpus}, tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("cases", [NVML, WELL_NVML, HARDER], ids=["sick", "well", "further"])
def test_answers_of_nvml(cases, tmp_path) -> None:
    if nvml.missing():
        pytest.skip(nvml.missing())
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    nvml.build(tmp_path)
    asked = {title: case for title, case in cases.items() if case.gpus}

    assert wrong(asked, tmp_path, tmp_path) == {}
