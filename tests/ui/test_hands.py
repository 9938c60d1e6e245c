"""Marked nodes and what is done with them: commands, shells, acknowledgements, jobs."""

import logging
import re
import stat
from pathlib import Path

import pytest

from rankdeck.model.cancel_report import RemainingProcess
from rankdeck.model.capabilities import capabilities_of
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.model.process import CommandEnd
from rankdeck.remote.user_ssh import UserSsh
from rankdeck.ui.operations import drain_lines
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_narrow import mixed
from tests.ui.test_screens import command, console, lacks, shows, text_of, type_in, until

SIZES = [(200, 50), (120, 40), (80, 24)]


@pytest.fixture
def stage() -> Stage:
    return sample.fleet(12)[0]


async def test_space_marks_and_goes_on_and_escape_takes_it_back(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "space", "space", "down", "space")
        await shows(app, pilot, "marked node[01-02,04]")
        assert [line[:7] for line in text_of(app).splitlines() if line.startswith("*")] == [
            "*node01",
            "*node02",
            "*node04",
        ]
        await pilot.press("up", "space")
        await shows(app, pilot, "marked node[01-02]")
        await pilot.press("escape")
        await lacks(app, pilot, "marked")


async def test_star_marks_what_the_filter_shows_and_marks_stay_without_it(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "node=node[02-05]")
        await pilot.press("enter", "asterisk")
        await shows(app, pilot, "marked node[02-05]")
        await pilot.press("escape")
        await shows(app, pilot, "12 of 12 nodes")
        await shows(app, pilot, "marked node[02-05]")


@pytest.mark.long
async def test_nodes_are_marked_by_a_filter(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "mark state=unknown")
        await pilot.press("enter")
        await shows(app, pilot, "node06 marked")


async def test_a_mistake_in_that_filter_is_said(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "mark gpu.tmp>80")
        await pilot.press("enter")
        await shows(app, pilot, "did you mean gpu.temp?")


async def test_the_name_under_the_cursor_is_copied_not_all_of_them(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "y")
        await shows(app, pilot, "copied node01")
        assert app.clipboard == "node01"
        await pilot.press("space", "space", "y")
        await shows(app, pilot, "copied node[01-02]")
        assert app.clipboard == "node[01-02]"


PICTURE = """
 $ uname -r   3 of 4 nodes done   1 failed   TIME

 ✗ node03  exit 3
   what?

 ● node04  waits for its turn

 ✓ node[01-02] (2)  exit 0
   6.8.0-51-generic
"""
"""The same at every size."""


