"""Checks of the image and of what may start it."""

from collections.abc import Iterable

from rankdeck.images.advice import push_command
from rankdeck.images.atlas import Lying, difference, enroot_create
from rankdeck.model.health import Level
from rankdeck.model.job import Container
from rankdeck.model.nodeset import fold
from rankdeck.model.units import size
from rankdeck.preflight.case import (
    Case,
    each,
    group,
)
from rankdeck.preflight.findings import Finding, found


def image(case: Case) -> Iterable[Finding]:
    """Other versions of the image, none at all, or nodes that it must be copied to."""
    box = case.spec.container
    lying = {p.node.name: f.image for p, f in case.answered if f.image is not None}
    if box is None or not lying:
        return
    if text := difference(lying):
        yield found(
            Level.BAD,
            "image",
            "",
            f"`{box.image}`: {text}",
            f"bring the right one to all nodes: {push_command(box.runtime, box.image, lying, lying.values(), replace=True)}",
        )
    for error, nodes in group(
        (n, row.error or None) for n, row in lying.items() if row.kind == "failed"
    ).items():
        yield found(Level.BAD, "image", nodes, f"`{box.image}` cannot be looked at: {error}")
    remote = [n for n, row in lying.items() if row.kind == "remote"]
    if remote:
        yield found(
            Level.WARN,
            "image",
            fold(remote),
            f"`{box.image}` is fetched by every rank when it starts",
            _pull(box),
        )
    yield from _missing(case, [n for n, row in lying.items() if row.kind == "missing"])


def _missing(case: Case, nodes: list[str]) -> Iterable[Finding]:
    """Nodes without the image: no trouble where it can be copied."""
    box = case.spec.container
    rows = [f.image for _, f in case.answered if f.image is not None and f.image.there]
    if not nodes or box is None:
        return
    total = rows[0].size if rows else case.image_here
    if box.runtime == "enroot" and "/" not in box.image:
        yield found(
            Level.BAD, "image", fold(nodes), f"no container `{box.image}`", enroot_create(box.image)
        )
    elif any(row.kind == "folder" for row in rows):
        yield found(
            Level.BAD,
            "image",
            fold(nodes),
            f"no `{box.image}`: elsewhere it is a folder, and folders are not copied",
            f"make it a file: `{box.runtime} build {box.image.rstrip('/')}.sif {box.image}`, and name that",
        )
    elif total is None:
        yield found(
            Level.BAD,
            "image",
            fold(nodes),
            f"no image `{box.image}`, nor here or on another node to copy it from",
            f"build or pull it here, then {push_command(box.runtime, box.image, nodes, _rows(case, nodes))}",
        )
    else:
        text = f"no `{box.image}` yet: the launch will copy {size(total)}"
        yield found(Level.OK, "image", fold(nodes), text)
        yield from _no_room(case, nodes, total)


def _rows(case: Case, nodes: Iterable[str]) -> list[Lying]:
    rows = (case.facts[node].image for node in nodes)
    return [row for row in rows if row is not None]


def _pull(box: Container) -> str:
    """How an image that lies in a registry becomes a file."""
    name = box.image.rpartition("/")[2].replace(":", "-")
    pull = {"enroot": f"enroot import -o {name}.sqsh {box.image}"}
    words = pull.get(box.runtime, f"{box.runtime} pull {name}.sif {box.image}")
    return f"pull it once, `{words}`, and name that file"


def _no_room(case: Case, nodes: list[str], total: int) -> Iterable[Finding]:
    for node in nodes:
        row = case.facts[node].image
        if row is not None and row.free is not None and row.free < total:
            yield found(
                Level.BAD,
                "image",
                node,
                f"no room for the image: {size(row.free)} left, {size(total)} needed",
                "make room there, or name another path in `container.image`",
            )


def runtime(case: Case) -> Iterable[Finding]:
    """A kernel that does not let ordinary users start containers."""
    box = case.spec.container
    if box is None or box.runtime not in ("apptainer", "singularity", "podman", "enroot"):
        return
    yield from each(
        case, Level.WARN, "runtime",
        lambda _, f: None if f.userns else "user namespaces are not allowed: only a setuid installation can start containers",
        "`sysctl user.max_user_namespaces=15000`, and on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0`",
    )  # fmt: skip
    if box.runtime in ("apptainer", "singularity") and box.image.endswith(".sif"):
        yield from each(
            case, Level.WARN, "runtime",
            lambda _, f: None if f.fuse else "/dev/fuse cannot be opened: an image file cannot be mounted without setuid",
            "`chmod 0666 /dev/fuse` there, or use an image folder",
        )  # fmt: skip
