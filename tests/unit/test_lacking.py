"""What job files need, and what their nodes lack for them."""

from typing import Any

import pytest

from rankdeck.model.job_spec import Container, JobSpec, Launch
from rankdeck.preflight.doctor import lack_of
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.job_needs import modules_of
from rankdeck.values import replace
from rankdeck_agent.preflight import gather_facts

PROGRAM = """
import os, numpy.linalg as la
from mpi4py import MPI
from . import near
import helper
try:
    import cupy
except ImportError:
    cupy = None
def later():
    import torch
"""


def job(text: str = PROGRAM, **more: Any) -> JobSpec:
    files = {"a.py": text, "helper.py": "import json", "data.txt": "import yaml"}
    fields = {"command": ("python3", "${RANKDECK_RUN}/a.py"), "files": files, **more}
    return JobSpec(name="j", launch=Launch.PLAIN, **fields)


def test_what_a_program_imports_first_of_all_is_what_it_needs() -> None:
    assert modules_of(job()) == ("python3 mpi4py", "python3 numpy")


@pytest.mark.parametrize(
    "spec",
    [
        job(container=Container(image="x.sif")),
        job(command=("./solver",)),
        job(env={"PYTHONPATH": "/opt/lib"}),
        job("no Python at all ="),
        job("(" * 5000),
        job("\0"),
    ],
)
def test_nothing_is_said_of_what_cannot_be_known(spec: JobSpec) -> None:
    assert modules_of(spec) == ()


def test_the_interpreter_of_the_node_tells_which_packages_it_finds() -> None:
    words = ["python3 json", "python3 no_such_package", "python9 json"]

    assert gather_facts({"modules": words})["modules"] == {
        "python3 json": True,
        "python3 no_such_package": False,
    }


def test_the_first_thing_that_a_node_lacks_is_named() -> None:
    there = node_facts({"programs": {"python3": {"path": "/p"}}, "modules": {}}, 0.0, 0.0)
    without = replace(there, modules={"python3 mpi4py": True, "python3 numpy": False})
    bare = node_facts({"programs": {"python3": {"path": ""}}, "modules": 5}, 0.0, 0.0)

    assert lack_of(job(), [there, there]) == ""
    assert lack_of(job(), [there, without]) == "no numpy"
    assert lack_of(job(), [without, bare]) == "no python3"
