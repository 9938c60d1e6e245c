"""The host collectors against the real kernel: a mount that hangs, a
process that is killed for memory.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankdeck_agent.collectors.kernel_log import KernelLogCollector

pytestmark = pytest.mark.slow
AGENTS = Path(__file__).resolve().parents[2] / "agents"
LIMIT = 60.0

HANG = """
import ctypes, json, os, sys, time
from rankdeck_agent.collectors.disk import DiskCollector

path = sys.argv[1]
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"nobody", path.encode(), b"fuse.nobody", 0, options):
    print(json.dumps({"error": os.strerror(ctypes.get_errno())}))
    sys.exit()
disk = DiskCollector("/")
took, stuck = [], []
for at in (0.0, 3.0, 9.0, 30.0):
    began = time.monotonic()
    reading = disk.collect(at)
    took.append(time.monotonic() - began)
    stuck.append(reading.values["disk.stuck"][path])
failed = reading.failed.get("disk.used/" + path)
local = sorted(reading.values["disk.used"])
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
# The file system has lost its program: whoever waits is told so.
os.close(fuse)
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    after = disk.collect(31.0).failed.get("disk.used/" + path, "")
    if "no answer" not in after:
        break
    time.sleep(0.05)
print(json.dumps({"stuck": stuck, "failed": failed, "local": local, "children": len(children),
                  "took": max(took), "after": after}))
"""


def root_with(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {' '.join(programs)}")


def test_a_mount_whose_server_never_answers_holds_up_nothing(tmp_path):
    root_with("unshare")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse: no mount that hangs")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", HANG, str(tmp_path)],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(AGENTS)},
    )
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    if "error" in seen:
        pytest.skip(f"cannot mount here: {seen['error']}")

    assert seen["stuck"] == [0.0, 3.0, 9.0, 30.0]
    assert seen["failed"] == "no answer for 30 s"
    assert seen["children"] == 1
    assert "/" in seen["local"]
    assert "not connected" in seen["after"]


def memory_group():
    """A control group of this test with a limit of 16 MB; skips where none can be made."""
    name = f"rankdeck-test-{os.getpid()}"
    for base, limit in (
        ("/sys/fs/cgroup", "memory.max"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ):
        group = Path(base) / name
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(16 << 20))
            return group
        group.rmdir()
    pytest.skip("no control group with a memory limit can be made here")


def test_a_process_that_the_kernel_kills_for_memory_is_an_event():
    root_with()
    kernel = KernelLogCollector("/")
    first = kernel.collect(0.0)
    if "kernel.events" not in first.values:
        pytest.skip(f"the kernel log cannot be read: {first.failed}")
    while kernel.collect(0.0).events:
        pass
    group = memory_group()
    eat = f"open('{group}/cgroup.procs','w').write('0'); x = bytearray(1 << 28)"
    try:
        with subprocess.Popen([sys.executable, "-c", eat], stderr=subprocess.PIPE) as eater:
            _, said = eater.communicate(timeout=LIMIT)
        if eater.returncode != -signal.SIGKILL:
            pytest.skip(f"nobody was killed: {eater.returncode} {said!r}")
        # Other tests run out of memory too: what was held back of theirs may come now.
        wanted = f"Killed process {eater.pid} "
        events, deadline = [], time.monotonic() + LIMIT
        while not any(wanted in e.text for e in events):
            assert time.monotonic() < deadline, events
            events += kernel.collect(1.0).events
            time.sleep(0.05)
    finally:
        group.rmdir()

    killed = next(e for e in events if wanted in e.text)
    assert (killed.check, killed.level) == ("kernel.oom", "warn")
    assert abs(killed.at - time.time()) < 120
