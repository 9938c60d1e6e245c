"""`rankdeck check` and `trust`: the mistakes in files, and what the files may run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rankdeck.cli import choose, output
from rankdeck.cli.shapes import file_shape
from rankdeck.config.clusters import KEYS as CLUSTER_KEYS
from rankdeck.config.clusters import cluster_from
from rankdeck.config.document import Entry, finish_document, load_document
from rankdeck.config.files import expand_path, find_documents, shown_path
from rankdeck.config.foreign_files import CLUSTER_FILE, JOB_FILE, foreign_named
from rankdeck.config.jobs import KEYS as JOB_KEYS
from rankdeck.config.jobs import job_from
from rankdeck.config.user import Use, allow_uses, noted_uses
from rankdeck.errors import ConfigError, Problem
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec
from rankdeck.schedulers.kubernetes.user_manifests import manifest_named, read_manifest
from rankdeck.schedulers.kubernetes.values import JOB, ClusterAbout
from rankdeck.values import value_table


def run_check(options: argparse.Namespace, _open_console: object) -> int:
    """Read every file; the exit code says whether all can be used."""
    results = [(name, *_read(expand_path(name))) for name in _named(options.files)]
    if options.json:
        output.say_object({"files": [file_shape(*result) for result in results]})
    else:
        for name, kind, problems, uses in results:
            output.print_text(
                "\n".join(map(str, problems)) or f"{name}: {_found_words(name, kind)}"
            )
            for use in uses:
                agreed = "agreed" if use.allowed else "not agreed to: `rankdeck trust`"
                output.print_text(f"{use} ({agreed})")
    wrong = any(problems for _, _, problems, _ in results)
    if options.live and not wrong:
        from rankdeck.cli.opening import until_done  # imports the session, which few need

        asked = [expand_path(name) for name, kind, _, _ in results if kind == "cluster"]
        return max([until_done(_ask(path, options)) for path in asked], default=output.OK)
    return output.BAD_INPUT if wrong else output.OK


def _named(words: Sequence[str]) -> list[str]:
    """The files that are meant, by path or by name, as a person would type them."""
    found = [(word, path) for word in words for path in find_documents(word)]
    return [word if path == Path(word) else shown_path(path) for word, path in found]


async def _ask(path: Path, options: argparse.Namespace) -> int:
    """Print what the scheduler allows; exit code 1 if something that every job needs is missing."""
    cluster = choose.choose_cluster(str(path))
    if not cluster.can.states_rights:
        return output.OK
    from rankdeck.cli.opening import open_for_command
    from rankdeck.schedulers.kubernetes.queue import api_server_of

    async with open_for_command(cluster) as session:
        about = await api_server_of(session.queue).check()
    shape = {"file": str(path), **value_table(about)}
    output.say_result(shape, "\n".join(live_lines(about)), as_json=options.json)
    return output.TROUBLE if about.trouble or about.missing(*NEEDED) else output.OK


MANIFEST = "manifest"
NEEDED = ("launch", "see", "follow", "cancel")
"""Features without which no job can run."""
_FEATURES = {
    "launch": "can be started",
    "tidy": "what lies beside a job goes with it",
    "see": "can be seen",
    "follow": "what ranks write can be read",
    "events": "why a job waits can be told",
    "inspect": "ranks can be asked where they are (`inspect`, silent ones)",
    "cancel": "can be cancelled",
    "force": "pods that do not end in their grace can be killed",
    "fleet": "nodes are shown",
    "devices": "devices that pods ask for are counted",
}
_WITHOUT = {
    "MPIJob": "no MPIJob here: `launch: mpi` needs the MPI Operator (kubeflow.org/v2beta1)",
    "JobSet": "no JobSet here: those of others are not listed",
    "TrainJob": "no TrainJob here: those of others are not listed",
    "PyTorchJob": "no PyTorchJob here: those of others are not listed",
}


def live_lines(about: ClusterAbout) -> list[str]:
    """One sentence for each feature, with what to do if it is missing."""
    lines = [
        f"kubectl: {about.kubectl or 'not found: install it, or name a host that has it (login: HOST)'}"
    ]
    lines += [f"context: {about.context or 'none'}"]
    if about.trouble:
        return [*lines, f"server: {about.trouble}"]
    lines += [f"namespace: {about.namespace}", f"server: {about.server}"]
    lines += [f"{kind}: there" for kind in about.kinds]
    lines += [text for kind, text in _WITHOUT.items() if kind not in about.kinds]
    lines += ["Kueue: there" if about.kueue else "Kueue: not there, `queue` has no effect"]
    asked = dict.fromkeys((one.need, one.kind or JOB) for one in about.rights)
    return [*lines, *(_right_line(about, need, kind) for need, kind in asked)]


def _right_line(about: ClusterAbout, need: str, kind: str) -> str:
    """What this user can do with jobs of this kind, or which rights are missing."""
    what = need if kind == JOB else f"{need} {kind}"
    missing = about.missing(need, kind=kind)
    if not missing:
        return f"{what}: {_FEATURES.get(need, need)}"
    return f"{what}: you may not {', '.join(missing)}; docs/kubernetes.md has the Role"


def _read(path: Path) -> tuple[str, tuple[Problem, ...], tuple[Use, ...]]:
    """(kind of the file, its mistakes, what it would run and read)."""
    try:
        if read_manifest(path) is not None:
            return MANIFEST, (), ()
        document, uses = look_at(path)
    except ConfigError as error:
        return "", error.problems, ()
    return ("cluster" if isinstance(document, Cluster) else "job"), (), uses


def _found_words(name: str, kind: str) -> str:
    """What a file without mistakes is, and for a manifest what can be done with it."""
    found = read_manifest(expand_path(name)) if kind == MANIFEST else None
    if found is None:
        return f"{kind} ok"
    return f"a manifest of Kubernetes ({found.words}): `rankdeck run {name}` applies and follows it"


def run_trust(options: argparse.Namespace, _open_console: object) -> int:
    """Trust these files, and print all that they would run and read."""
    for name in _named(options.files):
        _, uses = look_at(expand_path(name))
        for use in uses:
            output.print_text(str(use))
        allow_uses(uses)
        output.print_text(f"{name}: {len(uses) or 'nothing'} to agree to")
    return output.OK


def look_at(path: Path) -> tuple[Cluster | JobSpec, tuple[Use, ...]]:
    """The cluster or job in `path`, and what it would run and read (nothing is
    run); raises ConfigError with all mistakes.
    """
    with manifest_named(path), foreign_named(path, JOB_FILE, CLUSTER_FILE):
        root = load_document(path)
        document = job_from(root) if _is_job(root) else cluster_from(root)
        uses = noted_uses(root)
        root.problems[:] = [p for p in root.problems if not isinstance(p, Use)]
        finish_document(root)
    return document, uses


def _is_job(root: Entry) -> bool:
    """Whether this is a job file, by the key `job` or `cluster`; if
    neither is there, by the other keys.
    """
    noted = len(root.problems)
    keys = root.fields().keys() if root.kind == "map" else set[str]()
    del root.problems[noted:]
    if "job" in keys or "cluster" in keys:
        return "cluster" not in keys
    return len(keys & set(JOB_KEYS)) > len(keys & set(CLUSTER_KEYS))
