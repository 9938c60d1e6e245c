"""`rankdeck images`: which image lies where; `rankdeck images push`: bring a file to nodes."""

import argparse
import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.opening import opened, until_done
from rankdeck.cli.shapes import Shape, image_shape
from rankdeck.errors import ConfigError, NodeError
from rankdeck.images.bring import ImageAt, WantedImage, difference, short, wanted_by
from rankdeck.images.copy import CopyState, progress_words
from rankdeck.model.cluster import Cluster
from rankdeck.model.nodeset import fold
from rankdeck.model.text import size
from rankdeck.runtimes import has_store
from rankdeck.session import Session


def images(options: argparse.Namespace, _open_console: object) -> int:
    """Show the images of the job files, or push one; the code says whether all is well."""
    cluster = choose.cluster(options.cluster)
    words: list[str] = options.words
    if words[:1] == ["push"]:
        if len(words) != 3:
            raise output.UsageError("write `rankdeck images push FILE NODESET`")
        file, nodes = Path(words[1]), choose.nodes(cluster, words[2])
        if not file.is_file():
            raise output.UsageError(f"no file {file}")
        if has_store(options.runtime):
            return until_done(_load(cluster, file, nodes, options))
        return until_done(_push(cluster, file, nodes, options))
    if len(words) > 1:
        raise output.UsageError("write `rankdeck images [NODESET]`")
    return until_done(_show(cluster, choose.nodes(cluster, "".join(words)), options))


# ---- show ------------------------------------------------------------------------------


async def _show(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with opened(cluster) as session:
        wanted = _wanted(session, options.image, options.runtime)
        if not wanted:
            output.progress("no job file names an image; name one with --image PATH")
        shapes: list[Shape] = []
        rows: list[tuple[str, ...]] = []
        well = True
        for one in wanted:
            output.progress(f"{one.image}: asking {len(nodes)} nodes …")
            found = await session.images.look(nodes, one)
            told = {n: row for n, row in found.items() if isinstance(row, ImageAt)}
            differs = difference(told)
            well = well and not differs and len(told) == len(found)
            shapes.append(_shape(one, found, differs))
            rows += _rows(one, found, differs)
    if options.json:
        output.say_object({"cluster": cluster.name, "images": shapes})
    elif rows:
        output.say_table(("IMAGE", "RUNTIME", "DIGEST", "SIZE", "NODES"), rows)
    return output.OK if well else output.TROUBLE


def _wanted(session: Session, named: str, runtime: str) -> tuple[WantedImage, ...]:
    """The image asked for, else those of all job files that can be read."""
    if named:
        return (WantedImage(runtime or "apptainer", named),)
    found: dict[WantedImage, None] = {}
    for path in session.job_files():
        try:
            wanted = wanted_by(session.read_job(path))
        except ConfigError:
            continue  # `rankdeck check` says what is wrong with it.
        if wanted is not None:
            found[wanted] = None
    return tuple(found)


def _shape(wanted: WantedImage, found: dict[str, ImageAt | NodeError], differs: str) -> Shape:
    return {
        "image": wanted.image,
        "runtime": wanted.runtime,
        "same": not differs,
        "nodes": {node: image_shape(row) for node, row in found.items()},
    }


def _rows(
    wanted: WantedImage, found: dict[str, ImageAt | NodeError], differs: str
) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for node, row in found.items():
        groups.setdefault(_cells(row), []).append(node)
    name = f"{wanted.image} (DIFFERENT)" if differs else wanted.image
    return [(name, wanted.runtime, *cells, fold(nodes)) for cells, nodes in groups.items()]


def _cells(row: ImageAt | NodeError) -> tuple[str, str]:
    if isinstance(row, NodeError):
        return row.why, "–"
    if not row.there:
        return row.error or row.kind, "–"
    return short(row.digest), size(row.size)


# ---- push ------------------------------------------------------------------------------


async def _push(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    async with opened(cluster) as session:
        output.progress(f"{file}: reading its digest …")
        printer = CopyProgress(file.name)
        with said_when_stopped(KEPT_THERE):
            place, failed = await session.images.push(
                file, options.to, nodes, printer, overwrite=options.replace
            )
    shape: Shape = {"image": place.path, "digest": place.sha256, "size": place.size}
    return told(shape, nodes, failed, options, f"{place.path}: sha256 {place.sha256}")


async def _load(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    """Into the stores: it is they that know the image's digest."""
    shape = {"image": str(file), "digest": "", "size": file.stat().st_size}  # noqa: ASYNC240
    async with opened(cluster) as session:
        failed = await session.images.load(file, options.runtime, nodes, CopyProgress(file.name))
    return told(shape, nodes, failed, options, f"{file}: in {options.runtime}'s store")


@contextmanager
def said_when_stopped(words: str) -> Generator[None]:
    """Within it, Ctrl-C is answered with a line on what is left."""
    try:
        yield
    except asyncio.CancelledError:
        output.progress(f"rankdeck: stopped; {words}")
        raise


KEPT_THERE = (
    "no half file is seen on a node; what came is kept there, and the same command goes on from it"
)
"""What Ctrl-C leaves of a copy to nodes."""


def told(
    shape: Shape,
    nodes: Sequence[str],
    failed: Mapping[str, NodeError],
    options: argparse.Namespace,
    well: str,
) -> int:
    """Say who has it and who failed; the exit status."""
    for error in failed.values():
        output.progress(f"rankdeck: {error}")
    there = [node for node in nodes if node not in failed]
    if options.json:
        output.say_object(
            {**shape, "nodes": there, "failed": {n: e.why for n, e in failed.items()}}
        )
    elif there:
        output.say(f"{well} on {fold(there)}")
    return output.TROUBLE if failed else output.OK


class CopyProgress:
    """Says on stderr how far a copy is, not more often than every second, and what fails at a launch."""

    def __init__(self, name: str) -> None:
        self._name, self._next, self._complete = name, 0.0, False

    def __call__(self, progress: CopyState | str) -> None:
        if isinstance(progress, str):
            output.progress(progress)
            return
        complete = bool(progress.done) and all(
            done >= progress.total for done in progress.done.values()
        )
        if progress.sent and (progress.seconds >= self._next or (complete and not self._complete)):
            self._next, self._complete = progress.seconds + 1.0, complete
            output.progress(f"{self._name}: {progress_words(progress)}")
