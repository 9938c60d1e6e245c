"""Everything recorded on real machines, read: how many files were seen, read, N/A, blind, failed.

A folder of recordings that no reader here knows fails the test: add
a reader, or say why it needs none.
"""

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.kernel_lines import KernelLines
from rankdeck_agent.xids import judge_xid
from tests.unit.agent.machines import DATA, write

FOLDERS = ("counters", "counters_ext", "hw_counters")
Counts = dict[str, int]


def ports(folder: Path, scratch: Path) -> Counts:
    """Every counter of every RDMA port below a folder, archives unpacked."""
    for archive in folder.rglob("*.tgz"):
        with tarfile.open(archive) as opened:
            opened.extractall(scratch / archive.stem, filter="data")
    found = {"files": 0, "read": 0, "N/A": 0, "blind": 0, "failed": 0}
    for number, devices in enumerate(sorted({*classes(folder), *classes(scratch)})):
        root = scratch / f"root{number}" / "sys" / "class"
        root.mkdir(parents=True)
        (root / "infiniband").symlink_to(devices, target_is_directory=True)
        for key, count in counters(root.parent.parent, devices).items():
            found[key] += count
    return found


def classes(folder: Path) -> Iterator[Path]:
    """Folders laid out as /sys/class/infiniband, under whatever name they were kept."""
    for path in folder.rglob("ports"):
        if path.is_dir() and any(port.name.isdecimal() for port in path.iterdir()):
            yield path.parent.parent


def counters(root: Path, devices: Path) -> Counts:
    files = [
        file
        for device in devices.iterdir()
        for name in FOLDERS
        for file in (*device.glob(f"ports/*/{name}/*"), *device.glob(f"{name}/*"))
    ]
    reading = RdmaCollector(str(root)).collect(0.0)
    raw = [m for m in reading.values if m.split(".")[1] in FOLDERS]
    failed = [key for key in reading.failed if key.split(".")[1] in FOLDERS]
    blind = sum(key in reading.blind for key in failed)
    return {
        "files": len(files),
        "read": sum(len(reading.values[metric]) for metric in raw),
        "N/A": sum(file.read_bytes().startswith(b"N/A") for file in files),
        "blind": blind,
        "failed": len(failed) - blind,
    }


def printed(folder: Path, scratch: Path) -> Counts:
    """Counters that were printed to a text, `name value` a line."""
    rows = [line.split() for line in (folder / "hw_counters-irdma-values.txt").open()]
    for row in filter(None, rows):
        write(
            scratch,
            f"made/sys/class/infiniband/irdma0/ports/1/hw_counters/{row[0].rstrip(':')}",
            row[-1],
        )
    return ports(scratch / "made", scratch / "unpacked")


def lines(folder: Path, _: Path) -> Counts:
    """Lines of kernel logs."""
    found = {"lines": 0, "events": 0, "no event": 0}
    for text in (folder / "kernel_lines.jsonl").read_text().splitlines():
        event = KernelLines().take(json.loads(text)["line"])[1]
        found["lines"] += 1
        found["events" if event else "no event"] += 1
    return found


def codes(folder: Path, _: Path) -> Counts:
    """Xids of NVIDIA's catalogue."""
    (file,) = folder.rglob("xid_catalog_data.json")
    listed = json.loads(file.read_text())["xid_error_catalog"]
    unknown = [row for n, row in listed.items() if judge_xid(int(n), "").what == "unknown Xid"]
    unused = sum(row["description"] == "Unused" for row in unknown)
    found = {"named": len(listed) - len(unknown), "unused": unused}
    return {"codes": len(listed), **found, "unnamed": len(unknown) - unused}


READERS: dict[str, Callable[[Path, Path], Counts]] = {
    "procfs": ports,
    "rxe": ports,
    "seed-outputs": printed,
    "kernel-lines": lines,
    "xid-catalogue": codes,
}
OTHERS = {
    "nvidia-smi": "what nvidia-smi printed: test_nvidia.py has NVML say it",
    "rocm-smi": "what rocm-smi printed, which the agent does not run",
    "gpu-profiles": "profiles of a mock of NVML, nothing recorded",
    "kubernetes": "answers of an API server",
    "slurm-json": "output of Slurm",
    "acceptance": "output of benchmarks",
    "gnmi": "messages of switches: test_gnmi.py",
    "failures": "output of ranks that failed",
    "program-outputs": "output of benchmarks",
}
"""Folders that are not read by the agent, and what they are."""


def recorded() -> list[str]:
    if not DATA.is_dir():
        return []
    return sorted(path.name for path in DATA.iterdir() if path.is_dir())


def test_every_folder_of_recordings_has_a_reader_or_a_reason():
    if not recorded():
        pytest.skip(f"nothing recorded: {DATA} is missing")

    # A folder that nobody has listed is read as what most are: a tree of /sys.
    unlisted = [name for name in recorded() if name not in {*READERS, *OTHERS}]

    assert [name for name in unlisted if not [*classes(DATA / name)]] == []


@pytest.mark.parametrize("name", sorted({*READERS, *recorded()} - {*OTHERS}))
def test_nothing_recorded_is_lost_on_the_way(name, tmp_path, capsys):
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"nothing recorded: {folder} is missing")

    seen, *rest = READERS.get(name, ports)(folder, tmp_path / "scratch").items()

    with capsys.disabled():
        print(f"\n{name}: " + ", ".join(f"{count} {what}" for what, count in (seen, *rest)))
    assert seen[1] > 0
    assert sum(count for _, count in rest) == seen[1]


def test_every_counter_file_is_told_as_exactly_one_thing(tmp_path):
    port = "tree/mlx5_0/ports/1"
    write(tmp_path, f"{port}/counters/symbol_error", "7\n")
    write(tmp_path, f"{port}/counters/excessive_buffer_overrun_errors", "15\n")
    write(tmp_path, f"{port}/counters/VL15_dropped", "N/A (no PMA)\n")
    write(tmp_path, f"{port}/hw_counters/out_of_buffer", "what?\n")
    shutil.make_archive(str(tmp_path / "kept" / "a"), "gztar", tmp_path, "tree")
    (tmp_path / "kept" / "a.tar.gz").rename(tmp_path / "kept" / "a.tgz")

    found = ports(tmp_path / "kept", tmp_path / "scratch")

    assert found == {"files": 4, "read": 1, "N/A": 1, "blind": 1, "failed": 1}
