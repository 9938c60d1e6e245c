"""People who work on a root lab: one user each, through the command line of the console."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

import yaml

from tests.support.lab.root import SANDBOX, RootLab
from tests.support.polling import eventually, seen_until

LIMIT = 150
OCI = "localhost/mpi5"
"""The name of SANDBOX as an image of Podman and Docker, made by `archive`."""


class Operator:
    """A person on the head, who logs in to the nodes as one user."""

    def __init__(self, lab: RootLab, user: str) -> None:
        self.lab, self.user = lab, user
        self.file = str(lab.cluster_file(slots=2))
        text = Path(self.file).read_text().replace("user: lab", f"user: {user}")
        self.file = self.file.replace(".yaml", f".{user}.yaml")
        Path(self.file).write_text(text)

    def on(self, node: str, command: str, limit: float = 60) -> str:
        argv = ["ssh", "-F", str(self.lab.ssh_config), "-l", self.user, node, command]
        done = self.lab.enter(argv, limit=limit)
        return done.stdout + done.stderr

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.lab.rankdeck("-c", self.file, *arguments, "--json", limit=LIMIT)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stdout or not done.returncode, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def run(self, *flags: str, **spec: object) -> dict[str, Any]:
        """The last object that `rankdeck run` prints for this job."""
        job = {"job": "boxed", "nodes": 2, "ranks_per_node": 2, "grace": 2, **spec}
        file = self.lab.folder / "boxed.yaml"
        file.write_text(yaml.safe_dump(job))
        return self.objects("run", str(file), *flags)[-1]

    def job(self, job: str) -> dict[str, Any]:
        """This job in the output of `rankdeck jobs` now."""
        return next(one for one in self.objects("jobs") if one["job"] == job)

    def until(
        self, job: str, true: Callable[[dict[str, Any]], object], limit: float = 120
    ) -> dict[str, Any]:
        """Wait until `true(job)` holds; returns the job as `rankdeck jobs` shows it."""
        return seen_until(lambda: self.job(job), true, limit)

    def lines(self, job: str, stream: str = "out") -> list[str]:
        found = [line for line in self.objects("logs", job) if line["stream"] == stream]
        return [line["text"] for line in sorted(found, key=lambda line: line["rank"] or 0)]

    def first_lines(self, job: str, count: int, limit: float = 60) -> list[str]:
        """The first lines of a running job; fewer if it ends or the time is over."""
        command = [sys.executable, "-m", "rankdeck", "-c", self.file, "logs", job, "--follow"]
        with subprocess.Popen(
            self.lab.command(command),
            env=self.lab.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            # The process that enters the lab is the parent of the command: end both.
            end = Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
            end.start()
            try:
                assert process.stdout is not None
                return list(itertools.islice(process.stdout, count))
            finally:
                end.cancel()
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def left(self, job: str) -> int:
        return sum(self.lab.processes(n, f"RANKDECK_JOB={job}") for n in self.lab.nodes)


def archive(root: Operator) -> str:
    """One archive for all nodes and engines, so that the image has one id; made once a lab."""
    file = f"{root.lab.shared}/oci.tar"
    if Path(file).exists():
        return file
    part = f"{file}.part"
    pack = f"tar -C {SANDBOX} -c . | podman import - {OCI} && podman save -o {part} {OCI}"
    said = root.on("n1", f"({pack}) && chmod 644 {part} && mv {part} {file} && echo saved", 200)
    assert "saved" in said, said
    return file


def load(
    who: Operator, engine: str, archive: str, nodes: tuple[str, ...] = ("n1", "n2")
) -> Operator:
    """The same operator, once the nodes have the image."""
    command = (
        f"{engine} load -q -i {archive} && {engine} image inspect {OCI} >/dev/null && echo there"
    )
    with ThreadPoolExecutor() as threads:
        said = list(threads.map(lambda n: who.on(n, command, 200), nodes))
    assert all("there" in text for text in said), said
    return who


def start_docker(root: Operator, user: Operator) -> None:
    """A Docker daemon on two nodes that keeps away from the network; what runs already stays."""
    bare = (
        "--iptables=false --ip6tables=false --bridge=none --exec-opt=native.cgroupdriver=cgroupfs"
    )
    start = (
        "mkdir -p /var/lib/docker && mount -t tmpfs tmpfs /var/lib/docker && "
        f"(setsid dockerd {bare} >/var/log/dockerd.log 2>&1 </dev/null &)"
    )
    for node in ("n1", "n2"):
        up = lambda node=node: "Server Version" in user.on(node, "docker info")  # noqa: E731
        if not up():
            root.on(node, start)
        assert eventually(up), root.on(node, "tail /var/log/dockerd.log")
