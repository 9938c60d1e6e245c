"""What is installed and carried to nodes is named, with hashes, and the same each time."""

import json
import re
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from tests.support.lock import TARGET, wanted
from tests.support.sbom import canonical, closure, sbom

from rankdeck.remote.agent import _zip, bundle


def test_the_bill_of_materials_names_exactly_what_is_installed() -> None:
    made = json.loads(json.dumps(sbom()))

    named = {one["name"]: one["version"] for one in made["components"] if one["type"] == "library"}
    assert named == {name: distribution(name).version for name in closure() if name != "rankdeck"}
    assert {canonical(Requirement(line).name) for line in wanted()} <= set(named)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    references = {one["bom-ref"] for one in [made["metadata"]["component"], *made["components"]]}
    assert {row["ref"] for row in made["dependencies"]} <= references
    assert {ref for row in made["dependencies"] for ref in row["dependsOn"]} <= references


def test_the_bill_of_materials_has_the_hash_of_the_agent() -> None:
    (agent,) = [one for one in sbom()["components"] if one["type"] == "file"]

    assert agent["hashes"] == [{"alg": "SHA-256", "content": bundle().digest}]


def test_the_agent_is_the_same_bytes_whenever_it_is_built() -> None:
    first = bundle.__wrapped__()

    assert first == bundle.__wrapped__()
    assert _zip({"b": b"1", "a": b"2"}) == _zip({"a": b"2", "b": b"1"})


@pytest.mark.skipif(not TARGET.exists(), reason="no requirements.txt here: `make lock`")
def test_the_locked_versions_are_those_that_pyproject_allows() -> None:
    text = TARGET.read_text()
    locked = dict(re.findall(r"^(\S+)==(\S+) ", text, re.MULTILINE))

    for line in wanted():
        one = Requirement(line)
        assert one.specifier.contains(locked[canonical(one.name)]), line
    blocks = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert "://" not in text
