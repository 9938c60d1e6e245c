"""Copies an image to the nodes that lack it; refuses if nodes have different versions."""

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from rankdeck.errors import LaunchError, NodeError
from rankdeck.images.copy import Tell, copy
from rankdeck.images.endpoints import (
    ImageSource,
    LocalFile,
    NodeFile,
    NodeOutput,
    NodeStore,
    Place,
    sha256_of,
)
from rankdeck.images.locate import (
    STORES,
    ImageAt,
    WantedImage,
    difference,
    enroot_create,
    local_image,
    look,
    wanted_by,
)
from rankdeck.model.job import JobSpec
from rankdeck.model.nodeset import fold
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import Channel, OnData


def push_command(
    runtime: str, image: str, nodes: Iterable[str], rows: Iterable[ImageAt] = (), *, replace: bool = False,
) -> str:  # fmt: skip
    """The `rankdeck images push` for these nodes, in backquotes; `rows` tell the image's path there."""
    where = fold(nodes)
    if runtime in STORES:
        name = PurePosixPath(image.partition("@")[0]).name.partition(":")[0]
        save = shlex.join([runtime, "save", "-o", f"{name}.tar", image])
        push = ["rankdeck", "images", "push", "--runtime", runtime, f"{name}.tar", where]
        return f"`{save}`, then `{shlex.join(push)}`"
    paths = {row.path for row in rows if row.path.startswith("/")}
    flag = ["--replace"] if replace else []
    place = ["--to", *paths] if len(paths) == 1 else []
    words = ["rankdeck", "images", "push", *flag, image, where, *place]
    return f"`{shlex.join(words)}`"


log = logging.getLogger(__name__)
Found = Mapping[str, ImageAt]


@dataclass(frozen=True, slots=True)
class ImageDistributor:
    """What copies images of one cluster."""

    agents: Agents

    async def look(
        self, nodes: Iterable[str], wanted: WantedImage
    ) -> dict[str, ImageAt | NodeError]:
        """How an image lies on each of the nodes, or why that one could not say."""
        return await look(self.agents, nodes, wanted)

    async def bring(self, spec: JobSpec, nodes: Sequence[str], tell: Tell) -> tuple[str, ...]:
        """Copy the job's image to those of the nodes that lack it, and give these.

        Raises LaunchError where two versions lie around, there is none, or a copy fails.
        """
        wanted = wanted_by(spec)
        if wanted is None:
            return ()
        found = _complete(await self.look(nodes, wanted), wanted)
        _refuse(found, wanted)
        lacking = tuple(node for node, row in found.items() if row.kind == "missing")
        if not lacking:
            return ()
        source, place = await self._source(spec, wanted, found)
        receiving = _receiving(lacking, found)
        failed = await self._copy(source, place, wanted, receiving, tell)
        _check(failed, "copy the image to")
        again = _complete(await self.look(nodes, wanted), wanted)
        _refuse(again, wanted)
        if without := [node for node, row in again.items() if not row.there]:
            raise LaunchError("prepare", f"`{wanted.image}` did not arrive on {fold(without)}")
        log.info("%s copied to %s", wanted.image, fold(lacking), extra={"source": spec.name})
        return lacking

    async def push(
        self,
        file: Path,
        to: str,
        nodes: Sequence[str],
        tell: Tell,
        *,
        overwrite: bool = False,
    ) -> tuple[Place, dict[str, NodeError]]:
        """Copy a file of this machine to a path on the nodes; gives where, and who failed."""
        source = LocalFile(file)
        place = Place(to or file.name, "", source.size, await sha256_of(file), overwrite)
        wanted = WantedImage("none", place.path)
        found = await self.look(nodes, wanted)
        receiving = _receiving(nodes, {n: r for n, r in found.items() if isinstance(r, ImageAt)})
        return place, await self._copy(source, place, wanted, receiving, tell)

    async def load(
        self, archive: Path, runtime: str, nodes: Sequence[str], tell: Tell
    ) -> dict[str, NodeError]:
        """Load what `podman save` or `docker save` wrote here into the nodes' stores; gives who failed."""
        wanted = WantedImage(runtime, archive.name)
        place = Place(archive.name, "", 0, "")
        return await self._copy(LocalFile(archive), place, wanted, nodes, tell)

    async def _copy(
        self,
        source: ImageSource,
        place: Place,
        wanted: WantedImage,
        nodes: Sequence[str],
        tell: Tell,
    ) -> dict[str, NodeError]:
        if place.sha256:
            targets = [NodeFile(self.agents, node, place) for node in nodes]
        else:
            targets = [NodeStore(self.agents.shell, node, wanted.runtime) for node in nodes]
        return await copy(source, targets, tell)

    async def _source(
        self, spec: JobSpec, wanted: WantedImage, found: Found
    ) -> tuple[ImageSource, Place]:
        """A node that has it, else this machine; raises LaunchError."""
        place = Place(wanted.image, wanted.base, 0, "")
        for node, row in found.items():
            if row.kind == "store":
                return NodeOutput(node, partial(self._save, node, wanted), row.size), place
            if row.kind == "file":
                place = replace(place, size=row.size, sha256=row.digest)
                return NodeOutput(node, partial(self._send, node, row.path), row.size), place
        file = local_image(spec)
        if file is None:
            raise LaunchError("prepare", _nowhere(wanted, found))
        source = LocalFile(file)
        return source, replace(place, size=source.size, sha256=await sha256_of(file))

    async def _save(self, node: str, wanted: WantedImage, _: int, take: OnData) -> Channel:
        save = (wanted.runtime, "save", wanted.image)
        return await self.agents.shell.open(node, save, take)

    async def _send(self, node: str, path: str, offset: int, take: OnData) -> Channel:
        return await self.agents.open(node, ("image", "send", "--", path, str(offset)), take)


