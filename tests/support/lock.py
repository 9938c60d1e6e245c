"""The lock: every project that Rankdeck and its tests are installed from,
exactly, with the SHA-256 of its files.

`python -m tests.support.lock` (first step of `make update`) has uv find the newest versions that
fit together for every supported Python, and writes them in layers, `requirements/LAYER.txt`. Each
project is in the first layer that needs it. It installs nothing. torch is apart:
tests/support/torch.sh.
"""

import itertools
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from tests.support.install import FROM_SOURCE, LOCK, ROOT
from tests.support.sbom import canonical

LAYERS: Mapping[str, str] = {
    "default": "What an installed Rankdeck needs",
    "mpi": "Open MPI and mpi4py (the extra `mpi`)",
    "gnmi": "Switch ports over gNMI (the extra `gnmi`)",
    "pkcs11": "Keys on smart cards (the extra `pkcs11`)",
    "fido": "Security keys (the extra `fido`)",
    "build": "What builds Rankdeck from its sources, and the tests' packages that have no wheel",
    "dev": "What checks and tests Rankdeck (the extra `dev`)",
}
"""Name of each layer -> what is in it. A layer needs those before it."""
BUILD = ("editables", "setuptools")
"""What hatchling asks for beside itself to install a folder in
place, and what builds FROM_SOURCE.
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
_LIMIT = 300
_BLOCK = re.compile(r"^(?=\S+==)", re.MULTILINE)


def project() -> Mapping[str, Sequence[str]]:
    """What pyproject.toml names for each layer."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = [*table["build-system"]["requires"], *BUILD]
    default = table["project"]["dependencies"]
    return {"default": default, "build": build, **table["project"]["optional-dependencies"]}


def resolve(wanted: Sequence[str], *options: str) -> str:
    """The lines of a requirements file with hashes for these projects and all that they need."""
    exact = ("--universal", f"--python-version={PYTHONS[0]}", "--generate-hashes")
    return uv("compile", "-", *exact, "--no-header", "--no-annotate", "-q", *options, given=wanted)


def uv(verb: str, *words: str, given: Sequence[str] = ()) -> str:
    """The output of `uv pip VERB`, with `given` as the lines of its input.

    Raises CalledProcessError.
    """
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", verb, *words],
        input="\n".join(given),
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
        check=True,
    )
    return done.stdout


def blocks(text: str) -> dict[str, str]:
    """Project -> its lines of a requirements file: version, condition and hashes."""
    rows = _BLOCK.split(text)[1:]
    return {canonical(row.partition("==")[0]): row.rstrip() + "\n" for row in rows}


def layers() -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each layer and its projects: one resolution, divided."""
    wanted, done = project(), dict[str, str]()
    every = resolve([line for name in LAYERS for line in wanted[name]], "--upgrade")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(every)
        file.flush()
        for name in LAYERS:
            needed = blocks(resolve(wanted[name], "--constraints", file.name))
            yield name, {one: row for one, row in needed.items() if one not in done}
            done |= needed


def write() -> int:
    """Write the layers; returns the number of projects."""
    LOCK.mkdir(exist_ok=True)
    count = 0
    for name, rows in layers():
        head = f"# {LAYERS[name]}. Written by `make update`.\n"
        (LOCK / f"{name}.txt").write_text(head + "".join(rows[one] for one in sorted(rows)))
        count += len(rows)
    return count


def verify() -> None:
    """Raise CalledProcessError if a file is missing for a Python or
    a machine, or has another hash.
    """
    files = [f"--requirements={LOCK / name}.txt" for name in LAYERS]
    only = (
        "--require-hashes",
        "--only-binary=:all:",
        *(f"--no-binary={one}" for one in FROM_SOURCE),
    )
    with tempfile.TemporaryDirectory() as folder:
        for python, machine in itertools.product(PYTHONS, MACHINES):
            there = (f"--python-version={python}", f"--python-platform={machine}")
            uv("install", "--dry-run", "-q", f"--target={folder}", *only, *there, *files)


if __name__ == "__main__":
    print(f"{LOCK.name}: {write()} projects")
    verify()
