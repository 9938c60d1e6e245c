"""A person who uses Rankdeck with one Python: the demo, its nodes,
jobs, and the console in a terminal.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.terminal import Terminal, terminal

LIMIT = 120
NODES = ("sakuya", "sakura", "koishi")


@dataclass(frozen=True)
class Person:
    """Runs commands of Rankdeck; `start` are the words that begin each,
    such as a Python and `-m rankdeck`.
    """

    start: Sequence[str]
    env: Mapping[str, str]
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            [*self.start, *words],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def objects(self, *words: str) -> list[dict[str, Any]]:
        """The JSON objects that a command on the demo prints."""
        done = self.run("-c", "demo", *words, "--json")
        assert done.stdout, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def heard(self) -> list[str]:
        """The nodes whose telemetry comes within a minute."""
        (status,) = self.objects("status", "--wait", "60")
        return [one["name"] for one in status["nodes"] if one["heard_s"] is not None]

    def job(self, name: str, *options: str) -> dict[str, Any]:
        """The end of a job of the samples."""
        return self.objects("run", name, *options)[-1]

    def lines(self, job: str) -> dict[int, list[str]]:
        """Rank -> what it printed."""
        by_rank: dict[int, list[str]] = {}
        for line in self.objects("logs", job):
            if line["stream"] == "out":
                by_rank.setdefault(line["rank"], []).append(line["text"])
        return by_rank

    @contextmanager
    def console(self) -> Iterator[Terminal]:
        """The console on the demo, in a terminal of its own."""
        with terminal([*self.start, "-c", "demo"], self.env) as shown:
            yield shown


@contextmanager
def demo_of(start: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[Person]:
    """Someone with folders of their own and a demo that is up; down at the end."""
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CONFIG", "CACHE")}
    kept = {name: value for name, value in os.environ.items() if name != "RANKDECK_STATE"}
    person = Person(start, {**kept, **own, **env}, folder)
    up = person.run("demo", "up")
    try:
        assert up.returncode == 0, up.stderr
        yield person
    finally:
        person.run("demo", "down")
