"""Job mode on one node, through its real commands."""

import contextlib
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.integration.job.conftest import REPOSITORY, Node, mpi_daemon, until
from tests.support import processes
from tests.support.chain import chain, is_over

from rankdeck_agent.job.cgroups import kill_frozen
from rankdeck_agent.job.follow import NodeFollower
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.job.logs import LogReader
from rankdeck_agent.job.process_chains import end_below
from rankdeck_agent.wire import NodePlan

pytestmark = pytest.mark.slow

CORES = Path("/proc/sys/kernel/core_pattern").read_text().strip()
BYTES = "import os\nfor i in range(256): os.write(1, bytes([i])); os.write(2, bytes([255 - i]))\nos.write(1, b'no newline')"


@pytest.fixture
def job():
    return f"t-{uuid.uuid4().hex[:8]}"


def _rank(script, rank=0):
    return {"name": f"rank {rank}", "argv": ["sh", "-c", script], "rank": rank}


def _state(pid):
    """The letter in /proc, "" where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def _frames(stream):
    """Rows of a follow stream, each with the bytes that follow it."""
    for line in stream:
        row = json.loads(line)
        yield row, stream.read(row["n"]) if row["kind"] == "data" else b""


def _following(node, job, watch, after=-1):
    process = node.popen("follow", job, node.name, "--after", str(after))
    process.stdin.write(json.dumps({"watch": watch}).encode() + b"\n")
    process.stdin.flush()
    return process


def test_the_log_holds_exactly_the_bytes_that_the_rank_wrote(node, job):
    process = {"name": "r", "argv": ["python3", "-c", BYTES], "rank": 0}
    assert node.run(job, [0], [process])["ok"]
    node.closed(job)
    assert node.log(job, 0) == bytes(range(256)) + b"no newline"
    assert node.log(job, 0, "err") == bytes(reversed(range(256)))


def test_a_rank_writes_to_a_terminal_unless_the_plan_says_no(node, job):
    node.run(job, [0], [_rank("test -t 1 && echo terminal")])
    node.closed(job)
    assert node.log(job, 0) == b"terminal\n"
    node.run(job + "b", [0], [_rank("test -t 1 || echo none")], tty=False)
    node.closed(job + "b")
    assert node.log(job + "b", 0) == b"none\n"


def test_a_second_run_of_the_same_job_is_refused(node, job):
    assert node.run(job, [0], [_rank("exit 0")])["ok"]
    again = node.run(job, [0], [_rank("exit 0")])
    assert not again["ok"]
    assert "before" in again["error"]


@pytest.mark.parametrize(
    "plan",
    [b"", b"[]", b"{}", b'{"job": "../x", "node": "n", "ranks": []}', b"\xff\x00"],
)
def test_a_bad_plan_is_one_sentence(node, plan):
    status, out, err = node.job("run", stdin=plan)
    assert status == 1
    assert json.loads(out)["error"]
    assert err == b""


def test_a_plan_file_outside_the_run_folder_is_refused_and_nothing_stays(node, job):
    said = node.run(job, [0], [], files=[{"path": "../../x", "text": ""}])
    assert "outside" in said["error"]
    assert not node.folder(job).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_folder_that_another_user_made_under_tmp_is_refused_and_stays(node, job, mode):
    place = Path(f"/tmp/rankdeck.{job}")
    place.mkdir()
    (place / "theirs").write_text("x")
    place.chmod(mode)
    os.chown(place, 65534, 65534)
    try:
        said = node.run(job, [0], [{"name": "r", "argv": ["true"], "rank": 0}])

        assert f"{place} is not a private folder of this user" in said["error"]
        assert [path.name for path in place.iterdir()] == ["theirs"]
        assert not node.folder(job).exists()
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.skipif(CORES.startswith(("|", "/")), reason="cores do not go to the process's folder")
def test_a_supervisor_leaves_no_core_and_its_ranks_may(node, job):
    before = {*Path("/").glob("core*")}
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit[1], limit[1]))
    try:
        supervisor = node.run(job, [0], [_rank("ulimit -c; exec sleep 60")])["pid"]
        said = until(lambda: node.log(job, 0).strip())
        os.kill(supervisor, signal.SIGABRT)
        until(lambda: _state(supervisor) in ("", "Z"))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limit)
        node.cancel(job, 0)
    cores = {*Path("/").glob("core*")} - before
    for core in cores:
        core.unlink()

    assert not cores
    assert said == (b"unlimited" if limit[1] == -1 else str(limit[1] // 512).encode())


def test_a_missing_program_ends_with_127_and_a_sentence(node, job):
    node.run(
        job,
        [0],
        [
            {"name": "r", "argv": ["no-such-program"], "rank": 0},
            {"name": "l", "argv": ["/none"]},
        ],
    )
    events = node.closed(job)
    assert [e["code"] for e in events if e["kind"] in ("exited", "ended")] == [127, 127]
    assert "no program no-such-program on n1" in next(
        e["text"] for e in events if e["kind"] == "trouble"
    )


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ({"env": {"BIG": "x" * 140_000}}, 125, "r cannot start: Argument list too long"),
        ({"cwd": "/none"}, 125, "r cannot start: there is no folder /none on n1"),
        ({"argv": ["/etc/passwd"]}, 126, "r cannot start: no program /etc/passwd on n1: the file is not executable"),
        ({"argv": ["/none"]}, 127, "r cannot start: no program /none on n1"),
    ],
)  # fmt: skip
def test_a_rank_that_cannot_be_started_says_why_with_its_end(node, job, more, code, said):
    node.run(job, [0], [{"name": "r", "argv": ["true"], "rank": 0, **more}])

    (end,) = (event for event in node.closed(job) if event["kind"] == "exited")

    assert (end["code"], end["said"]) == (code, [said])


def test_the_run_folder_is_put_in_for_its_token(node, job):
    files = [
        {
            "path": "bin/p",
            "text": "#!/bin/sh\necho ${RANKDECK_RUN} $WHERE\n",
            "mode": 0o755,
        }
    ]
    argv = ["${RANKDECK_RUN}/bin/p"]
    env = {"WHERE": "${RANKDECK_RUN}/x"}
    node.run(job, [0], [{"name": "r", "argv": argv, "env": env, "rank": 0}], files=files)
    node.closed(job)
    assert node.log(job, 0).decode() == f"{node.folder(job)} {node.folder(job)}/x\n"


def test_a_signal_is_told_from_an_exit_code(node, job):
    node.run(job, [0, 1], [_rank("kill -SEGV $$"), _rank("exit 7", 1)])
    exits = {e["rank"]: (e["code"], e["signal"]) for e in node.closed(job) if e["kind"] == "exited"}
    assert exits == {0: (None, 11), 1: (7, None)}


@pytest.mark.parametrize(
    ("ends", "code", "number"), [("exit 7", 7, None), ("kill -SEGV $$", None, 11)]
)
def test_a_rank_whose_shim_was_killed_has_its_own_end(node, job, ends, code, number):
    node.run(job, [0], [_rank(f"kill -9 $PPID; sleep 0.3; {ends}")])
    exits = [e for e in node.closed(job) if e["kind"] == "exited"]
    assert [(e["code"], e["signal"]) for e in exits] == [(code, number)]


# A process that takes in the orphans below it, as a container's first process does.
FOSTER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.environ["RANKDECK_RANK"] = "0"
if os.fork() == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def test_an_end_that_nobody_saw_is_not_made_up(node, job):
    shim = "${RANKDECK_RUN}/rank-shim"
    script = "kill -9 $PPID; sleep 0.3; exit 7"
    argv = [sys.executable, "-c", FOSTER, shim, "sh", "-c", script]
    node.run(job, [0], [{"name": "foster", "argv": argv}])
    events = node.closed(job)
    exits = [(e["code"], e["signal"]) for e in events if e["kind"] == "exited"]
    assert exits == [(None, None)]
    assert [e["text"] for e in events if e["kind"] == "trouble"] == [
        "the shim of rank 0 was killed: how this rank ended is not known"
    ]


def test_a_grandchild_that_holds_the_terminal_does_not_hold_up_the_end(node, job):
    node.run(job, [0], [_rank("sleep 300 & echo done")])
    events = node.closed(job, 15)
    assert node.log(job, 0) == b"done\n"
    assert any("sleep 300" in e.get("text", "") for e in events)
    assert node.cancel(job)["left"] == []


def test_a_killed_follower_resumes_without_a_byte_lost_or_doubled(node, job):
    node.run(
        job,
        [0],
        [_rank("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; sleep 1")],
    )
    first = _following(node, job, {"0": {"out": 0}})
    got = b""
    for row, data in _frames(first.stdout):
        if row["kind"] == "data":
            assert row["o"] == len(got)
            got += data
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = _following(node, job, {"0": {"out": len(got)}}, after=0)
    kinds = []
    for row, data in _frames(second.stdout):
        kinds.append(row["kind"])
        if row["kind"] == "data":
            assert row["o"] == len(got)
            got += data
    second.communicate()
    assert got == b"".join(b"line %d\n" % i for i in range(3000))
    assert "ready" not in kinds
    assert kinds[-1] == "closed"
    assert second.returncode == 0


def test_a_closed_job_can_still_be_read_to_its_end(node, job):
    node.run(job, [0], [_rank("echo out; echo err >&2")])
    node.closed(job)
    process = _following(node, job, {"0": {"out": 0, "err": 0}})
    got = {row["s"]: data for row, data in _frames(process.stdout) if row["kind"] == "data"}
    process.communicate()
    assert got == {"out": b"out\n", "err": b"err\n"}


def test_ranks_not_watched_send_their_last_line_without_control_characters(node, job):
    node.run(job, [0], [_rank(r"printf 'one\n\033[31mtwo\007\n'; sleep 1")])
    process = node.popen("follow", job, node.name)
    tail = next(
        row for row, _ in _frames(process.stdout) if row["kind"] == "tail" and row["r"] == 0
    )
    process.communicate()
    assert (tail["lines"], tail["o"]) == (2, 14)
    assert tail["last"] == "[31mtwo"


def test_following_ends_with_its_stdin_and_the_job_goes_on(node, job):
    node.run(job, [0], [_rank("sleep 60")])
    process = node.popen("follow", job, node.name)
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    process.stderr.close()
    until(lambda: node.events(job, "started"))
    assert not node.events(job, "closed")


def test_a_job_that_is_not_here_is_one_sentence(node):
    status, _, err = node.job("follow", "none", "n1")
    assert status == 1
    assert (
        err == b"rankdeck: job none has no run folder on node n1: never started there, or removed\n"
    )


def test_a_supervisor_that_was_killed_is_told_once_and_cancel_still_cleans(node, job):
    pid = node.run(job, [0], [_rank("trap '' TERM HUP; while :; do sleep 0.2; done")])["pid"]
    until(lambda: node.events(job, "started"))
    rank = node.events(job, "started")[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    process = node.popen("follow", job, node.name)
    rows = [row for row, _ in _frames(process.stdout)]
    process.communicate()
    assert rows[-1]["kind"] == "closed"
    assert any(row.get("text") == "the supervisor of this node is gone" for row in rows)
    assert node.cancel(job, 0.3)["left"] == []
    assert _state(rank) in ("", "Z")  # a zombie waits only for init to notice


def test_a_job_that_is_just_being_started_is_not_taken_for_lost(tmp_path, monkeypatch, job):
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    plan = NodePlan(job, "n1", (0,))
    folder = make_run_folder(
        plan
    )  # from here until its supervisor has noted its pid, others see the job
    kinds = [json.loads(f)["kind"] for f in NodeFollower(folder, -1).round(time.monotonic())]
    unlink_links(folder)

    assert kinds == ["now"]
    assert (folder / "events").read_text() == ""


def test_a_job_whose_start_was_killed_halfway_is_closed(node, job):
    script = "import sys; from rankdeck_agent.job.layout import make_run_folder; from rankdeck_agent.wire import NodePlan; make_run_folder(NodePlan(*sys.argv[1:], (0,)))"
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "agents"),
        "RANKDECK_STATE": str(node.state),
    }
    subprocess.run([sys.executable, "-c", script, job, node.name], env=environment, check=True)

    process = node.popen("follow", job, node.name)
    rows = [row for row, _ in _frames(process.stdout)]
    process.communicate()

    assert rows[-1]["kind"] == "closed"


STUBBORN = "trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done"


@pytest.mark.left_out("drops its environment")
@pytest.mark.parametrize(
    "script",
    [
        STUBBORN,
        f'setsid sh -c "{STUBBORN}" & {STUBBORN}',
        f'env -i setsid sh -c "{STUBBORN}" & {STUBBORN}',
    ],
    ids=["ignores TERM", "calls setsid", "drops its environment"],
)
def test_cancel_ends_a_rank_that(node, job, script):
    node.run(job, [0], [_rank(script)])
    until(lambda: b"up" in node.log(job, 0))
    said = node.cancel(job, 0.3)
    assert said["left"] == []
    assert said["ended"] >= 2
    assert [e["kind"] for e in node.events(job)][-1] == "closed"


@pytest.mark.left_out("0-session-without", "0.005-*")
@pytest.mark.parametrize("grouped", [True, False], ids=["with a cgroup", "without"])
@pytest.mark.parametrize("kind", ["session", "group"])
@pytest.mark.parametrize("pause", ["0", "0.005"])
def test_cancel_ends_what_forks_faster_than_it_is_found(node, job, pause, kind, grouped, tmp_path):
    mark = tmp_path / "mark"
    argv = chain(mark, pause, kind)
    node.run(job, [0], [{"name": "rank 0", "argv": argv, "rank": 0}])
    until(mark.exists)
    if not grouped:
        (node.folder(job) / "cgroup").unlink(missing_ok=True)

    said = node.cancel(job, 0.3)

    assert said["left"] == []
    assert is_over(mark)
    assert node.events(job)[-1]["kind"] == "closed"


SHELLS = "trap '' TERM; n=${1:-3000}; : >$0; [ $n -eq 0 ] || setsid sh -c \"$S\" $0 $((n - 1)) &"
DAEMON = "(setsid sh -c 'trap \"\" TERM; n=0; while [ $((n += 1)) -lt 200 ]; do : >$0; sleep 0.1; done' $0 &) &"


@pytest.mark.left_out(
    "four chains-leave",
    "four chains-stay",
    "a chain of shells-leave",
    "a daemon-stay",
    "no variables-leave",
)
@pytest.mark.parametrize("rank", ["stay", "leave"])
@pytest.mark.parametrize("what", ["four chains", "a chain of shells", "a daemon", "no variables"])
def test_cancel_without_a_cgroup_ends(node, job, what, rank, tmp_path):
    """Also what a rank leaves behind that has ended when its job is cancelled."""
    marks = [tmp_path / f"mark{i}" for i in range(4 if what == "four chains" else 1)]
    lines = {
        "four chains": "\n".join(f"{shlex.join(chain(mark))} &" for mark in marks),
        "a chain of shells": f'export S={shlex.quote(SHELLS)}; sh -c "$S" {marks[0]}',
        "a daemon": f"sh -c {shlex.quote(DAEMON)} {marks[0]}",
        "no variables": f"env -i {shlex.join(chain(marks[0]))} &",
    }
    node.run(job, [0], [_rank(f"{lines[what]}\n" + ("sleep 20" if rank == "stay" else ""))])
    until(lambda: all(mark.exists() for mark in marks))
    (node.folder(job) / "cgroup").unlink(missing_ok=True)

    said = node.cancel(job, 0.3)

    assert said["left"] == []
    assert all(map(is_over, marks))


@pytest.mark.left_out(
    "closed before-without", "supervisor killed-without", "closed before-with variables"
)
@pytest.mark.parametrize("clear", [[], ["env", "-i"]], ids=["with variables", "without"])
@pytest.mark.parametrize("harm", ["supervisor killed", "closed before"])
def test_cancel_ends_a_chain_that_has_lost_its_supervisor(node, job, harm, clear, tmp_path):
    mark = tmp_path / "mark"
    argv = [*clear, *chain(mark, rank="leave" if harm == "closed before" else "stay")]
    ready = node.run(job, [0], [{"name": "rank 0", "argv": argv, "rank": 0}])
    until(mark.exists)
    (node.folder(job) / "cgroup").unlink(missing_ok=True)
    if harm == "closed before":
        node.closed(job)
    else:
        os.kill(ready["pid"], signal.SIGKILL)

    said = node.cancel(job, 0.3)

    assert said["left"] == []
    assert is_over(mark)


ESCAPE = """
import os, resource, sys
for line in open("/proc/self/mounts"):
    _, place, kind, *_ = line.split()
    if kind.startswith("cgroup"):
        try:
            open(f"{place}/cgroup.procs", "w").write(str(os.getpid()))
        except OSError:
            pass
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 3)
    [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    if "limits" in sys.argv:
        resource.setrlimit(10, (-1, -1))
    os.execve("/usr/bin/unshare", ["unshare", "--fork", "--pid", "sleep", sys.argv[1]], {})
os.execvp("sleep", ["sleep", "60"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root leaves its control groups")
@pytest.mark.parametrize("away", ["", "limits"], ids=["marked by its limits", "without any mark"])
def test_what_left_its_groups_parents_and_environment_is_ended_or_named(node, job, away, tmp_path):
    (tmp_path / "escape.py").write_text(ESCAPE)
    time_ = f"{1000 + os.getpid()}.{len(away)}"
    argv = [sys.executable, str(tmp_path / "escape.py"), time_, away]
    ready = node.run(job, [0], [{"name": "rank 0", "argv": argv, "rank": 0}])
    sleeps = until(lambda: pids_of("sleep", time_))
    os.kill(ready["pid"], signal.SIGKILL)

    said, again = node.cancel(job, 0.3), node.cancel(job, 0.3)

    left = pids_of("sleep", time_)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert bool(left) == bool(away), sleeps
    for one in (said, again):
        assert one["left"] == []
        assert any(time_ in row["command"] for row in one["unknown"]) == bool(away)


def pids_of(*words: str) -> list[int]:
    """The processes with exactly this command."""
    wanted = "".join(f"{word}\0" for word in words).encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == wanted:
                found.append(int(path.parent.name))
    return found


def test_a_supervisor_that_closed_its_job_leaves_nothing_unknown(node, job):
    node.run(job, [0], [_rank("exit 0")])
    node.closed(job)

    assert node.cancel(job)["unknown"] == []


def test_a_cgroup_is_killed_whole_by_a_kernel_that_cannot_do_so_at_once(node, job, tmp_path):
    mark = tmp_path / "mark"
    node.run(job, [0], [{"name": "rank 0", "argv": chain(mark), "rank": 0}])
    until(mark.exists)
    note = node.folder(job) / "cgroup"
    if not note.exists():
        pytest.skip("needs a control group of its own")

    kill_frozen(Path(note.read_text()))

    assert is_over(mark)
    assert node.closed(job)


def test_a_chain_that_is_not_ended_is_named(node, job, tmp_path):
    mark = tmp_path / "mark"
    argv = chain(mark, rank="leave")
    supervisor = node.run(job, [0], [{"name": "rank 0", "argv": argv, "rank": 0}])["pid"]
    until(mark.exists)

    def goes_on() -> bool:
        (left,) = end_below(supervisor, (), 0.2, number=0)
        assert "chain.py" in left["command"]
        return "forks and ends before it can be killed; it goes on" in left["command"]

    # One that got no processor between two looks is named as a process that stays.
    until(goes_on)
    assert end_below(supervisor, (), 5) == []
    assert is_over(mark)


def test_cancel_ends_a_job_whose_run_folder_was_removed(node, job):
    node.run(job, [0], [_rank(STUBBORN)])
    until(lambda: b"up" in node.log(job, 0))
    (rank,) = (event["pid"] for event in node.events(job, "started"))
    shutil.rmtree(node.folder(job))

    _, _, told = node.job("follow", job, node.name)
    said = node.cancel(job, 0.3)

    assert b"runs on, but" in told
    assert (said["left"], said["there"]) == ([], False)
    assert _state(rank) in ("", "Z")
    assert b"has no run folder" in node.job("follow", job, node.name)[2]


def test_a_start_that_arrives_after_the_cancel_is_refused(node, job):
    assert node.cancel(job)["there"] is False

    answer = node.run(job, [0], [_rank("sleep 300")])

    assert (
        answer["error"]
        == f"job {job} was cancelled on node {node.name}: it is not started there any more"
    )
    assert processes.marked(1, f"RANKDECK_JOB={job}".encode()) == []
    assert b"cancelled before it was started there" in node.job("follow", job, node.name)[2]
    assert node.job("remove", job, node.name)[0] == 0
    assert not node.folder(job).exists()


@pytest.mark.parametrize("late", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_whichever_of_start_and_cancel_comes_first_nothing_runs_after_both(node, job, late):
    node.jobs.add(job)
    plan = {"job": job, "node": node.name, "ranks": [0], "processes": [_rank("sleep 300")]}
    starting = node.popen("run")
    starting.stdin.write(json.dumps(plan).encode())
    starting.stdin.close()
    time.sleep(late)  # another moment of the start each time
    report = node.cancel(job, 0.2)
    started = json.loads(starting.stdout.read())
    starting.wait()

    assert report["left"] == []
    assert started["ok"] is report.get("there", True)
    assert processes.marked(1, f"RANKDECK_JOB={job}".encode()) == []


def _empty(log):
    log.write_bytes(b"")


def _remove(log):
    log.unlink()
    log.with_name("out.idx").unlink()


def _move(log):
    log.rename(log.with_name("out.old"))


@pytest.mark.parametrize("harm", [_empty, _remove, _move])
def test_what_is_written_after_a_log_was_emptied_is_kept_where_it_belongs(node, job, harm):
    count = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done"
    more = node.state.parent / "more"
    node.run(job, [0], [_rank(f"{count}; until [ -e {more} ]; do sleep 0.1; done; {count}")])
    whole = b"".join(b"line %d\n" % i for i in range(1, 2001))
    log = node.folder(job) / "rank.0" / "out"
    until(lambda: log.read_bytes() == whole)

    harm(log)
    until(lambda: log.exists() and log.stat().st_size == len(whole))
    more.touch()
    node.closed(job)

    assert log.stat().st_size == 2 * len(whole)
    assert log.read_bytes()[len(whole) :] == whole
    assert log.stat().st_blocks * 512 < 2 * len(whole)
    said = [event["text"] for event in node.events(job, "trouble")]
    assert said == [f"rank.0/out: {len(whole):,} bytes are gone (the log was emptied, moved or removed); what follows is kept"]  # fmt: skip
    sent = b"".join(piece.data for piece in LogReader(log, 0).read(1 << 20))
    assert sent == whole
    assert LogReader(log, len(whole)).waiting == len(whole)


def test_a_job_whose_plan_was_removed_hides_no_other_job(node, job):
    for one in (f"{job}-a", f"{job}-b"):
        node.run(one, [0], [_rank("exit 0")])
        node.closed(one)
    (node.folder(f"{job}-a") / "plan.json").unlink()

    status, out, err = node.job("list", "--plans")

    assert (status, err) == (0, b"")
    assert [json.loads(line)["job"] for line in out.splitlines()] == [f"{job}-b"]


def test_cancel_lets_a_rank_that_heeds_term_end_by_itself(node, job):
    node.run(
        job,
        [0],
        [_rank("trap 'echo saved; exit 5' TERM; echo up; while :; do sleep 0.1; done")],
    )
    until(lambda: b"up" in node.log(job, 0))
    # A grace longer than this test may take: who heeds TERM is not made to wait for its end.
    assert node.cancel(job, 600)["left"] == []
    assert node.log(job, 0) == b"up\nsaved\n"
    assert node.events(job, "exited")[0]["code"] == 5


def test_cancel_touches_no_other_node_of_the_same_machine(node, job, tmp_path):

    other = Node("n2", node.state)
    for one, rank in ((node, 0), (other, 1)):
        one.run(job, [rank], [_rank(STUBBORN, rank)])
        until(lambda one=one, rank=rank: b"up" in one.log(job, rank))
    assert node.cancel(job, 0.1)["left"] == []
    assert not other.events(job, "closed")
    assert other.cancel(job, 0.1)["left"] == []


def test_term_to_the_supervisor_cancels_its_job(node, job):
    pid = node.run(job, [0], [_rank(STUBBORN)], grace=0.3)["pid"]
    until(lambda: b"up" in node.log(job, 0))
    os.kill(pid, signal.SIGTERM)
    assert node.closed(job)[-1]["kind"] == "closed"
    assert node.events(job, "exited")[0]["signal"] == 9


def test_a_node_that_waits_for_daemons_closes_when_told(node, job):
    node.run(job, [0, 1], [])
    assert not node.events(job, "closed")
    assert node.cancel(job)["left"] == []
    assert node.events(job, "closed")


def test_a_daemon_in_the_background_keeps_the_node_open_until_it_ends(node, job):
    node.run(job, [0], [])
    daemon = f"RANK=0; export RANK; setsid sh -c 'sleep 1; {node.folder(job)}/rank-shim echo hello' & exit 0"
    command = mpi_daemon(node.state, daemon)
    assert json.loads(node.job("spawn", job, "n1", stdin={"id": "d1", "command": command})[1]) == {
        "ok": True
    }
    kinds = [e["kind"] for e in node.closed(job)]
    assert kinds.index("exited") < kinds.index("closed")
    assert node.log(job, 0) == b"hello\n"


@pytest.mark.parametrize(
    ("processes", "command", "why"),
    [
        ([], "touch {mark}", "the command is no MPI daemon: refused"),
        ([], "/usr/bin/prted; touch {mark}", "the command is no MPI daemon: refused"),
        ([{"name": "rank 0", "argv": ["sleep", "60"], "rank": 0}], "/usr/bin/prted {mark}", "this job has no launcher of MPI: refused"),
    ],
)  # fmt: skip
def test_only_an_mpi_daemon_is_started_for_another_node(
    node, job, tmp_path, processes, command, why
):
    mark = tmp_path / "taken"
    node.run(job, [0], processes)
    request = {"id": "d1", "command": command.format(mark=mark)}
    said = json.loads(node.job("spawn", job, "n1", stdin=request)[1])

    assert said == {"ok": False, "error": why}
    assert not mark.exists()


def test_a_job_has_one_daemon_on_a_node_at_a_time(node, job):
    node.run(job, [0], [])
    command = mpi_daemon(node.state, "exec sleep 60")
    spawn = [{"id": name, "command": command} for name in ("d1", "d2")]
    said = [json.loads(node.job("spawn", job, "n1", stdin=one)[1]) for one in spawn]

    assert said[0] == {"ok": True}
    assert said[1]["error"] == "the job has its MPI daemon here already: refused"


def test_the_launch_agent_fails_with_the_answer_of_the_console(node, job):
    argv = [f"/tmp/rankdeck.{job}/launch-agent", "-x", "-p", "22", "n9", "prted", "--x"]
    node.run(job, [], [{"name": "mpirun", "argv": argv}])
    spawn = until(lambda: node.events(job, "spawn"))[0]
    assert (spawn["host"], spawn["command"]) == ("n9", "prted --x")
    node.job("answer", job, "n1", spawn["id"], "no", "node", "is called n9")
    assert node.closed(job)[-2]["code"] == 1
    assert node.log(job, -1, "err") == b"rankdeck: n9: no node is called n9\n"


def test_a_launch_agent_whose_launcher_did_not_wait_for_the_answer_ends_with_the_job(node, job):
    """The daemon and its ranks may be quicker than the console's answer to the launch agent."""
    agent = f"/tmp/rankdeck.{job}/launch-agent -x -p 22 n9 prted --x"
    asked = f"until grep -q spawn {node.folder(job)}/events; do sleep 0.05; done"
    argv = ["sh", "-c", f"{agent} & {asked}"]
    node.run(job, [], [{"name": "mpirun", "argv": argv}])

    kinds = [e["kind"] for e in node.closed(job)]
    assert kinds[-1] == "closed"
    assert "trouble" not in kinds
    until(lambda: not processes.marked(1, f"RANKDECK_JOB={job}".encode()))
    late = node.job("answer", job, "n1", node.events(job, "spawn")[0]["id"], "ok")
    assert json.loads(late[1]) == {"ok": True}


def test_ssh_gets_its_pipes_back_while_the_job_runs(node, job):
    plan = {"job": job, "node": "n1", "ranks": [0], "processes": [_rank("sleep 30")]}
    node.jobs.add(job)
    process = node.popen("run")
    process.communicate(
        json.dumps(plan).encode(), timeout=300
    )  # ends only when no one holds the pipes
    assert not node.events(job, "closed")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_makes_the_ranks_wait_and_loses_nothing(node, job, tmp_path):
    node.state.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(node.state)]
    if subprocess.run(small, check=False).returncode:
        pytest.skip("cannot mount tmpfs")
    try:
        node.run(job, [0], [_rank("head -c 3000000 /dev/zero; echo end")])
        trouble = until(lambda: node.events(job, "space"))[0]["text"]
        assert trouble.startswith("no space left")
        subprocess.run(["mount", "-o", "remount,size=16m", str(node.state)], check=True)
        assert [e["kind"] for e in node.closed(job)][-1] == "closed"
        assert node.log(job, 0) == bytes(3000000) + b"end\n"
    finally:
        node.cancel(job, 0)
        subprocess.run(["umount", "-l", str(node.state)], check=True)


def test_a_launcher_is_refused_a_daemon_for_which_no_console_came_within_its_patience(node, job):
    ask = f"/tmp/rankdeck.{job}/launch-agent n2 prted"
    plan = [{"name": "mpirun", "argv": ["sh", "-c", ask]}]
    node.run(job, [0], plan, patience=0.02)

    node.closed(job)
    (answered,) = node.events(job, "answered")
    assert answered["text"] == "no console started the daemon within 1 s"
