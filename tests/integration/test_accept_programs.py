"""Recipes run as they say, with the real programs on this machine: what they write is a result."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.polling import wait_until
from tests.support.ports import free_port

from rankdeck import plugins
from rankdeck.acceptance.output_text import Asked, read_output
from rankdeck.acceptance.recipe import Commands, Endpoints, OutputReading, Recipe
from rankdeck.acceptance.values import Outcome

pytestmark = pytest.mark.slow
LIMIT = 50
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def program(name: str) -> str:
    """Its path, beside our Python first; skips by name."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    return found or pytest.skip(f"{name} is not installed")


def module(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def run(argv: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[bytes]:
    words = [
        sys.executable if word == "python3" else word.replace("${RANKDECK_RUN}", str(folder))
        for word in argv
    ]
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **ROOT},
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )


def read(recipe: Recipe, done: subprocess.CompletedProcess[bytes], ranks: int) -> OutputReading:
    (one,) = read_output(recipe, done.stdout, Asked(ranks=ranks, exit_code=done.returncode))
    assert one.status is Outcome.MEASURED, (one.text, done.stderr[-500:])
    return one


def run_quietly(
    recipe: Recipe, argv: tuple[str, ...], folder: Path, ranks: int
) -> subprocess.CompletedProcess[bytes]:
    """The same; again while other tests keep the machine too busy to say how fast it is."""
    done = run(argv, folder)
    for _ in range(4):
        found = read_output(recipe, done.stdout, Asked(ranks=ranks, exit_code=done.returncode))
        if not any("the nodes were busy" in one.text for one in found):
            break
        done = run(argv, folder)
    return done


def planned(name: str, where: Endpoints, folder: Path) -> tuple[Recipe, Commands]:
    recipe: Recipe = plugins.find_plugin("recipes", name)()
    commands = recipe.commands(where)
    for file, text in commands.files.items():
        (folder / file).write_text(text)
    return recipe, commands


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n2", "n3")])
def test_mpi4py_says_who_takes_part_and_how_fast_it_is(
    nodes: tuple[str, ...], tmp_path: Path
) -> None:
    mpirun = program("mpirun")
    module("mpi4py")
    recipe, commands = planned("mpi4py.bench", Endpoints(nodes=nodes), tmp_path)

    argv = (mpirun, "--oversubscribe", "-np", str(len(nodes)), *commands.argv)
    done = run_quietly(recipe, argv, tmp_path, len(nodes))

    one = read(recipe, done, len(nodes))
    assert (one.unit, one.ranks, one.hosts) == ("MB/s", len(nodes), (socket.gethostname(),))


def test_torch_all_reduces_over_gloo(tmp_path: Path) -> None:
    torchrun = program("torchrun")
    module("torch")
    recipe, commands = planned("torch-gloo", Endpoints(nodes=("n1", "n2")), tmp_path)
    head = (
        torchrun,
        "--nnodes",
        "1",
        "--nproc-per-node",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(free_port()),
    )

    done = run((*head, *commands.argv[1:]), tmp_path)

    one = read(recipe, done, 2)
    assert (one.unit, one.size, one.ranks) == ("GB/s", 16 << 20, 2)


def test_iperf3_measures_from_the_first_node_to_the_last(tmp_path: Path) -> None:
    program("iperf3")
    where = Endpoints(nodes=("n1", "n2"), addresses={"n2": "127.0.0.1"}, port=free_port())
    recipe, commands = planned("iperf3", where, tmp_path)

    with (
        (tmp_path / "server").open("wb") as log,
        subprocess.Popen(commands.server, stdout=log, stderr=log) as server,
    ):
        try:
            wait_until(lambda: listens(where.port), LIMIT)
            done = run(commands.argv, tmp_path)
        finally:
            server.kill()

    # A loopback that one core cannot feed is a true answer, too.
    (one,) = read_output(recipe, done.stdout, Asked(ranks=2, exit_code=done.returncode))
    assert one.status is Outcome.MEASURED or "the CPU was measured" in one.text


def listens(port: int) -> bool:
    """Whether somebody listens there, without connecting: iperf3 -1
    would take that for its client.
    """
    wanted = f":{port:04X} "
    lines = [
        *Path("/proc/net/tcp").read_text().splitlines(),
        *Path("/proc/net/tcp6").read_text().splitlines(),
    ]
    return any(wanted in line and line.split()[3] == "0A" for line in lines[1:])


@pytest.mark.left_out("stress-ng")
@pytest.mark.parametrize("name", ["sysbench", "stress-ng"])
def test_a_test_of_one_node_is_read_or_says_that_the_node_was_busy(
    name: str, tmp_path: Path
) -> None:
    program(name)
    recipe, commands = planned(name, Endpoints(nodes=("n1",)), tmp_path)

    done = run(commands.argv, tmp_path)

    (one,) = read_output(recipe, done.stdout + done.stderr, Asked(exit_code=done.returncode))
    assert one.status is Outcome.MEASURED or "the node was busy" in one.text


@pytest.mark.parametrize(
    ("says", "given"),
    [("-c, --validation", ["-c"]), ("-h, --help", [])],
)
def test_osu_is_asked_to_check_values_where_its_version_can(
    says: str, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "osu_bw"
    there.write_text(f'#!/bin/sh\n# {says}\necho "$*"\n')
    there.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _, commands = planned("osu", Endpoints(nodes=("n1", "n2")), tmp_path)

    assert run(commands.argv, tmp_path).stdout.decode().split() == given
