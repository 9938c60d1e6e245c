"""Describes container images on this node: as a file, as a folder, or in the store of an engine."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional, cast

from rankdeck_agent.container_engines import ENGINES
from rankdeck_agent.file_system import measure_room
from rankdeck_agent.images.digests import (
    FAR_SETTLED,
    SETTLED,
    TooSlowError,
    file_digest,
    folder_digest,
)
from rankdeck_agent.text import plain_line

_STORE_LIMIT = 20.0
Row = dict[str, Any]


def describe_image(runtime: str, image: str, base: str = "", limit: Optional[float] = None) -> Row:
    """A row about an image on this node.

    `kind`: file, folder, store, remote, missing or failed. `digest`: "" for a file that could not
    be read within `limit` seconds. `free`: bytes free there. `mount`: the network file system that
    it is on, or "".
    """
    if runtime in ENGINES:
        return _in_store(runtime, image)
    if "://" in image:
        return {"kind": "remote", "path": image}
    path = image_path(runtime, image, base)
    row: Row = {"path": str(path), **measure_room(path)}
    try:
        if path.is_dir():
            digest, size = folder_digest(path)
            return {**row, "kind": "folder", "digest": digest, "size": size}
        if not path.exists():
            return {**row, "kind": "missing"}
        size, digest = path.stat().st_size, ""
        with suppress(TooSlowError):
            digest = file_digest(path, limit, settled=FAR_SETTLED if row.get("mount") else SETTLED)
    except OSError as error:
        return {**row, "kind": "failed", "error": plain_line(f"{error.strerror or error}")}
    return {**row, "kind": "file", "size": size, "digest": digest}


def image_path(runtime: str, image: str, base: str) -> Path:
    """The path where the runtime looks for the image: relative to `base`,
    which is relative to the home folder.
    """
    path = Path.home() / Path(base or "~").expanduser() / Path(image).expanduser()
    if runtime == "enroot" and "/" not in image and not path.exists():
        data = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
        return Path(os.environ.get("ENROOT_DATA_PATH") or f"{data}/enroot") / image
    return path


def _in_store(runtime: str, image: str) -> Row:
    """The row of an image in the store of podman or docker, with its digest there."""
    if not shutil.which(runtime):
        return {"kind": "failed", "path": image, "error": f"no `{runtime}` here"}
    ask = [runtime, "image", "inspect", "--format", "{{.Id}} {{.Size}}", "--", image]
    try:
        done = subprocess.run(
            ask,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            timeout=_STORE_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"kind": "failed", "path": image, "error": plain_line(str(error))}
    return _store_row(image, done.returncode, done.stdout, done.stderr)


def _store_row(image: str, code: int, out: str, err: str) -> Row:
    words = out.split()
    if code == 0 and len(words) == 2 and words[1].isdecimal():
        digest = words[0] if ":" in words[0] else f"sha256:{words[0]}"
        return {
            "kind": "store",
            "path": image,
            "digest": plain_line(digest, 80),
            "size": int(words[1]),
        }
    error = plain_line(err.strip().splitlines()[-1] if err.strip() else f"exit status {code}")
    unknown = any(
        word in error.lower() for word in ("no such image", "not known", "no such object")
    )
    return {"kind": "missing" if unknown else "failed", "path": image, "error": error}


def describe_images(request: Mapping[str, Any]) -> list[Row]:
    """The rows for `{"images": [[runtime, image, base], …], "limit": seconds | null}`."""
    limit = request.get("limit")
    asked = request.get("images")
    rows: list[Row] = []
    for item in cast("list[Any]", asked) if isinstance(asked, list) else []:
        runtime, image, base = (str(word) for word in item)
        rows.append(describe_image(runtime, image, base, limit))
    return rows
