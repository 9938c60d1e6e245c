"""Which Python runs the agent on a node, and what is said if there is none."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rankdeck.errors import AgentError
from rankdeck.remote import node_python
from rankdeck.remote.node_python import (
    FoundPython,
    LookAnswer,
    check_python,
    install_command,
    parse_found_python,
    python_look_command,
)

DIGEST = "abc"
"""Of the agent file that the console has."""


class Node:
    """A node with only these Pythons, each a script that answers like one."""

    def __init__(self, root: Path) -> None:
        self.home, self.programs = root / "a home", root / "bin"
        self.home.mkdir()
        self.programs.mkdir()
        for name in ("sed", "tr", "ls"):
            (self.programs / name).symlink_to(Path("/usr/bin") / name)

    def has(self, place: str, answer: str) -> None:
        python = self.home / place if "/" in place else self.programs / place
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f"#!/bin/sh\necho '{answer}'\n")
        python.chmod(0o755)

    def find(self, *named: str) -> FoundPython:
        done = self.look(*named)
        return parse_found_python("n1", done.stdout, done.stderr)

    def look(self, *named: str, command: Sequence[str] = ()) -> subprocess.CompletedProcess[bytes]:
        _, *words = python_look_command("agent-1.pyz", DIGEST, named, command=command)
        env = {"HOME": str(self.home), "PATH": str(self.programs)}
        return subprocess.run(
            ["/bin/sh", *words], env=env, capture_output=True, timeout=60, check=True, input=b"in"
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node; the Pythons of this machine are not there."""
    usual = ("python3", *(f"python3.{minor}" for minor in range(14, 5, -1)))
    monkeypatch.setattr("rankdeck.remote.node_python._PYTHONS", usual)
    return Node(tmp_path)


def test_python3_comes_first_and_the_agent_file_is_looked_for_with_it(node: Node) -> None:
    node.has("python3", "3.9|abc")
    node.has("python3.12", "3.12|no")

    found = node.find()

    home = str(node.home.stat().st_ino)
    path = f"{node.home}/.cache/rankdeck/agent-1.pyz"
    assert found[:7] == ("3.9", "abc", "python3", "", home, "0", path)


def test_a_newer_python_beside_one_that_is_too_old_is_taken(node: Node) -> None:
    node.has("python3", "3.5|")
    node.has("python3.7", "3.7|")
    node.has("python3.11", "3.11|")

    assert node.find()[:3] == ("3.11", "", "python3.11")


def test_the_first_that_the_user_named_is_taken_also_below_home_and_by_a_pattern(
    node: Node,
) -> None:
    node.has("python3", "3.12|")
    node.has("opt/one/python", "3.8|")

    assert node.find("/none/python", "~/opt/*/python").python == f"{node.home}/opt/one/python"
    assert node.find("python-x").version == ""


def test_a_program_that_is_no_python_is_said_to_be_none(node: Node) -> None:
    node.has("python3", "welcome")

    with pytest.raises(AgentError, match="`python3` gives no version"):
        check_python("n1", node.find(), ())


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [("3.9|abc", True), ("3.9|other", False), ("3.9|", False), ("3.5|abc", False)],
    ids=["the right file", "another", "none", "an old Python"],
)
def test_the_look_becomes_the_command_if_the_file_is_right(
    node: Node, answer: str, *, goes_on: bool
) -> None:
    node.has("python3", answer)
    with (node.programs / "python3").open("a") as script:
        script.write('[ "$2" = -c ] || { printf \'<%s>\' "$@"; read line; echo "$line"; }\n')

    done = node.look("none", "python3", command=("job", "a  b", "~", "*", "2"))
    heard: list[bytes] = []
    look = LookAnswer("n1", heard.append)
    for at in range(len(done.stdout)):
        look.take(done.stdout[at : at + 1])

    path = f"{node.home}/.cache/rankdeck/agent-1.pyz"
    assert look.found.get_nowait()[:3] == (*answer.split("|"), "python3")
    said = f"{answer}\n<-ES><{path}><job><a  b><~><*><2>in\n" if goes_on else ""
    assert b"".join(heard).decode() == said


def test_start_up_files_that_print_without_end_are_told() -> None:
    look = LookAnswer("n1", lambda _: None)
    look.take(b"loading modules\n" * 1000)
    with pytest.raises(AgentError, match="printed 1 MB before the answer"):
        look.take(b"loading modules\n" * 100_000)


def test_in_place_of_a_wrapper_that_prints_comes_the_python_behind_it(node: Node) -> None:
    wrapper = '#!/bin/sh\necho loads a module\nexec /usr/bin/python3 "$@"\n'
    (node.programs / "python3").write_text(wrapper)
    (node.programs / "python3").chmod(0o755)

    assert node.find().python == "/usr/bin/python3"