def _complete(found: Mapping[str, ImageAt | NodeError], wanted: WantedImage) -> Found:
    """What every node said; raises LaunchError where one could not."""
    _check({n: e for n, e in found.items() if isinstance(e, NodeError)}, "look at")
    rows = {n: row for n, row in found.items() if isinstance(row, ImageAt)}
    for node, row in rows.items():
        if row.kind == "failed":
            raise LaunchError(
                "prepare", f"{node}: `{wanted.image}` cannot be looked at: {row.error}"
            )
    return rows


def _check(failed: Mapping[str, NodeError], what: str) -> None:
    if failed:
        first = next(iter(failed.values()))
        more = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
        raise LaunchError("prepare", f"could not {what} {first}{more}") from first


def _refuse(found: Found, wanted: WantedImage) -> None:
    if text := difference(found):
        raise LaunchError(
            "prepare",
            f"`{wanted.image}`: {text}; bring the right one to all nodes: "
            + push_command(wanted.runtime, wanted.image, found, found.values(), replace=True),
        )


def _receiving(nodes: Sequence[str], found: Found) -> list[str]:
    """One node for each network file system, and all that have it on their own disk."""
    seen: set[str] = set()
    chosen: list[str] = []
    for node in nodes:
        mount = found[node].mount if node in found else ""
        if not mount or mount not in seen:
            chosen.append(node)
        seen.add(mount)
    return chosen


def _nowhere(wanted: WantedImage, found: Found) -> str:
    lacking = fold(node for node, row in found.items() if row.kind == "missing")
    if wanted.runtime == "enroot" and "/" not in wanted.image:
        return f"no container `{wanted.image}` on {lacking}: {enroot_create(wanted.image)}"
    if any(row.kind == "folder" for row in found.values()):
        return f"`{wanted.image}` is a folder on some nodes and missing on others; folders are not copied: make it a file"
    push = push_command(wanted.runtime, wanted.image, found, found.values())
    return f"no image `{wanted.image}` on {fold(found)}, nor here: build or pull it, then {push}"
