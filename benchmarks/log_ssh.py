"""64 ranks of 1,000 lines a second each over real SSH: ours against `ssh NODE tail -f` per rank."""

import asyncio
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.result import MissingError, Result
from rankdeck.config.clusters import read_cluster
from rankdeck.config.jobs import read_job
from rankdeck.demo import cluster
from rankdeck.model.cluster import Cluster
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck.values import replace

RANKS, SECONDS, RATE = 64, 10, 1000
LINES = SECONDS * RATE
LIMIT = 90.0
WRITER = """
import time
begin = time.monotonic()
for beat in range({beats}):
    print("\\n".join(f"step {{n}} loss 2.5 11800 tok/s" for n in range(beat * 100, beat * 100 + 100)), flush=True)
    time.sleep(max(begin + (beat + 1) * 0.1 - time.monotonic(), 0))
"""
ARGV = (sys.executable, "-S", "-c", WRITER.format(beats=LINES // 100))
JOB = """
job: fanin
launch: plain
nodes: 2
ranks_per_node: {each}
command: {command}
"""


def run() -> list[Result]:
    """Share of a core while all lines arrive, ours and the peer's."""
    if shutil.which("ssh") is None:
        raise MissingError("ssh (apt-get install openssh-client)")
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as lab:
        ours, lost, job = asyncio.run(_follow(Path(folder), lab))
        peer = _tails(lab, job)
    return [
        Result(name="64 x 1,000 lines/s over SSH", value=ours, unit="cores", budget=1.3,
               peer="ssh tail -f per rank", peer_value=peer,
               limit="packets: 17 to 25 us of asyncssh for each, whatever its length"),
        Result(name="of these lost", value=lost, unit="lines", budget=0, on_ratio=False),
    ]  # fmt: skip


@contextmanager
def demo(folder: Path) -> Generator[Cluster]:
    """Nodes of the embedded cluster in folders of their own."""
    before = dict(os.environ)
    for name in ("STATE", "CONFIG", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = str(folder / name.lower())
    os.environ.pop("RANKDECK_STATE", None)
    try:
        lab = read_cluster(cluster.start_demo())
        nodes = tuple(replace(node, slots=RANKS // 2) for node in lab.nodes)
        yield replace(lab, nodes=nodes)
    finally:
        cluster.stop_demo()
        os.environ.clear()
        os.environ.update(before)


async def _follow(folder: Path, lab: Cluster) -> tuple[float, int, str]:
    file = folder / "fanin.yaml"
    file.write_text(JOB.format(each=RANKS // 2, command=json.dumps(ARGV)))
    async with open_cluster_session(lab, telemetry=False) as session:
        job = await session.control.launch(read_job(file))
        session.following.watch(job, range(RANKS), None)
        await session.following.started(job)
        before, begin = time.process_time(), time.monotonic()
        await asyncio.wait_for(session.following.finished(job), LIMIT)
        spent, wall = time.process_time() - before, time.monotonic() - begin
        return spent / max(wall, SECONDS), _lost(session, job), job


def _lost(session: Session, job: str) -> int:
    counts = [session.jobs.log(job, rank).total for rank in range(RANKS)]
    return sum(abs(LINES - count) for count in counts)


def _tails(lab: Cluster, job: str) -> float:
    """The peer: the same bytes without our tools, at the rate at which they were written."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clients: list[subprocess.Popen[bytes]] = []
    for rank in range(RANKS):
        node = lab.nodes[rank >= RANKS // 2]
        path = f"~/.local/state/rankdeck/jobs/{job}/{node.name}/rank.{rank}/out"
        # Written again at the same rate: the job itself has ended.
        again = (
            f"{shlex.join(ARGV)} >{path}.again & tail -F --pid=$! -s 0.1 {path}.again 2>/dev/null"
        )
        access = lab.access
        argv = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={access.known_hosts}",
                "-i", str(access.identity), "-l", str(access.user), "-p", str(node.port), str(node.address), again]  # fmt: skip
        clients.append(
            subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    begin = time.monotonic()
    for client in clients:
        client.wait(LIMIT)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / max(wall, SECONDS)