def test_a_python_without_a_module_of_the_agent_is_passed_over_and_else_named(node: Node) -> None:
    lacking = '#!/bin/sh\nexec /usr/bin/python3 -c "import sys; sys.modules[\'ctypes\'] = None; exec(sys.argv[2])" "$@"\n'
    (node.programs / "python3").write_text(lacking.replace('"$@"', '"$2" "$3" "$4"'))
    (node.programs / "python3").chmod(0o755)
    alone = node.find()
    node.has("python3.9", "3.9|abc")

    assert node.find().python == "python3.9"
    with pytest.raises(
        AgentError,
        match=r"`python3` does not start: ModuleNotFoundError: .*ctypes.*repair it, or name",
    ):
        check_python("n1", alone, ())


@pytest.mark.parametrize("home", [None, "", "/nowhere"])
def test_a_folder_that_is_a_link_is_not_the_users_own(tmp_path: Path, home: str | None) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    judged = f"f={tmp_path}/$1/agent.pyz; {node_python.OWN_FOLDER}"
    env = {} if home is None else {"HOME": home}

    def owns(folder: str) -> bool:
        return not subprocess.run(
            ["/bin/sh", "-c", judged, "sh", folder], env=env, check=False
        ).returncode

    assert (owns("real"), owns("link")) == (True, False)


def test_what_a_python_prints_before_its_answer_is_no_answer(node: Node) -> None:
    node.has("python3", "Loading module python/3.11\n3.11|abc")

    assert node.find()[:3] == ("3.11", "abc", "python3")


def test_a_python_that_does_not_start_says_why_and_another_is_taken(node: Node) -> None:
    broken = node.programs / "python3"
    broken.write_text("#!/bin/sh\necho 'Fatal Python error: no module encodings' >&2; exit 1\n")
    broken.chmod(0o755)

    found = node.find("python3", "/none/python")
    with pytest.raises(AgentError, match="`python3` does not start: Fatal Python error: no module"):
        check_python("n1", found, ("python3",))

    node.has("python3.9", "3.9|")
    assert node.find().python == "python3.9"


def test_an_old_python_is_named_if_there_is_no_other(node: Node) -> None:
    node.has("python3", "3.4|")

    with pytest.raises(AgentError, match=r"`python3` is 3\.4, too old"):
        check_python("n1", node.find(), ())


def test_without_any_python_the_system_is_told_and_one_sentence_says_what_to_install(
    node: Node,
) -> None:
    found = node.find("python-x")  # this machine may have one in /opt

    assert found.version == ""
    assert "ID=" in found.system
    with pytest.raises(AgentError, match=r"no Python there: .*install"):
        check_python("n1", found, ())


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ('ID="rhel";ID_LIKE="fedora";VERSION_ID="8.9";', "`dnf install python3.11`"),
        ('ID="ol";ID_LIKE="fedora";VERSION_ID="8.9";', "`dnf install python3.11`"),
        ('ID="rocky";ID_LIKE="rhel centos fedora";VERSION_ID="9.4";', "`dnf install python3.11`"),
        ("ID=fedora;VERSION_ID=42;", "`dnf install python3`"),
        ("ID=debian;VERSION_ID=12;", "`apt install python3`"),
        ("ID=ubuntu;ID_LIKE=debian;", "`apt install python3`"),
        ('ID="opensuse-leap";ID_LIKE="suse opensuse";', "`zypper install python3`"),
        ("ID=alpine;", "`apk add python3`"),
        ("", "install Python 3.6 or newer"),
        ("ID=own;=;;", "install Python 3.6 or newer"),
    ],
)
def test_the_command_is_that_of_the_distribution(system: str, command: str) -> None:
    assert install_command(system) == command


@pytest.mark.parametrize(
    ("out", "err", "said"),
    [
        (b"This account is currently not available.\n", b"", "This account is currently not available."),
        (b"This service allows sftp connections only.\n", b"", "This service allows sftp connections only."),
        (b"Welcome\n", b"rbash: sh: command not found\n", "rbash: sh: command not found"),
    ],
    ids=["nologin", "sftp only", "a restricted shell"],
)  # fmt: skip
def test_an_account_that_runs_no_commands_is_quoted(out: bytes, err: bytes, said: str) -> None:
    with pytest.raises(AgentError) as refused:
        parse_found_python("n1", out, err)

    assert f"no usable answer: it says `{said}`" in refused.value.why
    assert "name another user" in refused.value.why
