"""`requirements.txt` with hashes, for `pip install --require-hashes`: the default dependencies, exactly.

`python -m tests.support.lock` (`make lock`) asks pip for compatible versions, and for their
wheels for Linux on x86_64 and aarch64 and each supported Python; it installs nothing.
"""

import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.sbom import canonical

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "requirements.txt"
HEAD = """\
# The default dependencies of Rankdeck with the SHA-256 of their wheels (Linux, x86_64 and aarch64); made by `make lock`.
#   pip install --require-hashes --only-binary :all: -r requirements.txt && pip install --no-deps rankdeck
"""
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_MACHINES = ("x86_64", "aarch64")
_PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_28", "manylinux_2_34")
_LIMIT = 600


def wanted() -> Sequence[str]:
    """The dependencies that pyproject.toml names."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def pip(*words: str) -> str:
    """The output of pip, which uses its index only. Raises CalledProcessError."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words],
        env={**os.environ, "PIP_FIND_LINKS": ""},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
        check=True,
    )
    return done.stdout


def resolved() -> Mapping[str, str]:
    """Project -> version, of these projects and all their dependencies."""
    said = pip("install", "--dry-run", "--ignore-installed", "-q", "--report", "-", *wanted())
    rows = [row["metadata"] for row in json.loads(said)["install"]]
    return {canonical(row["name"]): row["version"] for row in rows}


def fetched(versions: Mapping[str, str], folder: Path) -> Mapping[str, set[str]]:
    """Project -> SHA-256 of the wheels that pip chooses for one kind of machine."""
    exact = [f"{name}=={version}" for name, version in versions.items()]
    for python, machine in itertools.product(_PYTHONS, _MACHINES):
        tags = [f"--platform={one}_{machine}" for one in _PLATFORMS]
        only = ("--no-deps", "--only-binary=:all:", f"--python-version={python}")
        pip("download", "-q", *only, *tags, "-d", str(folder), *exact)
    found: dict[str, set[str]] = {}
    for path in folder.iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found.setdefault(canonical(path.name.partition("-")[0]), set()).add(digest)
    return found


def locked(versions: Mapping[str, str], digests: Mapping[str, set[str]]) -> str:
    """The text of the file."""
    lines = [HEAD]
    for name, version in sorted(versions.items()):
        rows = " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(digests[name]))
        lines.append(f"{name}=={version} \\\n{rows}\n")
    return "".join(lines)


def main() -> None:
    """Write the file."""
    versions = resolved()
    with tempfile.TemporaryDirectory() as folder:
        TARGET.write_text(locked(versions, fetched(versions, Path(folder))))
    print(f"{TARGET.name}: {len(versions)} projects")


if __name__ == "__main__":
    main()
