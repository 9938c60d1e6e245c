"""The pages of docs/examples: each line that begins with `$ rankdeck` is run as it stands there.

A page has fenced blocks of the kind `console`: lines `$ rankdeck …`, as an operator types them, and
below each what it prints. `Page.run_lines` reads them out of the page, runs them one after the
other and compares: each line that the page shows has to be printed, but for its numbers. With
RANKDECK_RENEW=1 the page gets what was printed.

`| head -3`, `| grep rank` and `> file` behind a line work as in a shell. `# exit 1` behind it says
how it ends, if not with 0. A block `console rdma` holds lines for one kind of cluster only.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = _ROOT / "docs" / "examples"
_SAMPLES = _ROOT / "sample-clusters"
RENEW = os.environ.get("RANKDECK_RENEW") == "1"
_PROMPT = "$ rankdeck "
_FENCE = re.compile(r"```console ?(\w*)$")
_YAML = re.compile(r"^```yaml\n(job: .*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*(?: ?(?:[kKMGT]i?B|[kMG]bit|[µmn]?s|min|h)\b)?(?:/s\b)?")
_ID = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b|a\d{8}-\d{6}-[0-9a-f]{4}\b|\b[0-9a-f]{12,}\b")
_ENDING = re.compile(r"\s+# exit (\d+)$")

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Line:
    """One command of a page, and what is shown below it."""

    words: str
    shown: tuple[str, ...]
    first: int
    """Where the text that is shown begins in the page, as an index of lines."""

    @property
    def exit_code(self) -> int:
        found = _ENDING.search(self.words)
        return int(found[1]) if found else 0

    def parts(self) -> tuple[list[str], str]:
        """The arguments of rankdeck, and what a shell does with its output."""
        words = _ENDING.sub("", self.words)
        own, sign, rest = next(
            ((words[:at], words[at], words[at:]) for at in _ends(words)), (words, "", "")
        )
        return shlex.split(own), rest if sign else ""


def _ends(words: str) -> Iterator[int]:
    """Where `|` and `>` stand outside of quotes."""
    quote = ""
    for at, sign in enumerate(words):
        if sign in "'\"":
            quote = "" if quote == sign else quote or sign
        elif sign in "|>" and not quote:
            yield at - (words[at - 1] == "2")


class Page:
    """One page; `run` runs rankdeck with arguments, its output and complaints together if asked."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}.md"
        self.rows = self.path.read_text().splitlines()

    def lines(self, kind: str = "") -> list[Line]:
        """The commands in blocks of this kind, in their order."""
        return [line for found, line in self._all_lines() if found == kind]

    def write_jobs(self, folder: Path) -> None:
        """Write the job files that the page shows in blocks of the kind `yaml`."""
        for text in _YAML.findall("\n".join(self.rows)):
            (folder / f"{yaml.safe_load(text)['job']}.yaml").write_text(text)

    def _all_lines(self) -> Iterator[tuple[str, Line]]:
        kind: str | None = None
        words, first = "", 0
        for at, row in enumerate([*self.rows, "```"]):
            if kind is None:
                found = _FENCE.match(row)
                kind = found[1] if found else None
            elif row.startswith((_PROMPT, "```")):
                if words:
                    yield kind, Line(words, tuple(self.rows[first:at]), first)
                kind = None if row == "```" else kind
                words, first = row.removeprefix(_PROMPT).strip("`"), at + 1

    def run_lines(
        self,
        run: Callable[[Sequence[str], bool], Result],
        folder: Path,
        hide: Callable[[str], str] = str,
        kind: str = "",
    ) -> None:
        """Run the commands of one kind in `folder`, and compare or renew what the page shows.

        `hide` gives the text as the page has it: with its addresses instead of those of the lab.
        """
        found: list[tuple[Line, list[str]]] = []
        try:
            for line in self.lines(kind):
                text = hide(_printed(line, run, folder))
                rows = [row.rstrip() for row in text.splitlines()]
                found.append((line, rows))
                lacking = {*map(masked, line.shown)} - {*map(masked, rows)}
                assert RENEW or not lacking, f"rankdeck {line.words}\nlacks {lacking}:\n{text}"
        finally:
            if RENEW:
                self._renew(found)

    def _renew(self, found: Sequence[tuple[Line, Sequence[str]]]) -> None:
        for line, rows in reversed(found):
            self.rows[line.first : line.first + len(line.shown)] = rows
        self.path.write_text("\n".join(self.rows) + "\n")


def masked(row: str) -> str:
    """A line without what differs from run to run."""
    return " ".join(_NUMBER.sub("#", _ID.sub("#", row)).split())


def _printed(line: Line, run: Callable[[Sequence[str], bool], Result], folder: Path) -> str:
    arguments, rest = line.parts()
    began = time.monotonic()
    done = run(arguments, not rest or "2>&1" in rest)
    if RENEW:
        print(f"{time.monotonic() - began:6.1f} s  rankdeck {line.words}")
    said = f"rankdeck {line.words}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == line.exit_code, f"exit {done.returncode}: {said}"
    if not rest:
        return done.stdout
    # A shell does the rest; in place of the command it has what that printed.
    with tempfile.TemporaryDirectory() as kept:
        for name, text in (("out", done.stdout), ("err", done.stderr)):
            (Path(kept) / name).write_text(text)
        script = f"said() {{ cat {kept}/out; cat {kept}/err >&2; }}\n{{ said {rest}; }} 2>&1"
        return subprocess.run(
            ["sh", "-c", script], cwd=folder, text=True, capture_output=True, check=True
        ).stdout


class Desk:
    """`~/.config/rankdeck` of who reads the page: the samples, with the addresses of a lab."""

    def __init__(self, sample: str, environment: Mapping[str, str], lab: Mapping[str, Any]) -> None:
        """Sections of `lab`, a cluster file, take the place of the sample's; None: no such one."""
        self._home = environment["HOME"]
        config = environment.get("XDG_CONFIG_HOME", f"{self._home}/.config")
        self.folder = Path(config) / "rankdeck"
        shutil.copytree(_SAMPLES / "jobs", self.folder / "jobs", dirs_exist_ok=True)
        content = yaml.safe_load((_SAMPLES / f"{sample}.yaml").read_text())
        self._places: dict[str, str] = {}
        for node, other in zip(content.get("nodes", ()), lab.get("nodes", ()), strict=False):
            if node["name"] == other["name"]:
                self._places[other["address"]] = node["address"]
        if "network" in content and "network" in lab:
            self._places[lab["network"]] = content["network"]
        content = {key: value for key, value in {**content, **lab}.items() if value is not None}
        self.cluster = self.folder / "clusters" / f"{sample}.yaml"
        self.cluster.parent.mkdir(exist_ok=True)
        self.cluster.write_text(yaml.safe_dump(content, sort_keys=False))

    def hide(self, text: str) -> str:
        """What a command printed, with the addresses of the sample."""
        for ours, theirs in self._places.items():
            text = text.replace(ours, theirs)
        return text.replace(self._home, "~")
