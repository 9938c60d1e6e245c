"""The command that brings an image to nodes, as an operator would type it."""

import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath

from rankdeck.images.atlas import STORES, Lying
from rankdeck.model.nodeset import fold


def push_command(
    runtime: str, image: str, nodes: Iterable[str], rows: Iterable[Lying] = (), *, replace: bool = False,
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
