"""A keeper process on the double: its run folder, its output, and ways to end it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
JOB = "j"


class Kept:
    """One job of `pods` ranks, a pod each, that pretend: rank N writes `line 1`, `line 2`, …"""

    def __init__(self, double: Double, kubectl: Path, folder: Path, pods: int = 2, **settings):
        self.double, self.pods = double, pods
        self.config = double.kubeconfig("keeper")
        self.environment = {
            **os.environ,
            "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.config),
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT / "agents"),
            "RANKDECK_STATE": str(folder / "state" / "rankdeck"),
            "TMPDIR": str(folder / "tmp"),
        }
        path = folder / "state" / "rankdeck" / "jobs" / JOB / "here"
        (path / "launcher").mkdir(parents=True)
        (folder / "tmp").mkdir()
        for rank in range(pods):
            (path / f"rank.{rank}").mkdir()
        (path / "events").touch()
        self.folder = RunFolder(path, JOB, "here")
        retries = settings.pop("retries", 0)
        target = {"name": JOB, "namespace": "default", "wanted": pods, "ranks": pods, "grace": 2.0}
        (path / "kubernetes.json").write_text(json.dumps(target | settings))
        job = indexed_job(JOB, ["sh", "-c", "true"], pods)
        job["spec"]["backoffLimit"] = retries
        job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure" if retries else "Never"
        job["spec"]["template"]["metadata"] = {"labels": {"rankdeck/job": JOB}}
        (path / "manifest.json").write_text(json.dumps([job]))
        self.process: subprocess.Popen[bytes] | None = None
        self.files = 0
        """How many files the keeper may open; 0: as this process."""

    def manifest(self) -> dict[str, Any]:
        """The Job that the keeper would create."""
        return json.loads((self.folder / "manifest.json").read_text())[0]

    def speak(self, *, every: float = 0.05, lasting: float = 3.0, code: int = 0, rank: int = -1):
        """Set what the ranks (or one of them) do from now on."""
        for one in range(self.pods) if rank < 0 else (rank,):
            first = (f"[rank {one} start] {JOB}-{one}",)
            script = Script(f"[rank {one} out] line {{n}}", every, lasting, code, first)
            self.double.script(f"{JOB}-{one}-.*", script)

    def start(self) -> "Kept":
        with (self.folder / "launcher/out").open("ab") as out:
            limited = ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh"] if self.files else []
            self.process = subprocess.Popen(
                [
                    *limited,
                    sys.executable,
                    "-m",
                    "rankdeck_agent",
                    "kubernetes",
                    "keep",
                    JOB,
                    "here",
                ],
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def wait(self, limit: float = 60) -> int:
        """Its exit status."""
        return self.process.wait(limit)

    def term(self, limit: float = 30) -> int:
        self.process.terminate()
        return self.process.wait(limit)

    def kill(self) -> None:
        """Send SIGKILL to the keeper alone; its kubectl ends with it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def agent(self, *words: str) -> dict:
        """The answer of another command of the agent on that machine."""
        done = subprocess.run(
            [sys.executable, "-m", "rankdeck_agent", *words],
            env=self.environment,
            capture_output=True,
            timeout=300,
            check=False,
        )
        return json.loads(done.stdout or done.stderr)

    def down(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    # ---- what it left

    def said(self) -> str:
        return (self.folder / "launcher/out").read_text()

    def lines(self, rank: int) -> list[str]:
        log = self.folder.place(rank) / "out"
        return log.read_text().splitlines() if log.exists() else []

    def exit(self, rank: int) -> str:
        file = self.folder.place(rank) / "exit"
        return file.read_text().strip() if file.exists() else ""

    def runs(self, lines: int = 3, limit: float = 30) -> None:
        """Wait until every rank has written that many lines."""
        wait_until(
            lambda: all(len(self.lines(rank)) >= lines for rank in range(self.pods)),
            limit,
            "lines of every rank",
        )

    def written(self, rank: int) -> list[str]:
        """All lines of the rank, as the cluster has them."""
        return self.double.do(self._written, rank)

    def _written(self, rank: int) -> list[str]:
        texts: list[str] = []
        for kept in self.double.logs.values():
            for runs in kept.runs.values():
                for log in runs:
                    texts += [line.decode() for _, line in log.lines]
        mark = f"[rank {rank} out] "
        return [text.removeprefix(mark) for text in texts if text.startswith(mark)]

    def kubectls(self) -> list[int]:
        """Pids of the running `kubectl proxy` processes of this keeper."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                told = path.read_bytes()
                words = path.with_name("cmdline").read_bytes()
            except OSError:
                continue
            if f"KUBECONFIG={self.config}\0".encode() in told and b"\0proxy\0" in words:
                found.append(int(path.parent.name))
        return found
