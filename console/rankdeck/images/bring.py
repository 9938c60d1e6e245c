"""Finds which node has which version of an image, and copies the image to nodes that lack it."""

import asyncio
import json
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from rankdeck.config.files import expand_path
from rankdeck.errors import AgentError, LaunchError, NodeError, UnreachableError
from rankdeck.images.copy import (
    Failed,
    FilePlace,
    ImageSource,
    LocalFile,
    NodeOutput,
    NodeStore,
    ReceivedFile,
    Tell,
    TellFetch,
    copy_image,
    fetch_files,
    places_for,
    sha256_of,
)
from rankdeck.model.field_checks import natural_or_zero
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.json_tables import as_tables
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.dialogue import Dialogue
from rankdeck.remote.shell import Channel, OnData, on_each
from rankdeck.runtimes import find_runtime, has_store
from rankdeck.values import Value, replace
from rankdeck_agent.wire import RUN_TOKEN

KINDS = ("file", "folder", "store", "remote", "missing", "failed")
LOOK_LIMIT, SILENCE = 600.0, 30.0
"""Seconds: the first digest of a large image takes as long as reading it;
the agent reports every few seconds.
"""


class WantedImage(Value):
    """An image as a job names it. `base`: the folder to which a relative path refers."""

    runtime: str
    image: str
    base: str = ""


class ImageAt(Value, kw_only=True):
    """An image on one node; `kind` is one of KINDS."""

    kind: str
    path: str = ""
    digest: str = ""
    """"" for a file: it could not be read within the time limit."""
    size: int = 0
    """Bytes."""
    free: int | None = None
    """Free bytes where it is or would be; None: not known."""
    mount: str = ""
    """The network file system that it is on; "" for the node's own disk."""
    error: str = ""
    """Why it cannot be examined, with kind `failed`."""

    @property
    def there(self) -> bool:
        """Whether the node has the image."""
        return self.kind in ("file", "folder", "store")


def wanted_by(spec: JobSpec) -> WantedImage | None:
    """The image of a job; None without a container, or if the
    image is one of the job's own files.
    """
    box = spec.container
    if box is None or RUN_TOKEN in box.image:
        return None
    base = "" if RUN_TOKEN in spec.workdir else spec.workdir
    return WantedImage(box.runtime, box.image, base)


def local_image(spec: JobSpec) -> Path | None:
    """The image file on this machine, at its path relative to the
    job file; None if there is none.
    """
    box = spec.container
    if box is None or "://" in box.image or has_store(box.runtime):
        return None
    path = Path(spec.file).parent / expand_path(box.image)
    return path if path.is_file() else None


async def look_for_images(
    agents: Agents, nodes: Iterable[str], wanted: WantedImage
) -> dict[str, ImageAt | NodeError]:
    """Node -> the image there, or why the node did not answer."""
    asked = [wanted.runtime, wanted.image, wanted.base]
    stdin = json.dumps({"images": [asked], "limit": None}).encode()

    async def one(node: str) -> ImageAt:
        async with agents.dialogue(node, ("image", "look")) as talk:
            talk.channel.write(stdin)
            talk.channel.end()
            rows = image_rows(await _rows(node, talk))
        if not rows:
            raise AgentError(node, "no answer")
        return rows[0]

    found, failed = await on_each(nodes, one)
    return {**found, **failed}


async def _rows(node: str, talk: Dialogue) -> object:
    """The agent's answer about images; until then, it reports every few seconds that it is busy."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + LOOK_LIMIT
    while clock() < deadline:
        answer = await talk.hear(SILENCE)
        if "rows" in answer:
            return answer["rows"]
    raise UnreachableError(node, f"no answer within {LOOK_LIMIT:.0f} s")


def image_rows(raw: object) -> tuple[ImageAt, ...]:
    """An agent's report about images, checked and made printable."""
    return tuple(map(_lying, as_tables(raw, 16)))


