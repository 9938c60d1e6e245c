"""ssh_config for 1,000 hosts, each with a Host block of its own: the processor time of ours, with
all calls of `ssh -G`, and of one `ssh -G` per host.
"""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import environment
from benchmarks.result import MissingError, Result
from rankdeck.remote.ssh_config import SshConfig

HOSTS = 1000
ALONE = 20
"""Hosts that `ssh -G` is asked about one by one; the rest is calculated."""
BUDGET = 2.0
"""CPU seconds for all hosts."""


def run() -> list[Result]:
    """CPU seconds for all hosts, where names tell them apart, and
    where a pattern describes them all.
    """
    if shutil.which("ssh") is None:
        raise MissingError("needs ssh (openssh-client)")
    blocks = "".join(
        f"Host n{n}\n  HostName 10.0.{n // 250}.{n % 250}\n  User me\n  IdentityFile ~/.ssh/id\n"
        for n in range(HOSTS)
    )
    return [_compared("blocks", blocks), _compared("pattern", "Host n*\n  HostName %h.cluster\n")]


def _compared(name: str, text: str) -> Result:
    with tempfile.TemporaryDirectory(prefix="rankdeck-ssh.") as folder:
        file = Path(folder, "config")
        file.write_text(text)
        ours = _cpu([sys.executable, "-m", "benchmarks.ssh_config", str(file)])
        started = _cpu([sys.executable, "-m", "benchmarks.ssh_config"])
        theirs = sum(_cpu(["ssh", "-F", str(file), "-G", f"n{n}"]) for n in range(ALONE)) / ALONE
    note = f"{HOSTS} hosts, `{name}`; the limit is {BUDGET:g} s"
    value = ours - started
    return Result(
        name="ssh_config_cpu", value=value, unit="s", peer="ssh -G", peer_value=theirs * HOSTS,
        budget=BUDGET / (theirs * HOSTS), note=note,
    )  # fmt: skip


def _cpu(argv: list[str]) -> float:
    """CPU seconds of a program and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=environment(PATH=os.environ["PATH"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=300)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _ask(file: str) -> None:
    config = SshConfig(file)
    for number in range(HOSTS):
        await config.of(f"n{number}")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(_ask(sys.argv[1]))
