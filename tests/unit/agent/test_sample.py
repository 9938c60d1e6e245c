"""`sample`: every value, every absence and every error told apart."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck_agent.collectors import COLLECTORS
from tests.unit.agent.machines import HWMON, ROOT, copy_recorded, make_machine, unpack_rxe, write


def sample(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "sample", *map(str, arguments)],
        capture_output=True,
        timeout=300,
        check=False,
        cwd=ROOT / "agents",
    )
    assert b"\x1b" not in done.stdout
    return done


def read(root):
    done = sample("--root", root, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_metric_is_present_absent_failed_or_pending(tmp_path):
    root = make_machine(tmp_path)
    write(root, f"{HWMON}/hwmon0/temp1_crit", "what?\n")
    write(root, "proc/sys/kernel/hostname", "node7.cluster\n")

    taken = read(root)

    failed = {key.split("/")[0] for key in taken["failed"]}
    told = [*taken["values"], *taken["absent"], *taken["pending"]]
    known = {metric for make in COLLECTORS for metric in make.metrics}
    assert known <= {*told, *failed}
    assert not set(taken["absent"]) & {*taken["values"], *failed, *taken["pending"]}
    assert taken["node"] == "node7"
    assert taken["values"]["edac.ce"]["DIMM_A1"] == 7
    assert "what?" in taken["failed"]["cpu.margin"]
    assert "cpu.used" in taken["pending"]
    assert "gpu.nvlinks" in taken["absent"]


@pytest.mark.long
def test_a_recorded_machine_is_not_mixed_with_this_one(tmp_path):
    root = copy_recorded(tmp_path)

    taken = read(root)

    assert "python" not in taken["inventory"]
    assert taken["inventory"].get("kernel") != os.uname().release
    assert taken["values"]["mem.total"] == {"": 16042172416}
    assert "cgroup.cores" in taken["absent"]


def test_a_recorded_soft_roce_device_is_in_it(tmp_path):
    taken = read(unpack_rxe(tmp_path))

    assert taken["values"]["rdma.up"] == {"rxe0/1": 1}


def test_this_machine_is_read_twice_for_the_share_of_its_cpu():
    done = sample("--json")
    taken = json.loads(done.stdout)

    assert set(taken) == {
        "node", "at", "values", "absent", "failed", "pending", "inventory", "events",
    }  # fmt: skip
    assert 0 <= taken["values"]["cpu.used"][""] <= 100
    assert taken["inventory"]["kernel"] == os.uname().release
    assert f"btime {taken['inventory']['boot.at']}\n" in Path("/proc/stat").read_text()
    assert taken["pending"] == []


def test_the_table_is_for_people(tmp_path):
    done = sample("--root", make_machine(tmp_path))

    lines = done.stdout.decode().splitlines()
    assert any(line.split() == ["edac.ce", "DIMM_A1", "7"] for line in lines)
    assert any(line.startswith("gpu.nvlinks") and "not here" in line for line in lines)


def test_a_root_that_is_not_there_is_refused_in_one_line(tmp_path):
    done = sample("--root", tmp_path / "none", "--json")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
