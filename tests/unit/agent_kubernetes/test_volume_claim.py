"""What is taken from a volume claim: the lines that are not here
yet, each once, whatever is here.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rankdeck_agent.schedulers.kubernetes import volume_claim
from rankdeck_agent.schedulers.kubernetes.objects import Splitter
from rankdeck_agent.schedulers.kubernetes.volume_claim import Missing, claim_name, reader_pod

WHOLE = b"".join(b"line %d\n" % n for n in range(40))


def printed(files: Mapping[str, bytes], asked: list[str], lines: int) -> list[bytes]:
    """What the pod prints of these files of the claim."""
    told = []
    for word in asked:
        name, _, at = word.rpartition(":")
        mark = f"[rank {name.replace('/', ' ')}] ".encode()
        found = files.get(name, b"")[int(at) - 1 :].splitlines()[:lines]
        told += [*(mark + line for line in found), b""]
    return told


def read(place: Path, files: Mapping[str, bytes], lines: int = volume_claim.LINES) -> list[object]:
    """Rank 0 is read to the end; returns what was told of its beginning and end."""
    missing, told, passes = Missing({0: place}, (), ()), [], 0
    while asked := missing.ask():
        splitter, passes = Splitter(), passes + 1
        assert passes < 20
        for line in printed(files, asked, lines):
            for piece in splitter.feed(line):
                if data := missing.take(piece):
                    with (place / piece.what).open("ab") as file:
                        file.write(data)
        told += missing.passed()
    return told


@pytest.mark.parametrize(
    "here",
    [b"", WHOLE[:70], WHOLE[:75], WHOLE, WHOLE + b"more\n"],
    ids=["nothing", "some lines", "half a line", "all", "more than all"],
)
def test_what_is_missing_at_the_end_is_appended(tmp_path: Path, here: bytes) -> None:
    (tmp_path / "out").write_bytes(here)

    read(tmp_path, {"0/out": WHOLE})

    assert (tmp_path / "out").read_bytes() == max(WHOLE, here, key=len)


def test_what_is_missing_in_the_middle_comes_late_and_nothing_twice(tmp_path: Path) -> None:
    lines = [*WHOLE.splitlines(), b"line 7"]
    (tmp_path / "out").write_bytes(b"\n".join(lines[:5] + lines[20:30]) + b"\n")

    read(tmp_path, {"0/out": b"\n".join(lines) + b"\n"})

    assert sorted((tmp_path / "out").read_bytes().splitlines()) == sorted(lines)


def test_a_long_file_comes_in_several_passes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(volume_claim, "LINES", 7)
    (tmp_path / "err").write_bytes(WHOLE[:70])

    read(tmp_path, {"0/out": WHOLE, "0/err": WHOLE}, 7)

    assert (tmp_path / "out").read_bytes() == (tmp_path / "err").read_bytes() == WHOLE


def test_how_a_rank_began_and_ended_is_told_with_its_time(tmp_path: Path) -> None:
    told = read(tmp_path, {"0/start": b"j-0\n1700000000\n", "0/exit": b"3\n1700000009\n"})

    assert sorted(told) == [(0, "exit", b"3", 1700000009.0), (0, "start", b"j-0", 1700000000.0)]


def test_a_time_that_no_file_can_have_is_none(tmp_path: Path) -> None:
    told = read(tmp_path, {"0/start": b"j-0\n1700000000\n", "0/exit": b"3\n" + b"9" * 400 + b"\n"})

    assert sorted(told) == [(0, "exit", b"3", None), (0, "start", b"j-0", 1700000000.0)]


def test_the_pod_has_the_image_and_the_claim_of_the_job_and_nothing_it_does_not_need() -> None:
    logs = {"name": "logs", "persistentVolumeClaim": {"claimName": "kept"}}
    mount = {"name": "logs", "mountPath": "/rankdeck-logs", "subPath": "j"}
    box = {
        "name": "rank",
        "image": "i",
        "volumeMounts": [mount, {"name": "shm"}],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    pod = {"containers": [box], "volumes": [logs, {"name": "shm"}], "subdomain": "j"}
    pod["tolerations"] = [{"key": "gpu"}]
    spec = {"mpiReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}

    made = reader_pod(spec, ["0/out:1"])

    assert made is not None
    (container,) = made["containers"]
    assert container["volumeMounts"] == [{**mount, "readOnly": True}]
    assert (container["image"], "resources" in container) == ("i", False)
    assert (made["volumes"], made["tolerations"]) == ([logs], [{"key": "gpu"}])
    assert "$(" not in " ".join(container["command"])
    assert (claim_name(spec), claim_name({"template": {"spec": {}}})) == ("kept", "")
