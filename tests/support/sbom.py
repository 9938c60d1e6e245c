"""The software bill of materials: what an installed Rankdeck is made of, as CycloneDX 1.6 in JSON.

`python -m tests.support.sbom FILE` (`make sbom`) writes what is installed beside it: the default
dependencies and theirs, with versions, licences, places on PyPI, and the SHA-256 of the agent that
is carried to nodes.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from rankdeck.remote.bundle import build_bundle

ROOT = "rankdeck"


def canonical(name: str) -> str:
    """A project's name as PyPI writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str) -> Iterator[str]:
    """The installed projects that this one needs without any extra."""
    for line in distribution(name).requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            yield canonical(wanted.name)


def closure(root: str = ROOT) -> Mapping[str, tuple[str, ...]]:
    """Project -> its dependencies, for all that the root needs;
    without projects that are not installed.
    """
    found: dict[str, tuple[str, ...]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = tuple(sorted(set(needed(name))))
        except PackageNotFoundError:
            continue
        waiting += found[name]
    return dict(sorted(found.items()))


def reference(name: str) -> str:
    """The name of an installed project in package URLs."""
    return f"pkg:pypi/{name}@{distribution(name).version}"


def component(name: str) -> dict[str, Any]:
    """One project as a CycloneDX component."""
    one = distribution(name)
    licence = _licence(one)
    return {
        "type": "library" if name != ROOT else "application",
        "bom-ref": reference(name),
        "name": name,
        "version": one.version,
        "purl": reference(name),
        **({"licenses": [{"license": {"name": licence}}]} if licence else {}),
    }


def _licence(one: Distribution) -> str:
    """Its licence, in one line."""
    said = one.metadata
    rows = [row for row in said.get_all("Classifier", []) if row.startswith("License ::")]
    named = said["License-Expression"] or (rows[-1].rpartition(" :: ")[2] if rows else "")
    return named or (said["License"] or "").splitlines()[0][:80] if said["License"] else named


def sbom() -> dict[str, Any]:
    """The whole document: always the same for the same installation."""
    known, agent = closure(), build_bundle()
    carried = {
        "type": "file",
        "bom-ref": agent.name,
        "name": agent.name,
        "hashes": [{"alg": "SHA-256", "content": agent.digest}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(ROOT)},
        "components": [*(component(name) for name in known if name != ROOT), carried],
        "dependencies": [
            {
                "ref": reference(name),
                "dependsOn": [reference(other) for other in others if other in known],
            }
            for name, others in known.items()
        ],
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(sbom(), indent=2) + "\n")
    print(f"{target}: {len(sbom()['components'])} components")
