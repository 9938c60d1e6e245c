"""What is installed and carried to nodes is named, with hashes, and the same each time."""

import json
import re
from importlib.metadata import distribution, version

from packaging.markers import Marker
from packaging.requirements import Requirement
from tests.support.install import LOCK, ROOT
from tests.support.lock import LAYERS, blocks, project
from tests.support.sbom import canonical, closure, sbom

from rankdeck.remote.bundle import _built, _zip, build_bundle


def lines_of(layer: str) -> str:
    return (LOCK / f"{layer}.txt").read_text()


def test_the_bill_of_materials_names_exactly_what_is_installed() -> None:
    made = json.loads(json.dumps(sbom()))

    named = {one["name"]: one["version"] for one in made["components"] if one["type"] == "library"}
    assert named == {name: distribution(name).version for name in closure() if name != "rankdeck"}
    wanted = {canonical(Requirement(line).name) for line in project()["default"]}
    assert wanted <= set(named)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    references = {one["bom-ref"] for one in [made["metadata"]["component"], *made["components"]]}
    assert {row["ref"] for row in made["dependencies"]} <= references
    assert {ref for row in made["dependencies"] for ref in row["dependsOn"]} <= references


def test_the_bill_of_materials_has_the_hash_of_the_agent() -> None:
    (agent,) = [one for one in sbom()["components"] if one["type"] == "file"]

    assert agent["hashes"] == [{"alg": "SHA-256", "content": build_bundle().digest}]


def test_the_agent_is_the_same_bytes_whenever_it_is_built() -> None:
    first = _built.__wrapped__(False)

    assert first == _built.__wrapped__(False)
    assert _zip({"b": b"1", "a": b"2"}) == _zip({"a": b"2", "b": b"1"})


def test_the_lock_has_all_that_pyproject_names_in_versions_that_it_allows() -> None:
    locked = {name: row for layer in LAYERS for name, row in blocks(lines_of(layer)).items()}

    for layer in LAYERS:
        for line in map(Requirement, project()[layer]):
            allowed = line.specifier.contains(
                locked[canonical(line.name)].split()[0].split("==")[1]
            )
            assert allowed, (layer, str(line))


def test_each_project_is_locked_once_with_hashes_and_without_the_address_of_an_index() -> None:
    rows = [row for layer in LAYERS for row in blocks(lines_of(layer)).items()]

    assert len(dict(rows)) == len(rows)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", row) for _, row in rows)
    assert not any("://" in lines_of(layer) or "index" in lines_of(layer) for layer in LAYERS)
    assert {file.stem for file in LOCK.iterdir()} == set(LAYERS)


def test_everything_that_is_used_here_has_the_locked_version() -> None:
    locked = [
        re.match(r"(\S+)==(\S+)( ; .+)?", row)
        for layer in ("default", "dev")
        for row in blocks(lines_of(layer)).values()
    ]
    here = [one for one in locked if one and (not one[3] or Marker(one[3][3:-2]).evaluate())]

    assert {one[1]: one[2] for one in here} == {one[1]: version(one[1]) for one in here}


def test_nothing_but_the_lock_and_torch_is_installed_by_the_scripts() -> None:
    scripts = [ROOT / "Makefile", ROOT / ".ci/run", *(ROOT / "tests/support").glob("*.sh")]

    found = {file.name for file in scripts if re.search(r"pip.* install", file.read_text())}
    assert found == {"torch.sh"}
