"""For a reset the agent lets the GPU driver go, says so, and reads GPUs again when it is told."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck_agent import kernel_lines, xids
from rankdeck_agent.collectors.gpu import GpuCollector
from rankdeck_agent.gpu_release import SIGNALS, STOPPED, running_agents, tell_agents
from rankdeck_agent.rules.events import KINDS
from rankdeck_agent.rules.table import LET_GO, RULES
from tests.support.polling import wait_until
from tests.unit.agent.test_amd import add
from tests.unit.agent.test_nvidia import AGENTS, LIMIT, library, machine  # noqa: F401  fixtures


class OwnAgent:
    """A real agent, and a /proc that shows only it and its children:
    others on this machine are left alone.
    """

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.proc.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rankdeck_agent", "telemetry"],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=AGENTS,
        )  # fmt: skip
        self.pid = self._process.pid
        # Nobody listens there; the agent reads on.
        config = {"cluster": "c", "host": "127.0.0.1", "port": 1, "node": "n", "period": 0.5}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(config).encode() + b"\n")
        self._process.stdin.flush()

    def asks(self) -> bool:
        """Whether it has a process that asks the driver; refreshes `proc`."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        children += [c for t in threads for c in (t / "children").read_text().split()]
        for name in {str(self.pid), *children}:
            if not (self.proc / name).is_symlink():
                (self.proc / name).symlink_to(f"/proc/{name}")
        return any(b"\0nvml\0" in _command(child) for child in children)

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(LIMIT)


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_running_agent_lets_the_driver_go_and_takes_it_again(machine, tmp_path) -> None:  # noqa: F811
    agent = OwnAgent(tmp_path)
    try:
        wait_until(agent.asks, LIMIT)
        stopped = tell_agents("gpu-stop", agent.proc)
        held = agent.asks()
        started = tell_agents("gpu-start", agent.proc)
        wait_until(agent.asks, LIMIT)
    finally:
        agent.end()

    assert (stopped["ok"], stopped["did"]) == (True, "1 agent let the driver go")
    assert not held
    assert (started["ok"], started["did"]) == (True, "1 agent read GPUs again")


def test_what_is_let_go_is_unknown_and_comes_back(tmp_path) -> None:
    add(tmp_path, 0)
    gpu = GpuCollector(str(tmp_path))
    before = gpu.collect(0).values
    opened = len(gpu._amd.tree._open)
    gpu.released = True
    meanwhile = gpu.collect(10)
    held = len(gpu._amd.tree._open)
    gpu.released = False
    after = gpu.collect(100).values

    assert opened > 0 == held
    assert meanwhile.values == {}
    assert set(meanwhile.failed) == set(before)
    assert set(meanwhile.failed.values()) == {STOPPED}
    assert after == before


def process(proc: Path, pid: int, command: str, caught: str = "0000000000000a00") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
    (folder / "status").write_text(f"Name:\tpython3\nSigCgt:\t{caught}\n")


def test_agents_are_found_by_their_command_and_an_older_one_is_not_signalled(tmp_path) -> None:
    process(tmp_path, 11, "python3 -I /usr/local/lib/rankdeck/agent.pyz --config -")
    process(tmp_path, 12, "python3 /home/a/.cache/rankdeck/agent-0123456789ab.pyz telemetry")
    process(tmp_path, 13, "python3 /home/a/.cache/rankdeck/agent-0123456789ab.pyz job run x")
    process(tmp_path, 14, "vi agent.pyz")
    process(tmp_path, 15, "python3 -m rankdeck_agent telemetry", caught="0000000000004000")
    (tmp_path / "16").mkdir()

    found = {agent.pid: agent.listens for agent in running_agents(tmp_path)}
    assert found == {11: True, 12: True, 15: False}


def test_an_older_agent_is_named_with_what_to_do(tmp_path) -> None:
    process(tmp_path, 15, "python3 -m rankdeck_agent telemetry", caught="0000000000004000")
    answer = tell_agents("gpu-stop", tmp_path)

    assert answer["ok"] is False
    assert "process 15" in answer["why"]
    assert "older agent: restart it" in answer["why"]
    assert set(SIGNALS.values()) == {signal.SIGUSR1, signal.SIGUSR2}


def texts() -> "list[str]":
    found = [rule.text for rule in RULES]
    found += [xid.do for xid in xids.XIDS.values()]
    found += [pattern.do for pattern in kernel_lines.PATTERNS]
    found += [kind.do for kind in KINDS.values()]
    return found


_ABOUT_A_GPU = re.compile(r"reset (?:the|all) GPU|GPU.*\breset\b(?! or)")


def test_each_text_that_says_reset_says_how_to_let_the_driver_go() -> None:
    asked = [text for text in texts() if _ABOUT_A_GPU.search(text.rpartition(" · ")[2])]

    assert len(asked) > 15
    assert [text for text in asked if LET_GO not in text] == []
