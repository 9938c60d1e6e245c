"""The kernel log as events on the wire, and as the output of `kernel-log`."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck_agent import wire
from rankdeck_agent.collectors.kernel_log import LOG_CLOSED, Folding, KernelLogCollector
from rankdeck_agent.kernel_lines import find_kernel_event
from rankdeck_agent.sampler import Sampler
from tests.unit.agent.machines import ROOT, write

BOOT = 1_700_000_000
XID13 = "NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name=python3"
XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def record(seconds, message, priority=4):
    return f"{priority},1,{int(seconds * 1e6)},-;{message}\n SUBSYSTEM=pci\n"


@pytest.fixture
def ring(tmp_path):
    """A machine whose kernel log is a pipe: read like the real one, never blocking."""
    write(tmp_path, "proc/stat", f"cpu 1 2 3 4\nbtime {BOOT}\n")
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    handle = os.open(tmp_path / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    yield lambda text: os.write(handle, text.encode())
    os.close(handle)


@pytest.fixture
def kernel(tmp_path, ring):
    return KernelLogCollector(str(tmp_path), clock=lambda: BOOT + 10_000.0)


def test_a_line_becomes_an_event_with_the_time_of_the_kernel(kernel, ring):
    ring(record(10_000.5, XID79))

    reading = kernel.collect(0.0)

    assert [(e.at, e.level, e.check, e.device) for e in reading.events] == [
        (BOOT + 10_000.5, "bad", "kernel.xid", "0000:3b:00")
    ]
    assert reading.values == {"kernel.events": {"": 1}}
    assert kernel.collect(1.0).events == []


def test_of_the_past_only_what_lasts_is_told(kernel, ring):
    ring(record(10, "EXT4-fs error (device sda1): old"))
    ring(record(20, XID79) + record(30, XID13))
    ring(record(9_990, "nfs: server fs1 not responding, still trying"))

    events = kernel.collect(0.0).events

    assert [e.check for e in events] == ["kernel.xid", "kernel.nfs"]
    assert events[0].at == BOOT + 20


def test_what_still_counts_is_told_however_long_before_the_agent_it_was(kernel, ring):
    ring(record(9_000, "nvme nvme0: Removing after probe failure status: -19"))
    ring(record(9_100, "EDAC MC0: 1 UE memory read error on DIMM_A1"))
    ring(record(9_200, "LustreError: 167-0: This client was evicted by lfs-MDT0000"))
    ring(record(9_200, "nfs: server fs1 not responding, still trying"))

    events = kernel.collect(0.0).events

    assert [e.check for e in events] == ["kernel.disk", "kernel.edac", "kernel.lustre"]


def test_in_a_noisy_past_the_newest_and_worst_is_told_with_the_first_reading(kernel, ring):
    for number in range(100):
        ring(record(9_900 + number / 10, f"eth{number}: Link is Down"))
    ring(record(9_999, XID79))

    events = kernel.collect(0.0).events

    assert (events[-1].check, events[-1].level) == ("kernel.xid", "bad")


def test_a_log_longer_than_one_reading_is_pending_until_its_end(tmp_path):
    noise = "".join(record(9_000, f"usb 1-1: device number {n}") for n in range(2_000))
    write(tmp_path, "proc/stat", f"btime {BOOT}\n")
    write(tmp_path, "dev/kmsg", noise + record(9_990, XID79).strip())
    kernel = KernelLogCollector(str(tmp_path), clock=lambda: BOOT + 10_000.0, at_once=4)

    first = kernel.collect(0.0)
    readings = [kernel.collect(float(n)) for n in range(1, 6)]

    assert (first.pending, first.values) == ({"kernel.events"}, {})
    assert [e.check for r in readings for e in r.events] == ["kernel.xid"]
    assert readings[-1].values == {"kernel.events": {"": 1}}


def test_the_same_xid_of_the_same_gpu_within_five_seconds_is_one_event(kernel, ring):
    for number in range(50):
        ring(record(10_000 + number / 100, XID13))
    ring(record(10_001, XID13.replace("3b", "af")))
    ring(record(10_020, XID13))

    events = kernel.collect(0.0).events
    later = kernel.collect(1.0).events

    assert [(e.device, e.at - BOOT) for e in events] == [
        ("0000:3b:00", 10_000),
        ("0000:af:00", 10_001),
        ("0000:3b:00", 10_020),
    ]
    assert [(e.check, e.level) for e in later] == [("kernel.log", "info")]
    assert "49 × xid" in later[0].text


def flood(folding, count):
    """That many devices fail at once, and all come back in the end."""
    lines = [f"eth{n}: Link is Down" for n in range(count)]
    lines += [f"eth{n}: Link is Up" for n in range(count)]
    sent = [
        e for n, line in enumerate(lines) for e in folding.add(find_kernel_event(line), n / 1e3)
    ]
    late = [e for at in range(1000) for e in folding.due(float(at))]
    return sent, late


def test_a_flood_becomes_a_few_events_and_says_how_many_it_was():
    sent, late = flood(Folding(), 1000)

    folded = [e for e in late if e.check == "kernel.log"]
    assert len(sent) == 30
    assert len(late) <= 70
    assert int(folded[0].text.split(": ")[1].split(" ×")[0]) >= 1900


def test_the_last_word_about_a_device_is_never_lost_in_a_flood():
    sent, late = flood(Folding(), 40)

    last = {e.device: e.level for e in [*sent, *late] if e.device}
    assert last == {f"eth{n}": "ok" for n in range(40)}


def nvlink(link, severity):
    details = f"NETIR_LINK_EVT {severity} XC0 i0 Link {link:02} (0x004505c6 0x00000000)"
    return find_kernel_event(f"NVRM: Xid (PCI:0008:01:00): 149, {details}")


def test_in_a_flood_a_milder_line_replaces_no_worse_one():
    folding = Folding()
    flood_of_links = [find_kernel_event(f"eth{n}: Link is Down") for n in range(30)]
    lines = [*flood_of_links, nvlink(5, "Fatal"), nvlink(5, "Nonfatal"), nvlink(6, "Fatal")]
    lines += [find_kernel_event(f"ens{n}: Link is Down") for n in range(200)]

    sent = [e for n, line in enumerate(lines) for e in folding.add(line, n / 1e3)]
    late = [e for at in range(1000) for e in folding.due(float(at))]

    assert len(sent) == 30
    told = [(e.level, e.text.split(" Link ")[1][:2]) for e in late if e.check == "kernel.xid"]
    assert told.count(("bad", "05")) == 1
    assert told.count(("bad", "06")) == 1


def test_a_log_that_may_not_be_read_is_failed_and_one_that_is_not_there_absent(
    tmp_path,
):
    kernel = KernelLogCollector(str(tmp_path))
    assert kernel.collect(0.0).absent(kernel.metrics) == {"kernel.events"}

    (tmp_path / "dev/kmsg").mkdir(parents=True)

    assert "EISDIR" in kernel.collect(100.0).failed["kernel.events"]


def test_a_machine_without_a_kernel_log_says_that_it_does_not_see_it(monkeypatch):
    def refuse(path):
        raise FileNotFoundError(errno.ENOENT, "No such file", path)

    monkeypatch.setattr("rankdeck_agent.collectors.kernel_log.open_ring", refuse)

    reading = KernelLogCollector("/").collect(0.0)

    assert reading.failed == {"kernel.events": LOG_CLOSED[errno.ENOENT]}
    assert reading.blind == {"kernel.events"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every log")
def test_without_permission_the_reason_is_told(tmp_path):
    write(tmp_path, "dev/kmsg", "")
    (tmp_path / "dev/kmsg").chmod(0)

    reading = KernelLogCollector(str(tmp_path)).collect(0.0)

    assert reading.failed == {"kernel.events": LOG_CLOSED[errno.EACCES]}
    assert reading.blind == {"kernel.events"}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    parts=st.lists(
        st.binary(max_size=80)
        | st.sampled_from([b"4,1,99,-;", XID79.encode(), b"\n", b"\x1b[2J", b"9" * 400])
    )
)
def test_no_bytes_in_the_ring_stop_the_collector(parts, tmp_path_factory):
    root = tmp_path_factory.mktemp("ring")
    (root / "dev").mkdir()
    (root / "dev/kmsg").write_bytes(b"".join(parts))

    reading = KernelLogCollector(str(root)).collect(0.0)

    assert set(reading.values) == {"kernel.events"}
    for event in reading.events:
        assert wire.decode_message("event", wire.encode_message(event)) == event
        assert event.text.isprintable()


def run(*arguments, stdin=b""):
    return subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "kernel-log", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=300,
        check=False,
        cwd=ROOT / "agents",
    )


def test_the_command_prints_one_object_per_event_and_nothing_else(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"nothing here\n[ 1.5] {XID79}\n\x1b[31mnfs: server a OK\n")

    done = run("--json", log)

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [(e["number"], e["kind"], e["xid"], e["level"]) for e in events] == [
        (2, "xid", 79, "bad"),
        (3, "nfs", None, "ok"),
    ]
    assert events[0]["line"] == f"[ 1.5] {XID79}"
    assert events[0]["device"] == "0000:3b:00"
    assert b"\x1b" not in done.stdout


def test_the_command_reads_standard_input_and_bytes_of_any_kind():
    stdin = b"\xff\xfe\x00\n" + b"x" * 200_000 + b"\n" + XID79.encode()

    done = run("-", stdin=stdin)

    assert done.returncode == 0
    assert done.stdout.split()[:4] == [b"3", b"bad", b"xid", b"0000:3b:00"]


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path):
    done = run(tmp_path / "none")

    assert done.returncode == 2
    assert b"ENOENT" in done.stderr
    assert done.stderr.count(b"\n") == 1


AS_NOBODY = """
import json, os, sys
from rankdeck_agent.sampler import Sampler
from rankdeck_agent.collectors.kernel_log import KernelLogCollector
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sampler = Sampler([KernelLogCollector(sys.argv[1])])
taken = [sampler.take(limit=5) for _ in range(3)]
print(json.dumps({
    "failed": taken[-1].sample.failed,
    "events": [[e.level, e.check, e.text] for beat in taken for e in beat.events],
}))
"""


def seen_by_nobody(root):
    """What an agent sends that runs as a user without rights, after three samples."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "agents")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def closed_root():
    """A machine whose kernel log is root's alone, where everybody may look at the rest."""
    if os.getuid():
        pytest.skip("needs root, to become nobody")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        write(root, "dev/kmsg", "")
        (root / "dev/kmsg").chmod(0o600)
        yield root


def test_a_kernel_log_of_root_alone_is_told_once_and_as_news(closed_root):
    told = seen_by_nobody(closed_root)

    assert told["failed"] == {"kernel.events": LOG_CLOSED[errno.EACCES]}
    assert told["events"] == [["info", "kernel.log", LOG_CLOSED[errno.EACCES]]]


def test_a_kernel_that_restricts_its_log_is_told_once_and_as_news():
    if os.getuid() or Path("/proc/sys/kernel/dmesg_restrict").read_text() != "1\n":
        pytest.skip("needs root, to become nobody, and kernel.dmesg_restrict=1")

    told = seen_by_nobody("/")

    assert told["failed"] == {"kernel.events": LOG_CLOSED[errno.EPERM]}
    assert [level for level, *_ in told["events"]] == ["info"]


def test_a_kernel_log_that_breaks_is_still_trouble(tmp_path):
    (tmp_path / "dev/kmsg").mkdir(parents=True)

    beat = Sampler([KernelLogCollector(str(tmp_path))]).take(limit=5)

    assert [(e.level, e.check) for e in beat.events] == [("warn", "agent.kernel")]
