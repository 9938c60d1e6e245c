"""Shell completion with argcomplete: `rankdeck completion SHELL`, and
the values to offer for each argument.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.shell_integration import shellcode

from rankdeck.cli import choose, output
from rankdeck.config.files import cluster_folders, console_state_folder, job_folders, names_in
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.state.history import History

RECENT = 50
"""How many jobs are offered, the newest first."""
Offer = Callable[..., Iterable[str]]


def run_completion(options: argparse.Namespace, _open_console: object) -> int:
    """Print the code that a shell must read to complete our commands."""
    output.print_text(shellcode(["rankdeck"], shell=options.shell))
    return output.OK


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, in argcomplete's protocol, and exit."""
    argcomplete.autocomplete(parser, always_complete_options="long")


def _quiet(offer: Callable[[argparse.Namespace], Iterable[str]], *suffixes: str) -> Offer:
    """The same as a completer for argcomplete, which also offers files with these
    suffixes; no names if the cluster cannot be read.
    """

    def offered(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
        files = FilesCompleter(suffixes)(prefix) if suffixes else ()
        try:
            return (*offer(parsed_args), *files)
        except RankdeckError:
            return tuple(files)

    return offered


def _cluster(options: argparse.Namespace) -> Cluster:
    return choose.choose_cluster(getattr(options, "cluster", "") or "")


def _clusters(_: argparse.Namespace) -> Iterable[str]:
    return ("demo", *names_in(cluster_folders()))


def _job_files(options: argparse.Namespace) -> Iterable[str]:
    try:
        beside = _cluster(options).file
    except RankdeckError:
        beside = ""
    return names_in(job_folders(beside))


def _clusters_and_jobs(options: argparse.Namespace) -> Iterable[str]:
    return (*names_in(cluster_folders()), *_job_files(options))


def _jobs(options: argparse.Namespace) -> Iterable[str]:
    with History(console_state_folder() / "history.db") as history:
        return history.names(_cluster(options).name, RECENT)


def _nodes(options: argparse.Namespace) -> Iterable[str]:
    return (node.name for node in _cluster(options).nodes)


OFFERS: Mapping[str, Offer] = {
    "cluster": _quiet(_clusters, "yaml", "yml"),
    "file": _quiet(_job_files, "yaml", "yml"),
    "files": _quiet(_clusters_and_jobs, "yaml", "yml"),
    "job": _quiet(_jobs),
    "nodes": _quiet(_nodes),
    "on": _quiet(_nodes),
}
"""Name of an argument -> its completer; other arguments complete file names."""
