"""Real OpenSSH as people have it: keys in an ssh-agent, nodes behind a jump host."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.lab import Lab
from tests.support.polling import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LIMIT = 60


@pytest.fixture
def agent(lab: Lab) -> Iterator[str]:
    """The socket of an ssh-agent on the head that holds the lab's key."""
    socket = lab.folder / "agent.sock"
    environment = {**lab.environment(), "SSH_AUTH_SOCK": str(socket)}
    argv = lab.command(["ssh-agent", "-D", "-a", str(socket)])
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(socket.exists)
            add = lab.command(["ssh-add", str(lab.folder / "id")])
            subprocess.run(add, env=environment, check=True, capture_output=True, timeout=300)
            yield str(socket)
        finally:
            process.terminate()


@pytest.fixture
def behind(lab: Lab) -> Iterator[str]:
    """An ssh_config in which n2 is reached through n1, and no other way there is."""
    jump, target = lab.address("n1"), lab.address("n2")
    config = lab.folder / "jump_config"
    config.write_text(
        f"Host {target}\n  ProxyJump {jump}\n"
        f"Host *\n  User {lab.user}\n  UserKnownHostsFile {lab.folder}/known_hosts\n"
    )
    route = ["unreachable", f"{target}/32"]
    lab.as_root(["ip", "route", "add", *route])
    yield str(config)
    lab.as_root(["ip", "route", "del", *route])


def test_the_key_may_be_in_an_agent_and_the_node_behind_another(
    lab: Lab, agent: str, behind: str
) -> None:
    file = lab.cluster_file(ssh={"config": behind})
    lab.rankdeck("trust", str(file))
    argv = [sys.executable, "-m", "rankdeck", "-c", str(file), "status", "--json"]
    done = subprocess.run(
        lab.command(argv),
        env={**lab.environment(), "SSH_AUTH_SOCK": agent},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    heard = {n["name"]: n["heard_s"] for n in json.loads(done.stdout)["nodes"]}
    assert None not in heard.values(), done.stderr
    assert "n2" in heard


def test_without_the_agent_the_sentence_says_what_to_check(lab: Lab, behind: str) -> None:
    file = lab.cluster_file(ssh={"config": behind})
    lab.rankdeck("trust", str(file))
    for patience in ("5", "40"):  # a node of a busy machine takes its time to refuse
        done = lab.rankdeck("-c", str(file), "status", "--wait", patience, limit=LIMIT)
        if "login refused" in done.stdout + done.stderr:
            break

    assert "login refused" in done.stdout + done.stderr
    assert "ssh-agent" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
