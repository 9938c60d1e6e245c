"""Finds which node has which version of an image."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rankdeck.errors import AgentError, NodeError, UnreachableError
from rankdeck.model.job import JobSpec
from rankdeck.model.nodeset import fold
from rankdeck.model.text import clean
from rankdeck.remote.agent import Agents, Dialogue
from rankdeck.remote.shell import on_each
from rankdeck_agent.wire import RUN_TOKEN

KINDS = ("file", "folder", "store", "remote", "missing", "failed")
STORES = ("podman", "docker")
"""Runtimes that keep images in a store of their own."""
LOOK_LIMIT, SILENCE = 600.0, 30.0
"""Seconds: the first digest of a large image takes as long as reading it; but nothing is silent so long."""


@dataclass(frozen=True, slots=True)
class WantedImage:
    """An image as a job names it. `base`: the folder that a relative path starts from."""

    runtime: str
    image: str
    base: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAt:
    """How an image lies on a node; `kind` is one of KINDS."""

    kind: str
    path: str = ""
    digest: str = ""
    """"" with kind file: it could not be read in the time there was."""
    size: int = 0
    free: int | None = None
    """Bytes that are left where it lies or would lie."""
    mount: str = ""
    """The network file system it is on; "" for the node's own disk."""
    error: str = ""

    @property
    def there(self) -> bool:
        return self.kind in ("file", "folder", "store")


def wanted_by(spec: JobSpec) -> WantedImage | None:
    """The image of a job, or None without a container or where the job brings it itself."""
    box = spec.container
    if box is None or RUN_TOKEN in box.image or box.runtime == "none":
        return None
    base = "" if RUN_TOKEN in spec.workdir else spec.workdir
    return WantedImage(box.runtime, box.image, base)


def local_image(spec: JobSpec) -> Path | None:
    """The image file on this machine: at its path, which is relative to the job file."""
    box = spec.container
    if box is None or "://" in box.image or box.runtime in STORES:
        return None
    path = Path(spec.file).parent / Path(box.image).expanduser()
    return path if path.is_file() else None


async def look(
    agents: Agents, nodes: Iterable[str], wanted: WantedImage
) -> dict[str, ImageAt | NodeError]:
    """How the image lies on each node, or why that node could not say."""
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

    return await on_each(nodes, one)


async def _rows(node: str, talk: Dialogue) -> object:
    """What it says of the images; until then it says every few seconds that it is busy."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + LOOK_LIMIT
    while clock() < deadline:
        answer = await talk.hear(SILENCE)
        if "rows" in answer:
            return answer["rows"]
    raise UnreachableError(node, f"no answer within {LOOK_LIMIT:.0f} s")


def image_rows(raw: object) -> tuple[ImageAt, ...]:
    """What an agent says of images, with everything odd made harmless."""
    rows = cast("list[Any]", raw)[:16] if isinstance(raw, list) else []
    return tuple(_lying(cast("Mapping[str, Any]", row)) for row in rows if isinstance(row, dict))


def _lying(row: Mapping[str, Any]) -> ImageAt:
    kind = row.get("kind")
    free = row.get("free")
    return ImageAt(
        kind=kind if isinstance(kind, str) and kind in KINDS else "failed",
        path=clean(row.get("path"), 400),
        digest=clean(row.get("digest"), 80),
        size=_count(row.get("size")),
        free=_count(free) if isinstance(free, int) else None,
        mount=clean(row.get("mount")),
        error=clean(row.get("error")),
    )


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def difference(found: Mapping[str, ImageAt]) -> str:
    """The sentence that names two versions of one image, or ""."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node, lying in found.items():
        if lying.there:
            # Not read in time: two files of the same size are taken for the same here.
            groups.setdefault((lying.kind, _identity(lying, found)), []).append(node)
    if len(groups) < 2:
        return ""
    parts = (f"{what} on {fold(nodes)}" for (_, what), nodes in groups.items())
    return "different versions: " + ", ".join(parts)


def _identity(lying: ImageAt, found: Mapping[str, ImageAt]) -> str:
    complete = all(other.digest for other in found.values() if other.there)
    return short(lying.digest) if complete else f"{lying.size} bytes"


def enroot_create(name: str) -> str:
    """How a container of Enroot comes about."""
    return f"push its file there, say {name}.sqsh, then `enroot create --name {name} {name}.sqsh`"


def short(digest: str) -> str:
    """The first twelve digits of a digest, with its kind where it is not plain SHA-256."""
    kind, colon, digits = digest.rpartition(":")
    return f"{kind}{colon}{digits[:12]}" if kind == "tree" else digits[:12]
