"""`health`: one machine judged without a console; exit codes as Nagios wants them."""

import json
import subprocess
import sys

from tests.unit.agent.machines import ROOT, copy_recorded, make_machine


def run(root, *more):
    return subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "health", "--root", str(root), *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT / "agents",
    )


def test_a_sick_machine_is_critical_and_the_first_line_says_so(tmp_path):
    done = run(make_machine(tmp_path))

    first, *reasons = done.stdout.splitlines()
    assert done.returncode == 2
    assert first.startswith("RANKDECK CRITICAL: this node: ")
    assert "checks judged" in first
    assert any("DIMM_A1" in line and "bad" in line for line in reasons)


def test_a_recorded_machine_without_a_fault_is_ok(tmp_path):
    done = run(copy_recorded(tmp_path))

    assert (done.returncode, done.stdout.split(":")[0]) == (0, "RANKDECK OK")


def test_the_objects_carry_code_reasons_and_every_check(tmp_path):
    done = run(make_machine(tmp_path), "--json")
    judged = json.loads(done.stdout)

    assert (judged["code"], judged["level"]) == (done.returncode, "bad")
    assert "mem.ecc" in {reason["check"] for reason in judged["reasons"]}
    assert len(judged["findings"]) == 25
    assert judged["evaluated"] <= judged["checks"]


def test_no_machine_is_unknown_and_never_ok(tmp_path):
    done = run(tmp_path / "none")

    assert done.returncode == 3
    assert done.stdout.startswith("RANKDECK UNKNOWN")


def test_an_empty_machine_is_unknown_and_never_ok(tmp_path):
    assert run(tmp_path).returncode == 3