def steady(text: str) -> str:
    return re.sub(r"(1 failed   ).*", r"\1TIME", text)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_a_command_shows_equal_output_once_and_trouble_first(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with console(stage, size) as (app, pilot):
        await pilot.press("o", "g", "space", "space", "space", "space", "exclamation_mark")
        await shows(app, pilot, "a shell command for node[01-04]")
        await type_in(pilot, "uname -r")
        await pilot.press("enter")
        await until(pilot, lambda: stage.commands, "no command")
        state = stage.commands[0].state
        for node in ("node01", "node02", "node03"):
            state.began(node)
            bad = node == "node03"
            state.wrote(node, "err" if bad else "out", ["what?" if bad else "6.8.0-51-generic"])
            state.ended(node, CommandEnd(3 if bad else 0, seconds=0.1))

        wanted = PICTURE.strip("\n")
        await until(pilot, lambda: wanted in steady(text_of(app)), f"no `{wanted}`")


async def test_a_cancel_says_what_is_proven_and_what_is_left(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("exclamation_mark")
        await type_in(pilot, "sleep 99")
        await pilot.press("enter")
        await until(pilot, lambda: stage.commands, "no command")
        run = stage.commands[0]
        (node,) = run.state.nodes
        await pilot.press("x")
        assert run.cancelled
        left = RemainingProcess(node, 77, "sleep 99 (state D)")
        run.state.ended(node, CommandEnd(143, "cancelled", left=(left,)))
        await shows(app, pilot, f"not verified on {node}")
        await shows(app, pilot, "left  77 sleep 99 (state D)")
        await pilot.press("x")
        await shows(app, pilot, "it has ended")


@pytest.mark.long
async def test_output_is_saved_and_found_again(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "exclamation_mark")
        await type_in(pilot, "date")
        await pilot.press("enter")
        await until(pilot, lambda: stage.commands, "no command")
        stage.commands[0].state.wrote("node01", "out", ["\x1b[31mred\x1b[0m"])
        stage.commands[0].state.ended("node01", CommandEnd(0))
        await shows(app, pilot, "   red")
        await pilot.press("O", "ctrl+u")
        await type_in(pilot, "out.log")
        await pilot.press("enter")
        file = tmp_path / "out.log"
        await shows(app, pilot, " lines to ")
        assert file.read_text() == "node01 (1): exit 0\nred\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await pilot.press("escape")
        await shows(app, pilot, "12 of 12 nodes")
        await pilot.press("colon")
        await type_in(pilot, "sh")
        await pilot.press("enter")
        await shows(app, pilot, "   red")


async def test_marked_nodes_are_acknowledged_and_silenced(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "space", "space", "colon")
        await type_in(pilot, "silence 2h new fans")
        await pilot.press("enter")
        await shows(app, pilot, "node[01-02]: silenced for 2h")

    assert {(ack.node, ack.check, ack.why) for ack in stage.acks} == {
        ("node01", "", "new fans"),
        ("node02", "", "new fans"),
    }


async def test_silence_of_no_node_says_so(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("2", "colon")
        await type_in(pilot, "silence 2h new fans")
        await pilot.press("enter")
        await shows(app, pilot, "no node is marked")


async def test_a_silenced_node_says_so_and_off_ends_it(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await command(pilot, "silence 2h new fans")
        await pilot.press("enter")
        await shows(app, pilot, "silenced until")
        await shows(app, pilot, "new fans")
        await command(pilot, "silence off")
        await shows(app, pilot, "no longer silenced")
        await lacks(app, pilot, "new fans")


@pytest.mark.long
async def test_a_bad_node_is_acknowledged_from_the_fleet() -> None:
    stage = mixed()
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "✗ bad")
        await pilot.press("g", "a")
        await shows(app, pilot, "how long, and why")
        await pilot.press("enter")
        await shows(app, pilot, "known for 4h")

    assert [(ack.node, ack.check) for ack in stage.acks] == [("node01", "disk.full")]


async def test_a_job_is_prepared_for_exactly_the_marked_nodes(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text("job: hello\n")
    stage.files = (file,)
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "space", "down", "space", "J")
        await shows(app, pilot, "on     node[01,03]  as marked")
        await shows(app, pilot, "only on     node[01,03]")
        await pilot.press("escape")
        await lacks(app, pilot, "as marked")


async def test_a_file_is_copied_to_the_marked_nodes(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "x.txt"
    file.write_text("x")
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "space", "space", "colon")
        await type_in(pilot, "cp x.txt there.txt")
        await pilot.press("enter")
        await shows(app, pilot, "x.txt is on node[01-02]")

    assert stage.copied_files == [(Path("x.txt"), "there.txt", ("node01", "node02"))]


async def test_y_copies_a_message_and_the_lines_of_a_page(stage: Stage) -> None:
    for text in ("first word", "second word"):
        told = {"name": "rankdeck", "msg": text, "levelno": logging.WARNING, "source": "n1"}
        stage.messages.handle(logging.makeLogRecord(told))
    async with console(stage) as (app, pilot):
        await pilot.press("4")
        await shows(app, pilot, "second word")
        await pilot.press("j", "y")
        await shows(app, pilot, "copied this message")
        assert app.clipboard == "n1  first word"
        await pilot.press("1", "o", "g", "enter")
        await shows(app, pilot, "Processor")
        await pilot.press("y")
        await shows(app, pilot, "copied")
        assert app.clipboard.splitlines()[0].startswith(" node01  ")
        assert "Processor" in app.clipboard


@pytest.mark.long
async def test_a_file_of_the_marked_nodes_comes_here(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(stage) as (app, pilot):
        await pilot.press("o", "g", "space", "space", "colon")
        await type_in(pilot, "cp :/var/log/syslog .")
        await pilot.press("enter")
        await shows(app, pilot, "/var/log/syslog of node[01-02] is in")

    assert stage.fetched_files == [("/var/log/syslog", ("node01", "node02"), tmp_path)]


async def test_a_shell_is_for_one_node_only(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("space", "space", "s")
        await shows(app, pilot, "a shell needs exactly one node")


async def test_draining_is_proposed_where_there_is_a_scheduler(stage: Stage) -> None:
    async with console(stage) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "drain")
        await pilot.press("enter")
        await shows(app, pilot, "no scheduler here takes nodes out of service")


def test_a_reason_to_drain_cannot_become_a_command() -> None:
    (drain, back) = drain_lines(capabilities_of("slurm"), ["n1", "n2"], 'fan"; rm -rf $HOME `x`')

    assert drain == 'scontrol update nodename=n[1-2] state=drain reason="fan   rm -rf  HOME  x"'
    assert back.startswith("scontrol update nodename=n[1-2] state=resume")


# ---- ssh


def ssh(access: Access, **node: object) -> list[str]:
    cluster = Cluster(name="c", nodes=(Node(name="n1", **node),), access=access)
    return list(UserSsh(cluster).command("n1"))


def test_the_users_ssh_has_the_options_of_our_connections() -> None:
    access = Access(user="me", identity="~/k", known_hosts="/a b/known", connect_limit=7)
    argv = ssh(access, address="10.0.0.4", port=2222)

    assert argv[:2] == ["ssh", "-t"]
    assert argv[-2:] == ["--", "10.0.0.4"]
    assert 'UserKnownHostsFile="/a b/known"' in argv
    assert "ConnectTimeout=7" in argv
    words = " ".join(argv)
    assert f"-p 2222 -l me -i {Path('~/k').expanduser()}" in words


def test_plain_access_leaves_all_to_the_users_ssh_config() -> None:
    argv = ssh(Access())

    assert not {"-F", "-p", "-l", "-i"} & set(argv)


def test_a_config_is_followed_as_it_was_agreed_to() -> None:
    access = Access(config="/gone", config_text="Host n1\n  Port 77\n")
    made = UserSsh(Cluster(name="c", nodes=(Node(name="n1"),), access=access))
    argv = made.command("n1")

    assert Path(argv[argv.index("-F") + 1]).read_text() == "Host n1\n  Port 77\n"
    assert ssh(Access(config="none"))[2:4] == ["-F", "none"]


def test_words_reach_the_node_as_they_are() -> None:
    cluster = cluster_of(1)
    argv = UserSsh(cluster).command("node01", ("sh", "-c", 'echo "$1"', "x", "a b"))

    assert argv[-1] == """sh -c 'echo "$1"' x 'a b'"""