def _lying(row: Mapping[str, Any]) -> ImageAt:
    kind = row.get("kind")
    free = row.get("free")
    return ImageAt(
        kind=kind if isinstance(kind, str) and kind in KINDS else "failed",
        path=clean_line(row.get("path"), 400),
        digest=clean_line(row.get("digest"), 80),
        size=natural_or_zero(row.get("size")),
        free=natural_or_zero(free) if isinstance(free, int) else None,
        mount=clean_line(row.get("mount")),
        error=clean_line(row.get("error")),
    )


def describe_versions(found: Mapping[str, ImageAt]) -> str:
    """A sentence that lists the nodes of each version if there is more than one, else ""."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node, image in found.items():
        if image.there:
            # If a digest is missing, files of the same size count as the same version.
            groups.setdefault((image.kind, _identity(image, found)), []).append(node)
    if len(groups) < 2:
        return ""
    parts = (f"{what} on {fold_nodes(nodes)}" for (_, what), nodes in groups.items())
    return "different versions: " + ", ".join(parts)


def _identity(image: ImageAt, found: Mapping[str, ImageAt]) -> str:
    complete = all(other.digest for other in found.values() if other.there)
    return short_digest(image.digest) if complete else f"{image.size} bytes"


def short_digest(digest: str) -> str:
    """The first twelve digits of a digest, with its kind if it is that of a folder (`tree`)."""
    kind, colon, digits = digest.rpartition(":")
    return f"{kind}{colon}{digits[:12]}" if kind == "tree" else digits[:12]


def push_command(
    runtime: str, image: str, nodes: Iterable[str], rows: Iterable[ImageAt] = (), *, replace: bool = False,
) -> str:  # fmt: skip
    """The `rankdeck images push` command for these nodes, in backquotes;
    the path there is taken from `rows`.
    """
    where = fold_nodes(nodes)
    if has_store(runtime):
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


class ImageDistributor(Value):
    """Copies images in one cluster."""

    agents: Agents

    async def look(
        self, nodes: Iterable[str], wanted: WantedImage
    ) -> dict[str, ImageAt | NodeError]:
        """Node -> the image there, or why the node did not answer."""
        return await look_for_images(self.agents, nodes, wanted)

    async def bring(self, spec: JobSpec, nodes: Sequence[str], tell: Tell) -> tuple[str, ...]:
        """Copy the job's image to the nodes that lack it; returns these
        nodes. `tell` is called with the progress.

        Raises LaunchError if there are different versions or none at all, or if a copy fails.
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
            raise LaunchError(
                "prepare", f"`{wanted.image}` did not arrive on {fold_nodes(without)}"
            )
        log.info("%s copied to %s", wanted.image, fold_nodes(lacking), extra={"source": spec.name})
        return lacking

    async def push(
        self, file: Path, to: str, nodes: Sequence[str], tell: Tell, *, overwrite: bool = False
    ) -> tuple[FilePlace, dict[str, NodeError]]:
        """Copy a local file to the path `to` on nodes ("": same name);
        returns (place, nodes that failed).
        """
        source = LocalFile(file)
        place = FilePlace(
            to or file.name, "", source.size, await sha256_of(file), overwrite, source.mode
        )
        wanted = WantedImage("none", place.path)
        found = await self.look(nodes, wanted)
        receiving = _receiving(nodes, {n: r for n, r in found.items() if isinstance(r, ImageAt)})
        return place, await self._copy(source, place, wanted, receiving, tell)

    async def fetch(
        self, path: str, nodes: Sequence[str], folder: Path, tell: TellFetch, *, overwrite: bool = False
    ) -> Failed:  # fmt: skip
        """Copy this file from nodes into a local folder, as NAME.NODE; returns failed nodes.

        Raises OSError.
        """
        files, kept = places_for(folder, file_name(path), nodes, overwrite=overwrite)

        def source(node: str) -> NodeOutput:
            return NodeOutput(node, partial(self._fetch, node, path), 0, self.agents.patience)

        return kept | await fetch_files(files, source, tell)

    async def load(
        self, archive: Path, runtime: str, nodes: Sequence[str], tell: Tell
    ) -> dict[str, NodeError]:
        """Load an archive of `podman save` or `docker save` into the nodes'
        stores; returns the nodes that failed.
        """
        wanted = WantedImage(runtime, archive.name)
        place = FilePlace(archive.name, "", 0, "")
        return await self._copy(LocalFile(archive), place, wanted, nodes, tell)

    async def _copy(
        self,
        source: ImageSource,
        place: FilePlace,
        wanted: WantedImage,
        nodes: Sequence[str],
        tell: Tell,
    ) -> dict[str, NodeError]:
        if place.sha256:
            targets = [ReceivedFile(self.agents, node, place) for node in nodes]
        else:
            targets = [NodeStore(self.agents, node, wanted.runtime) for node in nodes]
        return await copy_image(source, targets, tell)

    async def _source(
        self, spec: JobSpec, wanted: WantedImage, found: Found
    ) -> tuple[ImageSource, FilePlace]:
        """The source of the image: a node that has it, else this machine; and its place.

        Raises LaunchError.
        """
        place, patience = FilePlace(wanted.image, wanted.base, 0, ""), self.agents.patience
        for node, row in found.items():
            if row.kind == "store":
                return NodeOutput(
                    node, partial(self._save, node, wanted), row.size, patience
                ), place
            if row.kind == "file":
                place = replace(place, size=row.size, sha256=row.digest)
                return NodeOutput(
                    node, partial(self._send, node, row.path), row.size, patience
                ), place
        file = local_image(spec)
        if file is None:
            raise LaunchError("prepare", _nowhere(wanted, found))
        source = LocalFile(file)
        return source, replace(place, size=source.size, sha256=await sha256_of(file))

    async def _save(self, node: str, wanted: WantedImage, _: int, take: OnData) -> Channel:
        save = (wanted.runtime, "save", wanted.image)
        return await self.agents.shell.open(node, save, take)

    async def _fetch(self, node: str, path: str, _: int, take: OnData) -> Channel:
        return await self.agents.open(node, ("image", "fetch", "--", path), take)

    async def _send(self, node: str, path: str, offset: int, take: OnData) -> Channel:
        return await self.agents.open(node, ("image", "send", "--", path, str(offset)), take)


