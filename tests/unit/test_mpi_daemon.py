"""A node may have MPI daemons started on other nodes, and nothing else."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.daemon_requests import DaemonRequests
from rankdeck_agent.rules.mpi_daemon import LONGEST, daemon_of, daemons_of, in_place
from rankdeck_agent.wire import NodePlan, ProcessPlan
from rankdeck_agent.wire.job_events import DaemonAsked

COMMANDS = {
    path.name: path.read_text().removesuffix("\n")
    for path in sorted((Path(__file__).parent / "mpi_commands").iterdir())
}
"""What launchers really sent, written down with `launch-agent` in the place of ssh
(Intel's: as its -v shows it, not tried here).
"""
DAEMONS = {
    "openmpi-5": "prted",
    "openmpi-4": "orted",
    "mpich-4": "hydra_pmi_proxy",
    "intel-2021": "hydra_bstrap_proxy",
}
AGENT = "/tmp/rankdeck.j/launch-agent"
MPIRUN = ProcessPlan("mpirun", ("mpirun", "--prtemca", "plm_ssh_agent", AGENT, "hostname"))
FIRST = NodePlan("j", "n1", (0,), (MPIRUN,))
GOOD = COMMANDS["openmpi-5.0"]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_real_launchers_send_is_let_through(name):
    assert daemon_of(COMMANDS[name]) == DAEMONS[name.partition(".")[0]]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "id",
        "sh -c id",
        "/usr/bin/prted; id",
        "/usr/bin/prted\nid",
        "/usr/bin/prted `id`",
        '/usr/bin/prted "$(id)"',
        "/usr/bin/prted $(id)",
        "/usr/bin/prted && id",
        "/usr/bin/prted | id",
        "/usr/bin/prted & id",
        "/usr/bin/prted > /etc/x",
        "/usr/bin/prted < /etc/x",
        "/usr/bin/prted 'a'",
        '/usr/bin/prted "a',
        '/usr/bin/prted "a"b',
        '/usr/bin/prted "\\"',
        "/usr/bin/prted a\\b",
        "/usr/bin/prted *",
        "/usr/bin/prted\x00",
        "/usr/bin/prted\ta",
        "./prted",
        "bin/prted",
        "/usr/bin/prted.sh",
        "/usr/bin/sh /usr/bin/prted",
        "X=1 /usr/bin/prted",
        "X=/prted",
        "LD_PRELOAD=/x.so; export LD_PRELOAD; /usr/bin/prted",
        "PATH=/x; export LD_LIBRARY_PATH; prted",
        "PATH=x:$PATH; export PATH; prted",
        "PATH=/x:$HOME; export PATH; prted",
        "PATH=/x:.; export PATH; prted",
        "PATH=/x; export PATH",
        "/usr/bin/prted " + "a" * LONGEST,
    ],
)
def test_anything_else_is_refused(command):
    assert daemon_of(command) is None


def outside_of_quotes(command):
    """The places of a command between which nothing is quoted."""
    places, quoted = [], False
    for at, character in enumerate(command):
        quoted ^= character == '"'
        if not quoted:
            places.append(at + 1)
    return places


@given(st.data(), st.sampled_from(sorted(COMMANDS)))
def test_a_character_that_means_something_to_a_shell_spoils_a_good_command(data, name):
    good = COMMANDS[name]
    at = data.draw(st.sampled_from(outside_of_quotes(good)))
    bad = data.draw(st.sampled_from("&|<>()`\\\n\t\0*?[]#~!'"))

    assert daemon_of(good[:at] + bad + good[at:]) is None


@given(st.data(), st.sampled_from(sorted(COMMANDS)))
def test_a_value_in_quotes_cannot_run_anything(data, name):
    good = COMMANDS[name].replace(" ", ' "x" ', 1) if '"' not in COMMANDS[name] else COMMANDS[name]
    quotes = [at + 1 for at, c in enumerate(good) if c == '"'][::2]
    at = data.draw(st.sampled_from(quotes))
    bad = data.draw(st.sampled_from(["$(id)", "`id`", "$HOME", "${X}", "\\", "\n", '"; id; "']))

    assert daemon_of(good[:at] + bad + good[at:]) is None


PIECES = [
    *[";", "&", "|", "`", "$", "(", ")", "<", ">", "\\", "\n", '"', "'", "=", "{", "}"], " ", "id", "/bin/sh", "-c", "export", "PATH", "PATH=/x:$PATH",
    "; export PATH;", "/usr/bin/prted", "/usr/bin/orted", "LD_PRELOAD=/x", "a", "--daemonize", '"a;b"', "eval",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_let_through_is_settings_and_one_daemon_to_a_shell(command):
    if daemon_of(command) is None:
        return
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    simple, words = [[]], list(lexer)
    for word in words:
        if word == ";":
            simple.append([])
        else:
            simple[-1].append(word)
    *settings, last = simple

    assert last[0].rpartition("/")[2] in ("prted", "orted")
    assert {" ".join(one) for one in settings} <= {"PATH=/x:$PATH", "export PATH"}


def test_only_a_launcher_that_was_told_of_our_agent_may_ask():
    assert daemons_of(MPIRUN.argv, "j") == ("prted", "orted")
    assert daemons_of(MPIRUN.argv, "other") == ()
    assert daemons_of(("sleep", "1"), "j") == ()
    assert (
        daemons_of(("mpiexec", "-launcher", "ssh", "-launcher-exec", AGENT), "j")[0]
        == "hydra_pmi_proxy"
    )


@pytest.mark.parametrize(
    ("plan", "request_", "why"),
    [
        (FIRST, {"host": "n2", "command": GOOD}, ""),
        (FIRST, {"host": "n2", "command": "id"}, "a command on n2 that is no MPI daemon: refused"),
        (FIRST, {"host": "n2", "command": COMMANDS["mpich-4.0"]}, "a command on n2 that is no MPI daemon: refused"),
        (FIRST, {"host": "n9", "command": GOOD}, "a command on n9, which is no node of this job: refused"),
        (FIRST, {"command": GOOD}, "a command on , which is no node of this job: refused"),
        (FIRST, {"host": "n2"}, "a command on n2 that is no MPI daemon: refused"),
        (NodePlan("j", "n2", (1,)), {"host": "n1", "command": GOOD}, "a command on n1, but has no launcher of MPI: refused"),
        (
            NodePlan("j", "n1", (0,), (ProcessPlan("rank 0", ("sleep", "9"), rank=0),)),
            {"host": "n2", "command": GOOD},
            "a command on n2, but has no launcher of MPI: refused",
        ),
    ],
)  # fmt: skip
def test_a_request_is_refused_for_what_is_wrong_with_it(plan, request_, why):
    assert DaemonRequests(["n1", "n2"]).refusal(plan, DaemonAsked("1", **request_)) == why


def test_a_node_gets_one_daemon_and_another_only_when_that_failed():
    one, request = DaemonRequests(["n1", "n2"]), DaemonAsked("1", "n2", GOOD)
    assert one.refusal(FIRST, request) == ""
    assert one.refusal(FIRST, request) == "a second MPI daemon on n2: refused"
    one.failed("n1", "n2")

    assert one.refusal(FIRST, request) == ""


def test_a_node_that_asks_without_end_is_told_of_once():
    one = DaemonRequests(["n1", "n2"])
    told = [one.flooded("n1") for _ in range(200)]

    assert told.count(True) == 1
    assert told.count(False) < 30
    assert one.flooded("n2") is False


def test_the_daemon_takes_the_place_of_its_shell():
    assert in_place("/usr/bin/prted --x") == "exec /usr/bin/prted --x"
    for command in COMMANDS.values():
        _, _, daemon = in_place(command).partition("exec ")
        assert daemon_of(daemon) == daemon_of(command)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("openmpi")])
@pytest.mark.parametrize("before", [None, "/mine"])
def test_a_daemon_gets_the_same_paths_whatever_shell_its_user_logs_in_to(name, before):
    settings, _, _ = in_place(COMMANDS[name]).partition("exec ")
    line = f'{settings}printf "%s\\n" "$PATH" "$LD_LIBRARY_PATH"'
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": before}
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        env={key: value for key, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    path, libraries = done.stdout.splitlines()
    assert path.endswith("/usr/bin:/bin")
    assert libraries.startswith("/")
    assert libraries.endswith(":/mine") == bool(before)
