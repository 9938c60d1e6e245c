"""`health`: one machine judged without a console; exit codes as Nagios wants them."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.unit.agent.machines import ROOT, copy_recorded, make_machine, write


def run(root, *more):
    return subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "health", "--root", str(root), *more],
        capture_output=True,
        text=True,
        timeout=300,
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


@pytest.mark.long
def test_a_recorded_machine_without_a_fault_is_ok(tmp_path):
    root = copy_recorded(tmp_path)
    # The arrays of that recording are of many machines, some of them broken.
    (root / "proc/mdstat").unlink()
    for array in (root / "sys/block").glob("md*"):
        array.unlink() if array.is_symlink() else shutil.rmtree(array)
    done = run(root)

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


HCA = "sys/class/infiniband"


def nine_ports(root):
    """Eight NDR ports and a bond of Ethernet, as on an H100 host; all have overruns that stick."""
    for n in range(9):
        port = f"{HCA}/mlx5_{n}/ports/1"
        write(root, f"{HCA}/mlx5_{n}/hca_type", "MT4129\n" if n < 8 else "MT4125\n")
        write(root, f"{port}/state", "4: ACTIVE\n")
        write(root, f"{port}/phys_state", "5: LinkUp\n")
        write(root, f"{port}/rate", f"{400 if n < 8 else 200} Gb/sec (4X NDR)\n")
        write(root, f"{port}/link_layer", "InfiniBand\n" if n < 8 else "Ethernet\n")
        write(root, f"{port}/counters/symbol_error", "0\n")
        write(root, f"{port}/counters/excessive_buffer_overrun_errors", "15\n")
        write(root, f"{port}/counters/port_xmit_wait", "4294967295\n")
    return root


def test_nine_good_ports_are_ok_and_what_is_blind_is_said(tmp_path):
    done = run(nine_ports(tmp_path))

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "excessive_buffer_overrun_errors of mlx5_0/1 and 8 more: saturated" in done.stdout


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("state", "1: DOWN\n", "8 of 9 are ACTIVE"),
        ("state", "2: INIT\n", "8 of 9 are ACTIVE; its link is up, but no subnet manager"),
        ("rate", "200 Gb/sec (2X NDR)\n", "200 Gbit/s, 7 of 8 of its kind at 400 Gbit/s"),
    ],
)
def test_the_odd_one_of_nine_ports_is_found_without_being_told(tmp_path, file, text, words):
    root = nine_ports(tmp_path)
    write(root, f"{HCA}/mlx5_3/ports/1/{file}", text)

    done = run(root)

    assert done.returncode == 1
    assert words in done.stdout
    assert "mlx5_3/1" in done.stdout


def test_links_that_are_up_and_that_no_subnet_manager_has_set_up_are_told_though_none_is_odd(
    tmp_path,
):
    root = nine_ports(tmp_path)
    for n in range(8):
        write(root, f"{HCA}/mlx5_{n}/ports/1/state", "2: INIT\n")

    done = run(root)

    assert done.returncode == 1
    assert done.stdout.count("1 of 9 are ACTIVE; its link is up, but no subnet manager") == 8


def test_a_port_of_another_card_that_is_switched_off_is_a_spare_one(tmp_path):
    root = nine_ports(tmp_path)
    write(root, f"{HCA}/mlx5_8/ports/1/state", "1: DOWN\n")
    write(root, f"{HCA}/mlx5_8/ports/1/phys_state", "3: Disabled\n")

    assert run(root).returncode == 0


@pytest.mark.parametrize(("wanted", "code"), [(9, 2), (8, 0)])
def test_what_the_file_expects_decides_instead(tmp_path, wanted, code):
    root = nine_ports(tmp_path / "root")
    write(root, f"{HCA}/mlx5_8/ports/1/state", "1: DOWN\n")
    write(tmp_path, "cluster.yaml", f"cluster: x\nexpect:\n  rdma_count: {wanted}\n")

    done = run(root, "--expect", str(tmp_path / "cluster.yaml"))

    assert done.returncode == code


def test_a_file_of_expectations_that_cannot_be_used_is_unknown_and_never_ok(tmp_path):
    done = run(nine_ports(tmp_path), "--expect", str(tmp_path / "none"))

    assert done.returncode == 3
    assert "No such file" in done.stdout
