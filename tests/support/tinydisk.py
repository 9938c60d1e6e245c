"""A disk of one megabyte in its own mount namespace: only commands that run there see it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_HOLD = 'mount -t tmpfs -o "$2" tiny "$1" && echo ready && exec sleep 600'


class TinyDisk:
    """The disk, and commands that see it at `path`."""

    def __init__(self, path: Path, pid: int) -> None:
        self.path, self._pid = path, pid

    @property
    def seen(self) -> Path:
        """The same folder, as seen from outside the namespace."""
        return Path(f"/proc/{self._pid}/root{self.path}")

    def words(self, *words: str) -> list[str]:
        """The command, changed to run where the disk is mounted."""
        return ["nsenter", f"--mount=/proc/{self._pid}/ns/mnt", "--wdns=/", *words]

    def run(self, *words: str, **options) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run(self.words(*words), check=False, **options)

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.seen / "ballast").open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Free the space that `fill` took."""
        (self.seen / "ballast").unlink()

    def remount(self, options: str) -> None:
        done = self.run("mount", "-o", f"remount,{options}", str(self.path))
        assert done.returncode == 0, done.stderr


@contextmanager
def tiny_disk(path: Path, options: str = "size=1m") -> Iterator[TinyDisk]:
    """Mount the disk; skips the test if mounts are not allowed."""
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    hold = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", _HOLD, "sh", str(path), options],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert hold.stdout
        if hold.stdout.readline() != b"ready\n":
            pytest.skip("no disk can be mounted here")
        yield TinyDisk(path, hold.pid)
    finally:
        hold.kill()
        hold.wait()
