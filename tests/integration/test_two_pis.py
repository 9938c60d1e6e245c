"""Two small computers, sakuya and sakura: Apptainer, an old Open MPI
outside, a slightly other one inside.

What their owner does: look whether both are there, run hello world on eight ranks, run the stencil,
watch both get busy, and read the MFLOPS.
"""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyte
import pytest
import yaml
from tests.support import processes
from tests.support.example_pages import Desk, Page
from tests.support.lab import RootLab, root, running
from tests.support.lab.root import OLD_MPI, OLD_SANDBOX, SIF
from tests.support.polling import seen_until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]
LIMIT = 240
JOBS = Path(__file__).resolve().parents[2] / "sample-clusters/jobs"
CORPUS = JOBS.parents[1] / "tests/corpus/accept"
SLOTS = {"sakuya": 5, "sakura": 3}
NO_SINGLE_COPY = ["--mca", "btl_vader_single_copy_mechanism", "none"]
MPI = {"flavour": "openmpi4", "path": f"{OLD_MPI}/bin/mpirun", "args": NO_SINGLE_COPY}
SIZE = (120, 30)


class Pair:
    """The two nodes, and their owner at the head."""

    def __init__(self, lab: RootLab) -> None:
        self.lab = lab
        content = yaml.safe_load(lab.cluster_file().read_text())
        for node in content["nodes"]:
            node["slots"] = SLOTS[node["name"]]
        self.file = lab.folder / "two-pis.yaml"
        self.file.write_text(yaml.safe_dump({**content, "cluster": "two-pis"}))

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        command = ["-c", str(self.file), *arguments, "--json"]
        done = self.lab.rankdeck(*command, limit=LIMIT)
        assert done.stdout or not done.returncode, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def job_file(self, sample: str, **changes: object) -> str:
        """A sample job, boxed into the old image."""
        job = yaml.safe_load((JOBS / f"{sample}.yaml").read_text())
        for source in job["files"].values():
            program = JOBS / source["from"]
            source["from"] = shutil.copy(program, self.lab.folder / program.name).name
        del job["ranks_per_node"]
        container = {"runtime": "apptainer", "image": OLD_SANDBOX}
        file = self.lab.folder / f"{sample}.yaml"
        file.write_text(yaml.safe_dump({**job, "mpi": MPI, "container": container, **changes}))
        return str(file)

    def output(self, job: str) -> dict[int, list[str]]:
        by_rank: dict[int, list[str]] = {}
        for line in self.objects("logs", job):
            if line["stream"] == "out":
                by_rank.setdefault(line["rank"], []).append(line["text"])
        return by_rank

    @contextmanager
    def screen(self) -> Iterator[Callable[[], str]]:
        """The console in a terminal; calling gives what stands on it."""
        columns, rows = SIZE
        ours, theirs = pty.openpty()
        shown = pyte.Screen(columns, rows)
        stream = pyte.ByteStream(shown)
        command = [sys.executable, "-m", "rankdeck", "-c", str(self.file)]
        env = {
            **self.lab.environment(),
            "TERM": "xterm-256color",
            "COLUMNS": str(columns),
            "LINES": str(rows),
        }
        with subprocess.Popen(
            self.lab.command(command), stdin=theirs, stdout=theirs, stderr=theirs,
            env=env, start_new_session=True,
        ) as console:  # fmt: skip

            def look() -> str:
                while select.select([ours], [], [], 0.2)[0]:
                    stream.feed(os.read(ours, 1 << 16))
                return "\n".join(shown.display)

            try:
                yield look
            finally:
                console.terminate()
                os.close(theirs)
                os.close(ours)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    if why := root.missing():
        pytest.skip(why)
    with running(RootLab, names=tuple(SLOTS)) as lab:
        for pid in processes.descendants(lab.first_process("sakura")):
            # One that answers a connection may be gone already; the server itself is not.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, {0})
        yield Pair(lab)


def test_they_differ_in_cores_and_in_the_mpi_of_their_image(pair: Pair) -> None:
    cores = [int(pair.lab.ssh(node, "nproc").stdout) for node in SLOTS]
    inside = f"apptainer exec {OLD_SANDBOX} mpirun --version"
    said = pair.lab.ssh("sakuya", f"{OLD_MPI}/bin/mpirun --version; {inside}").stdout

    assert cores[1] == 1
    assert len(os.sched_getaffinity(0)) == cores[0]
    assert re.findall(r"\(Open MPI\) ([\d.]+)", said) == ["4.1.8", "4.1.4"]


def test_hello_world_on_eight_ranks(pair: Pair) -> None:
    job = pair.objects("run", pair.job_file("mpi-hello"))[-1]

    assert job["state"] == "done", job
    said = pair.output(job["job"])
    for rank in range(8):
        node = "sakuya" if rank < 5 else "sakura"
        assert said[rank][0].startswith(f"Hello from rank {rank} of 8 on {node} ")
        assert "Open MPI v4.1.4" in said[rank][0]
        assert said[rank][1] == "beat 0: the sum of all ranks is 28"


