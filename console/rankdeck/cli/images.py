"""`rankdeck images`: who has which image; copies of it to nodes."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.copying import CopyProgress, print_copied, push_and_tell
from rankdeck.cli.opening import open_for_command, until_done
from rankdeck.cli.shapes import Shape, image_shape
from rankdeck.errors import ConfigError, NodeError
from rankdeck.images.bring import ImageAt, WantedImage, describe_versions, short_digest, wanted_by
from rankdeck.model.capabilities import capabilities_of
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import fold_nodes
from rankdeck.runtimes import has_store
from rankdeck.session import Session
from rankdeck_agent.rules.units import write_size


def run_images(options: argparse.Namespace, _open_console: object) -> int:
    """Show the images of the job files, or push one; the exit code says whether all is well."""
    cluster = choose.choose_cluster(options.cluster)
    words: list[str] = options.words
    if words[:1] == ["push"]:
        if len(words) != 3:
            raise output.UsageError("write `rankdeck images push FILE NODESET`")
        file, nodes = Path(words[1]), choose.expand_node_option(cluster, words[2])
        if not file.is_file():
            raise output.UsageError(f"no file {file}")
        if has_store(options.runtime):
            return until_done(_load(cluster, file, nodes, options))
        return until_done(_push(cluster, file, nodes, options))
    if len(words) > 1:
        raise output.UsageError("write `rankdeck images [NODESET]`")
    return until_done(_show(cluster, choose.expand_node_option(cluster, "".join(words)), options))


async def _show(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        wanted = _wanted(session, options.image, options.runtime)
        if not wanted:
            output.print_progress("no job file names an image; name one with --image PATH")
        shapes: list[Shape] = []
        rows: list[tuple[str, ...]] = []
        well = True
        for one in wanted:
            output.print_progress(f"{one.image}: asking {len(nodes)} nodes …")
            found = await session.images.look(nodes, one)
            answered = {n: row for n, row in found.items() if isinstance(row, ImageAt)}
            differs = describe_versions(answered)
            well = well and not differs and len(answered) == len(found)
            shapes.append(
                {
                    "image": one.image,
                    "runtime": one.runtime,
                    "same": not differs,
                    "nodes": {node: image_shape(row) for node, row in found.items()},
                }
            )
            rows += _rows(one, found, differs)
    if options.json:
        output.say_object({"cluster": cluster.name, "images": shapes})
    elif rows:
        output.say_table(("IMAGE", "RUNTIME", "DIGEST", "SIZE", "NODES"), rows)
    return output.OK if well else output.TROUBLE


def _wanted(session: Session, named: str, runtime: str) -> tuple[WantedImage, ...]:
    """The image that is named, or else those of all job files that can be read."""
    if named:
        return (WantedImage(runtime or "apptainer", named),)
    found: dict[WantedImage, None] = {}
    for path in session.control.job_files():
        try:
            job = session.control.read_job(path)
        except ConfigError:
            continue  # `rankdeck check` says what is wrong with it.
        wanted = None if _is_elsewhere(job, session.cluster) else wanted_by(job)
        if wanted is not None:
            found[wanted] = None
    return tuple(found)


def _is_elsewhere(job: JobSpec, cluster: Cluster) -> bool:
    """Whether a job has options for pods, whose nodes pull their images themselves, and this
    cluster has none.
    """
    sections = {key.partition(".")[0] for key in job.options}
    return not cluster.can.pods and any(capabilities_of(name).pods for name in sections)


def _rows(
    wanted: WantedImage, found: dict[str, ImageAt | NodeError], differs: str
) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for node, row in found.items():
        groups.setdefault(_cells(row), []).append(node)
    name = f"{wanted.image} (DIFFERENT)" if differs else wanted.image
    return [(name, wanted.runtime, *cells, fold_nodes(nodes)) for cells, nodes in groups.items()]


def _cells(row: ImageAt | NodeError) -> tuple[str, str]:
    if isinstance(row, NodeError):
        return row.why, "–"
    if not row.there:
        return row.error or row.kind, "–"
    return short_digest(row.digest), write_size(row.size)


async def _push(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        output.print_progress(f"{file}: reading its digest …")
        place, failed = await push_and_tell(session, file, options.to, nodes, options)
    shape: Shape = {"image": place.path, "digest": place.sha256, "size": place.size}
    return print_copied(shape, nodes, failed, options, f"{place.path}: sha256 {place.sha256}")


async def _load(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    """Load the archive into the nodes' image stores."""
    shape = {"image": str(file), "digest": "", "size": file.stat().st_size}  # noqa: ASYNC240
    async with open_for_command(cluster) as session:
        failed = await session.images.load(file, options.runtime, nodes, CopyProgress(file.name))
    return print_copied(shape, nodes, failed, options, f"{file}: in {options.runtime}'s store")
