"""`ack` and `silence` need no node: they write what every console of the user reads."""

import json
from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.config.files import console_state_folder
from rankdeck.state.history import History


def no_console(cluster: object) -> int:
    raise AssertionError(cluster)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "lab.yaml"
    file.write_text("cluster: lab\nnodes: [n1, n2]\n")
    return str(file)


def test_an_ack_is_kept_listed_and_taken_back(lab: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_command_line(
            [
                "ack",
                "-c",
                lab,
                "n[1-2]",
                "disk.full",
                "--for",
                "2h",
                "--why",
                "ordered",
            ],
            no_console,
        )
        == 0
    )
    assert "n2: disk.full until" in capsys.readouterr().out
    assert (
        run_command_line(["ack", "-c", lab, "n1", "disk.full", "--off", "--json"], no_console) == 0
    )
    told = json.loads(capsys.readouterr().out)["acknowledged"]
    assert [(ack["node"], ack["check"], ack["why"]) for ack in told] == [
        ("n2", "disk.full", "ordered")
    ]
    with History(console_state_folder() / "history.db") as history:
        assert [ack.node for ack in history.nodes_of("lab").acks(0)] == ["n2"]


@pytest.mark.parametrize(
    "wrong",
    [["silence", "n9"], ["silence", "n1", "--for", "long"], ["ack", "n[", "disk.full"]],
)
def test_what_cannot_be_meant_is_refused(lab: str, wrong: list[str]) -> None:
    assert run_command_line([wrong[0], "-c", lab, *wrong[1:]], no_console) == 2


def test_health_that_cannot_be_told_is_unknown_to_monitoring(lab: str, tmp_path: Path) -> None:
    assert run_command_line(["health", "-c", lab, "n9"], no_console) == 3
    assert run_command_line(["health", "-c", str(tmp_path / "none.yaml")], no_console) == 3


def test_off_without_a_device_takes_back_the_check_on_every_device(
    lab: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in ("0", "1"):
        words = ["ack", "-c", lab, "n1", "gpu.temp", "--device", device, "--for", "2h"]
        assert run_command_line(words, no_console) == 0
    assert run_command_line(["ack", "-c", lab, "n1", "disk.full", "--for", "2h"], no_console) == 0
    capsys.readouterr()

    assert (
        run_command_line(["ack", "-c", lab, "n1", "gpu.temp", "--off", "--json"], no_console) == 0
    )
    told = json.loads(capsys.readouterr().out)["acknowledged"]
    assert [(ack["check"], ack["device"]) for ack in told] == [("disk.full", "")]
