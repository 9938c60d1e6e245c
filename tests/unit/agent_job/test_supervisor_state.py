"""Whether a supervisor lives: by its lock, else by its process;
never by a pid of another machine.
"""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.processes import read_boot_id
from rankdeck_agent.job.supervisor_state import (
    describe_lost_supervisor,
    is_supervised,
    note_supervisor,
    supervisor_pid,
)

HOST = os.uname().nodename


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path, "job", "n1")


def dead_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as done:
        pass
    return done.pid


def test_who_notes_itself_is_the_supervisor_until_it_ends(folder):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        note_supervisor(folder)
        os.write(writing, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(reading, 1)
        during = is_supervised(folder), supervisor_pid(folder)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)

    assert during == (True, child)
    assert (is_supervised(folder), supervisor_pid(folder)) == (False, 0)


def test_a_supervisor_on_another_machine_that_has_the_folder_counts_and_its_pid_does_not(folder):
    (folder / "supervisor.pid").write_text(f"{os.getpid()} 0 elsewhere\n")
    with (folder / "supervisor.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = is_supervised(folder), supervisor_pid(folder)

    assert there == (True, 0)
    assert not is_supervised(folder)


def test_a_process_that_proc_hides_lives_if_it_holds_the_lock_or_there_is_none(folder, monkeypatch):
    monkeypatch.setattr("rankdeck_agent.job.processes.find_process", lambda _: None)
    (folder / "supervisor.pid").write_text(f"{os.getpid()} 7 {HOST}\n")
    without = supervisor_pid(folder)
    (folder / "supervisor.lock").touch()
    free = supervisor_pid(folder)
    with (folder / "supervisor.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = supervisor_pid(folder)

    assert (without, free, held) == (os.getpid(), 0, os.getpid())


@pytest.mark.parametrize("text", ["", "x y", "0 0", "-1 5", "99999999999999999999 1", "12"])
def test_a_broken_note_names_nobody(folder, text):
    (folder / "supervisor.pid").write_text(text)

    assert supervisor_pid(folder) == 0


def test_a_process_that_ended_is_none(folder):
    (folder / "supervisor.pid").write_text(f"{dead_pid()} 1 {HOST}\n")

    assert supervisor_pid(folder) == 0


@pytest.mark.parametrize("boot", ["", "other", "same", "elsewhere"])
def test_a_supervisor_that_ended_with_its_kernel_tells_that_the_machine_was_restarted(folder, boot):
    note_supervisor(folder)
    if boot == "elsewhere":
        (folder / "supervisor.pid").write_text(f"{os.getpid()} 0 another\n")
    began = read_boot_id() if boot == "same" else boot
    (folder / "events").touch()
    events = [{"kind": "ready", "at": 1.0, "boot": began}]

    said = describe_lost_supervisor(folder, events)

    assert said.restarted == (boot == "other")
    assert ("restarted" in said.text) == said.restarted


@pytest.mark.parametrize(("written", "restarted"), [(1e9, True), (None, False)])
def test_a_crash_that_took_all_events_is_told_by_the_age_of_the_plan(folder, written, restarted):
    for name in ("events", "supervisor.pid", "plan.json"):
        (folder / name).touch()
    if written is not None:
        os.utime(folder / "plan.json", (written, written))

    assert describe_lost_supervisor(folder, []).restarted == restarted


@pytest.mark.parametrize("kept", [b"", bytes(16)])
def test_a_supervisor_whose_note_was_lost_in_the_crash_was_restarted_too(folder, kept):
    (folder / "events").touch()
    (folder / "supervisor.pid").write_bytes(kept)

    assert describe_lost_supervisor(
        folder, [{"kind": "ready", "at": 1.0, "boot": "other"}]
    ).restarted