def file_name(path: str) -> str:
    """The file name in a path; "" if the path can only be a folder."""
    name = PurePosixPath(path).name
    return "" if path.endswith("/") or name == ".." else name


def _complete(found: Mapping[str, ImageAt | NodeError], wanted: WantedImage) -> Found:
    """Node -> the image there; raises LaunchError if any node failed."""
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
    if text := describe_versions(found):
        raise LaunchError(
            "prepare",
            f"`{wanted.image}`: {text}; bring the right one to all nodes: "
            + push_command(wanted.runtime, wanted.image, found, found.values(), replace=True),
        )


def _receiving(nodes: Sequence[str], found: Found) -> list[str]:
    """The nodes to copy to: one for each network file system, and all with
    the image's place on their own disk.
    """
    seen: set[str] = set()
    chosen: list[str] = []
    for node in nodes:
        mount = found[node].mount if node in found else ""
        if not mount or mount not in seen:
            chosen.append(node)
        seen.add(mount)
    return chosen


def _nowhere(wanted: WantedImage, found: Found) -> str:
    lacking = fold_nodes(node for node, row in found.items() if row.kind == "missing")
    if how := find_runtime(wanted.runtime).create(wanted.image):
        return f"no container `{wanted.image}` on {lacking}: {how}"
    if any(row.kind == "folder" for row in found.values()):
        return (
            f"`{wanted.image}` is a folder on some nodes and missing on others; folders are not"
            " copied: make it a file"
        )
    push = push_command(wanted.runtime, wanted.image, found, found.values())
    return (
        f"no image `{wanted.image}` on {fold_nodes(found)}, nor here: build or pull it, then {push}"
    )
