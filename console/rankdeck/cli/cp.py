"""`rankdeck cp`: files to many nodes, and from them."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.copying import print_copied, push_and_tell, said_when_stopped
from rankdeck.cli.opening import open_for_command, until_done
from rankdeck.cli.output import UsageError
from rankdeck.config.files import expand_path
from rankdeck.images.bring import file_name
from rankdeck.images.copy import FetchState
from rankdeck.model.cluster import Cluster


def run_cp(options: argparse.Namespace, _open_console: object) -> int:
    """Copy a file to nodes, or from them; exit code 1 if a node failed."""
    cluster = choose.choose_cluster(options.cluster)
    file = expand_path(options.file)
    if not file.exists() and ":" in options.file:
        return _cp_from(cluster, options)
    if not file.is_file():
        what = "a folder; only files are copied" if file.is_dir() else "no such file"
        raise UsageError(f"{file}: {what}")
    text, _, path = options.to.partition(":")
    return until_done(_cp(cluster, file, choose.expand_node_option(cluster, text), path, options))


def _cp_from(cluster: Cluster, options: argparse.Namespace) -> int:
    text, _, path = options.file.partition(":")
    nodes, folder = choose.expand_node_option(cluster, text), expand_path(options.to)
    if not file_name(path) or (folder.exists() and not folder.is_dir()):
        what = f"{folder}: not a folder" if file_name(path) else f"{path}: names no file"
        raise UsageError(f"{what}; write `rankdeck cp NODESET:FILE FOLDER`")
    return until_done(_fetch(cluster, nodes, path, folder, options))


async def _fetch(
    cluster: Cluster, nodes: Sequence[str], path: str, folder: Path, options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        tell = _Fetching(path)
        with said_when_stopped(f"no half file is left, what is in {folder} is whole"):
            failed = await session.images.fetch(
                path, nodes, folder, tell, overwrite=options.replace
            )
    name = folder / file_name(path)
    shape = {"file": path, "files": {n: f"{name}.{n}" for n in nodes if n not in failed}}
    return print_copied(shape, nodes, failed, options, f"{name}.NODE: {path}")


class _Fetching:
    """Prints the progress on stderr, every second."""

    def __init__(self, path: str) -> None:
        self._path, self._next = path, time.monotonic() + 1.0

    def __call__(self, state: FetchState) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            output.print_progress(f"{self._path}: {state.words}")


async def _cp(
    cluster: Cluster, file: Path, nodes: Sequence[str], path: str, options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        target = f"{path}{file.name}" if path.endswith("/") else path
        place, failed = await push_and_tell(session, file, target, nodes, options)
    shape = {"file": place.path, "size": place.size}
    return print_copied(shape, nodes, failed, options, place.path)
