"""A node takes a file only as its own new file: what others laid there
is neither waited for nor written to.
"""

import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from rankdeck_agent.images.file_transfer import partial_image_path
from rankdeck_agent.images.image_cli import main as run_image_command
from rankdeck_agent.images.image_rows import describe_image

BODY = b"some bytes" * 1000
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Receives BODY at a path; gives the last line that was said."""

    def receive(path: Path, *, replace: bool = False) -> dict[str, object]:
        source = tmp_path / "source"
        source.write_bytes(BODY)
        with source.open("rb", buffering=0) as stdin:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(stdin)))
            words = ["receive", str(path), str(len(BODY)), SHA, *(["--replace"] if replace else [])]
            run_image_command(words)
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return receive


@pytest.mark.timeout(60)
@pytest.mark.parametrize("replace", [False, True])
def test_a_pipe_with_the_name_of_the_file_is_refused_and_not_waited_for(
    received, tmp_path: Path, replace: bool
) -> None:
    os.mkfifo(tmp_path / "there")

    said = received(tmp_path / "there", replace=replace)

    assert said["ok"] is False
    assert "is no regular file" in str(said["error"])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_lies_at_the_name_of_the_incomplete_copy_is_not_written_to(
    received, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "precious").write_text("old")
    part = partial_image_path(tmp_path / "there", SHA)
    if kind == "link":
        part.symlink_to(tmp_path / "precious")
    else:
        os.mkfifo(part)

    assert received(tmp_path / "there") == {"ok": True}

    assert (tmp_path / "there").read_bytes() == BODY
    assert (tmp_path / "precious").read_text() == "old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_incomplete_copy_of_another_user_is_not_gone_on_with(received, tmp_path: Path) -> None:
    part = partial_image_path(tmp_path / "there", SHA)
    part.write_bytes(BODY[:100])
    os.chown(part, 12345, 12345)

    assert received(tmp_path / "there") == {"ok": True}

    assert (tmp_path / "there").stat().st_uid == 0


@pytest.mark.timeout(60)
def test_a_pipe_is_neither_looked_at_nor_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")

    row = describe_image("none", str(tmp_path / "pipe"), "")
    code = run_image_command(["send", str(tmp_path / "pipe"), "0"])

    assert row["kind"] == "failed"
    assert "is no regular file" in row["error"]
    assert code == 1