@pytest.mark.left_out
def test_both_are_busy_while_the_stencil_runs_and_its_mflops_are_read(
    pair: Pair,
) -> None:
    file = pair.job_file("stencil", env={"STENCIL_SECONDS": "20"})
    with pair.screen() as look:
        job = pair.objects("run", file, "--detach")[-1]["job"]
        wait_until(lambda: "Wait for a while" in str(pair.output(job).get(0)), LIMIT)

        # On a machine at its limit a node may only have told its health by then.
        has_samples = lambda found: all("net.tx" in node["values"] for node in found["nodes"])  # noqa: E731
        status = seen_until(lambda: pair.objects("status")[-1], has_samples, LIMIT)
        sent = {n["name"]: n["values"]["net.tx"]["eth0"] for n in status["nodes"]}
        for node in status["nodes"]:
            assert node["values"]["cpu.used"][""] > 50, node["values"]["cpu.used"]
        rows = wait_until(lambda: busy_rows(look()), LIMIT)
        assert set(rows) == set(SLOTS)
        later = seen_until(lambda: pair.objects("status")[-1], has_samples, LIMIT)
        for node in later["nodes"]:
            assert node["values"]["net.tx"]["eth0"] > sent[node["name"]]

    # One command that waits: asking again and again would take the cores from the ranks.
    pair.lab.rankdeck("-c", str(pair.file), "attach", job, limit=LIMIT)
    assert ended(pair, job) == "done"
    text = "\n".join(pair.output(job)[0])
    assert [int(n) for n in re.findall(r"[IJK]-decomp = (\d+)", text)] == [2, 2, 2]
    assert float(re.findall(r"Gosa : ([\d.e+-]+)", text)[0]) > 0
    assert float(re.findall(r"MFLOPS measured : ([\d.]+)", text)[0]) > 0
    assert not any(pair.lab.processes(node, job) for node in SLOTS)


def busy_rows(text: str) -> dict[str, int]:
    """node -> CPU % on the Fleet screen, of nodes above 50 %, once both are."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        for name in SLOTS:
            if name in line:
                # The first line is that of the table; trends and events stand below.
                found.setdefault(name, [int(n) for n in re.findall(r"\b(\d+) ?%", line)])
    busy = {name: max(numbers) for name, numbers in found.items() if numbers}
    return busy if len(busy) == 2 and min(busy.values()) > 50 else {}


def ended(pair: Pair, job: str) -> str:
    (found,) = [row for row in pair.objects("jobs") if row["job"] == job]
    return "" if found["state"] in ("pending", "running") else found["state"]


BMT = """\
#!/usr/bin/env python3
import os, runpy, sys
os.environ["STENCIL_SECONDS"] = "3"
sys.argv[1:] = ["24", "24", "24"]
runpy.run_path("{program}", run_name="__main__")
"""
"""In place of Himeno, which is not ours to ship: the sample that prints as it does."""


@pytest.fixture
def desk(pair: Pair) -> Desk:
    """Their owner's desk; the image is on sakuya only, and each node has what `bmt` stands for."""
    program = shutil.copy(JOBS / "programs/stencil.py", pair.lab.shared)
    (pair.lab.shared / "bmt").write_text(BMT.format(program=program))
    (pair.lab.shared / "bmt").chmod(0o755)
    bind = f"bind path = {pair.lab.shared}/bmt:/usr/local/bin/bmt"
    configuration = "/etc/apptainer/apptainer.conf"
    for node in SLOTS:
        root = ["ssh", "-F", str(pair.lab.ssh_config), "-l", "root", node]
        once = f"grep -q /bmt: {configuration} || echo '{bind}' >>{configuration}"
        pair.lab.enter([*root, once]).check_returncode()
        # More ranks than cores: who waits lets the others work.
        idle = "mkdir -p .openmpi; echo mpi_yield_when_idle=1 >.openmpi/mca-params.conf"
        pair.lab.ssh(node, f"rm -f mpi-multinodes.sif; {idle}").check_returncode()
    pair.lab.ssh("sakuya", f"cp {SIF} mpi-multinodes.sif").check_returncode()
    told = yaml.safe_load(pair.lab.cluster_file(slots=4).read_text())
    del told["cluster"]
    desk = Desk("two-pis", pair.lab.environment(), told)
    recorded = (CORPUS / "himeno-two-pis").read_text().partition("\n")[2]
    (desk.folder / "himeno-pi4.txt").write_text(recorded)
    return desk


@pytest.mark.left_out
def test_the_page_of_two_pis_is_true(pair: Pair, desk: Desk) -> None:
    run = lambda argv, together: pair.lab.rankdeck(  # noqa: E731
        *argv, limit=LIMIT, cwd=desk.folder, together=together, env={"TERM": "xterm"}
    )
    Page("two-pis").run_lines(run, desk.folder, desk.hide)
