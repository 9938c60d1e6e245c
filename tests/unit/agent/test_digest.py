"""The digest of an image that is kept on a node is that of the bytes that lie there."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankdeck_agent.images import digests
from rankdeck_agent.images.digests import file_digest
from rankdeck_agent.images.image_rows import describe_image

HOUR = 3600.0


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rankdeck" / "digests.json"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    image = tmp_path / "image.sif"
    image.write_bytes(b"first version")
    return image


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the node's clock by so many seconds against the time stamps of its files."""
    real = time.time

    def move(seconds: float) -> None:
        monkeypatch.setattr(digests.time, "time", lambda: real() + seconds)

    return move


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that were really read."""
    found: list[str] = []
    real = digests.read_digest

    def read(file, limit=None) -> str:
        found.append(file.name)
        return real(file, limit)

    monkeypatch.setattr(digests, "read_digest", read)
    return found


def test_a_file_that_has_settled_is_read_once(image: Path, clock, reads) -> None:
    clock(HOUR)

    assert [file_digest(image) for _ in range(3)] == [sha(b"first version")] * 3
    assert len(reads) == 1


def test_a_flipped_byte_with_the_old_time_and_size_is_seen(image: Path, clock) -> None:
    clock(HOUR)
    file_digest(image)
    before = image.stat()
    with image.open("r+b") as file:
        file.write(b"F")
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert describe_image("apptainer", str(image))["digest"] == sha(b"First version")


def test_a_file_that_another_took_the_place_of_is_read_again(
    image: Path, tmp_path: Path, clock
) -> None:
    clock(HOUR)
    file_digest(image)
    other, times = tmp_path / "other", image.stat()
    other.write_bytes(b"other version")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(image)

    assert file_digest(image) == sha(b"other version")


def test_a_file_that_was_just_written_is_not_trusted(image: Path, reads) -> None:
    file_digest(image)
    file_digest(image)

    assert len(reads) == 2


def test_a_file_with_an_old_time_that_was_just_written_is_not_trusted(image: Path, reads) -> None:
    os.utime(image, (1, 1))

    file_digest(image)
    file_digest(image)

    assert len(reads) == 2


def test_a_file_from_the_future_is_not_trusted(image: Path, clock, reads) -> None:
    clock(-HOUR)

    file_digest(image)
    file_digest(image)

    assert len(reads) == 2


def test_nothing_is_trusted_that_was_read_before_the_clock_was_set_back(
    image: Path, clock, reads
) -> None:
    clock(HOUR)
    file_digest(image)
    clock(HOUR / 2)
    file_digest(image)

    assert len(reads) == 2


def test_a_file_of_a_server_is_trusted_only_when_no_clock_can_be_so_wrong(
    image: Path, clock, reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankdeck_agent.file_system._NETWORK", {filesystem_of(image)})
    clock(60.0)
    for _ in range(2):
        assert describe_image("apptainer", str(image))["mount"]
    assert len(reads) == 2

    clock(HOUR)
    for _ in range(2):
        describe_image("apptainer", str(image))
    assert len(reads) == 3


def filesystem_of(path: Path) -> str:
    """The type of the deepest mount above."""
    rows = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [
        (len(at), kind) for _, at, kind, *_ in rows if f"{path}/".startswith(f"{at.rstrip('/')}/")
    ]
    return max(above)[1]


@pytest.mark.parametrize("how", ["written", "replaced"])
def test_what_changes_while_it_is_read_has_no_digest(
    image: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    real = digests.read_digest

    def read(file, limit=None) -> str:
        found = real(file, limit)
        other = tmp_path / "other"
        other.write_bytes(b"other version")
        if how == "written":
            image.write_bytes(other.read_bytes() * 2)
        else:
            other.replace(image)
        return found

    monkeypatch.setattr(digests, "read_digest", read)

    row = describe_image("apptainer", str(image))

    assert row["kind"] == "failed"
    assert "written or replaced" in row["error"]
    assert not cache.exists()


@pytest.mark.parametrize(
    "kept",
    [
        "{",
        "[]",
        '{"%s": [13, 1, 2, 3, "0000"]}',
        '{"%s": [13, "1", 2, 3, 4, 5, "0000"]}',
        '{"%s": [null, null, null, null, null, null, "0000"]}',
    ],
)
def test_what_an_older_agent_kept_is_passed_over(image: Path, cache: Path, kept: str) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(kept.replace("%s", str(image)))

    assert file_digest(image) == sha(b"first version")


def test_a_digest_of_four_numbers_as_older_agents_kept_it_vouches_for_nothing(
    image: Path, cache: Path, clock
) -> None:
    clock(HOUR)
    info = image.stat()
    row = [info.st_size, info.st_mtime_ns, info.st_ino, info.st_dev, "0" * 64]
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({str(image): row}))

    assert file_digest(image) == sha(b"first version")
    assert json.loads(cache.read_text())[str(image)][-1] == sha(b"first version")
