"""What the commands that copy files and images say meanwhile and at the end."""

import argparse
import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankdeck.cli import output
from rankdeck.cli.shapes import Shape
from rankdeck.errors import NodeError
from rankdeck.images.copy import CopyState, Failed, FilePlace, progress_words
from rankdeck.model.nodeset import fold_nodes
from rankdeck.session import Session

KEPT_THERE = (
    "no half file is seen on a node; what came is kept there, and the same command goes on from it"
)
"""What Ctrl-C leaves of a copy to nodes."""


async def push_and_tell(
    session: Session, file: Path, to: str, nodes: Sequence[str], options: argparse.Namespace
) -> tuple[FilePlace, Failed]:
    """Copy a file to nodes, with progress; Ctrl-C says what is left."""
    with said_when_stopped(KEPT_THERE):
        tell = CopyProgress(file.name)
        return await session.images.push(file, to, nodes, tell, overwrite=options.replace)


@contextmanager
def said_when_stopped(words: str) -> Generator[None]:
    """In this block, Ctrl-C prints a line about what is left."""
    try:
        yield
    except asyncio.CancelledError:
        output.print_progress(f"rankdeck: stopped; {words}")
        raise


def print_copied(
    shape: Shape,
    nodes: Sequence[str],
    failed: Mapping[str, NodeError],
    options: argparse.Namespace,
    well: str,
) -> int:
    """Print which nodes have the file and which failed; returns the exit code."""
    for error in failed.values():
        output.print_progress(f"rankdeck: {error}")
    there = [node for node in nodes if node not in failed]
    if options.json:
        output.say_object(
            {**shape, "nodes": there, "failed": {n: e.why for n, e in failed.items()}}
        )
    elif there:
        output.print_text(f"{well} on {fold_nodes(there)}")
    return output.TROUBLE if failed else output.OK


class CopyProgress:
    """Prints on stderr the progress of a copy, at most once a second, and failures at a launch."""

    def __init__(self, name: str) -> None:
        self._name, self._next, self._complete = name, 0.0, False

    def __call__(self, progress: CopyState | str) -> None:
        if isinstance(progress, str):
            output.print_progress(progress)
            return
        complete = bool(progress.done) and all(
            done >= progress.total for done in progress.done.values()
        )
        if progress.sent and (progress.seconds >= self._next or (complete and not self._complete)):
            self._next, self._complete = progress.seconds + 1.0, complete
            output.print_progress(f"{self._name}: {progress_words(progress)}")
