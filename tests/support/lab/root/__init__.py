"""The root lab: nodes with a root file system of their own, where containers and Slurm are real.

The same `Lab` as the rootless one, but the nodes are trixie with Apptainer, Podman, Open MPI 5 and
4.1 and Slurm, `/srv/images` holds application images (see image.sh), and root and the ordinary user
`lab` are both real. The images are built once and kept in the cache folder; `python -m
tests.support.lab.root` builds them, brings a lab up and says how to use it.
"""

import fcntl
import functools
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.lab import images, rootless

_SCRIPTS = Path(__file__).parent
_PROGRAMS = ("mmdebstrap", "apt-get", "chroot")
SIF = "/srv/images/mpi5.sif"
SANDBOX = "/srv/images/mpi5"
OLD_SANDBOX = "/srv/images/mpi4"
"""Paths on every node: Open MPI 5 as one file and as a folder, bookworm's 4.1 as a folder."""
OLD_MPI = "/opt/openmpi-4.1.8"
"""Where the nodes have Open MPI 4.1, beside the 5 of /usr/bin."""


IMAGES = images.place_of("rankdeck-lab", [(_SCRIPTS / "image.sh").read_bytes()])
"""Found before any test gets folders of its own."""


@functools.cache
def missing() -> str:
    """Build the images if needed; why the root lab cannot run here, "" if it can."""
    if os.geteuid() != 0:
        return "the root lab needs root"
    lacking = [program for program in _PROGRAMS if not shutil.which(program)]
    if lacking:
        return f"the root lab needs {', '.join(lacking)}"
    return rootless.missing() or images.make_images(IMAGES, "the root lab's images", _build)


def _build(place: Path, log: Path) -> None:
    images.run_build([str(_SCRIPTS / "image.sh"), str(place), sys.executable], log)


class RootLab(rootless.Lab):
    """One running root lab; commands on the head are root's, and log in as `lab`."""

    making = ()
    entering = ()
    node_script = _SCRIPTS / "node.sh"
    homes = "tmpfs"
    python = "python3"

    def __init__(self, folder: Path, count: int = 3, names: Sequence[str] = ()) -> None:
        super().__init__(folder, count, names)
        self._environment["LAB_IMAGES"] = str(IMAGES)
        self._lock = IMAGES.with_suffix(".lock").open("w")

    def up(self) -> None:
        """Keep the images, which nobody may take away now, and start."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        super().up()

    def down(self) -> None:
        """End all of it and let go of the images."""
        super().down()
        self._lock.close()

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` so that it runs on the head, as root."""
        return self._on_head(argv)

    def _helpers(self) -> Path:
        return IMAGES / "none"

    def _kept(self) -> list[str]:
        kept = [self.folder, Path(sys.prefix).resolve()]
        if console_on_nodes():
            kept += [Path(sys.base_prefix).resolve(), rootless.REPOSITORY]
        outer = [path for path in kept if not set(kept) & set(path.parents)]
        return [str(path).lstrip("/") for path in outer]


def console_on_nodes() -> bool:
    """Whether nodes can run the console: its Python has a folder of its own, which they share."""
    return not Path(sys.base_prefix).resolve().is_relative_to("/usr")
