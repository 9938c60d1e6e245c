"""When the login node is this machine, what a cluster file says of it,
and what programs on it get to see.
"""

from pathlib import Path

import pytest

from rankdeck.config.clusters import read_cluster
from rankdeck.errors import ConfigError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.remote.shell import asks_here
from rankdeck.remote.this_machine import LoginWay, OwnPlace, environment_here, leads_here
from rankdeck.remote.user_ssh import UserSsh
from rankdeck.values import replace

WAY = LoginWay("me", 22, detour=False, addresses=frozenset(("10.0.0.1", "fd00::1")))
OWN = OwnPlace("me", frozenset(("10.0.0.1", "fd00::1", "127.0.0.1")), "/usr/bin/sbatch")


def test_a_login_to_an_address_of_this_machine_leads_here() -> None:
    assert leads_here(WAY, OWN)


@pytest.mark.parametrize(
    "way",
    [
        replace(WAY, user="other"),
        replace(WAY, port=2222),
        replace(WAY, detour=True),
        replace(WAY, addresses=frozenset()),
        replace(WAY, addresses=frozenset(("10.0.0.2",))),
        replace(WAY, addresses=frozenset(("10.0.0.1", "10.0.0.2"))),
    ],
    ids=["another user", "another port", "a jump host", "no address", "another address", "one of several"],
)  # fmt: skip
def test_a_login_that_may_lead_elsewhere_goes_over_ssh(way: LoginWay) -> None:
    assert not leads_here(way, OWN)


def test_a_machine_without_the_schedulers_program_is_no_login_node() -> None:
    assert not leads_here(WAY, replace(OWN, program=""))


def test_programs_here_do_not_see_secrets_or_the_job_in_which_the_console_runs() -> None:
    own = {
        "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "7", "RANKDECK_JOB": "outer-1",
        "RANKDECK_STATE": "/scratch/me", "MQTT_WORD": "secret", "SBATCH_ACCOUNT": "lab",
    }  # fmt: skip

    assert environment_here(own, {"MQTT_WORD"}) == {
        "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "RANKDECK_STATE": "/scratch/me",
        "SBATCH_ACCOUNT": "lab",
    }  # fmt: skip


def written(folder: Path, text: str) -> Path:
    file = folder / "c.yaml"
    file.write_text(text)
    return file


def test_a_node_that_is_this_machine_keeps_its_name_for_the_others(tmp_path: Path) -> None:
    text = "cluster: c\nnodes:\n  - {name: head, address: local, slots: 4}\n  - n1\n"
    head, n1 = read_cluster(written(tmp_path, text)).nodes

    assert head == Node(name="head", here=True, slots=4)
    assert head.host == "head"
    assert not n1.here


def test_only_one_node_is_this_machine(tmp_path: Path) -> None:
    text = "cluster: c\nnodes:\n  - {name: a, address: local}\n  - {name: b, address: local}\n"
    with pytest.raises(ConfigError, match=r":4:\d+: .*only one node can have `address: local`"):
        read_cluster(written(tmp_path, text))


def test_a_login_node_that_is_this_machine_needs_no_login(tmp_path: Path) -> None:
    slurm = "cluster: c\nbackend: slurm\nslurm: {login: local}\n"
    kubernetes = "cluster: c\nbackend: kubernetes\nkubernetes: {login: local}\n"

    assert read_cluster(written(tmp_path, slurm)).hosts == (Node(name="local", here=True),)
    read = read_cluster(written(tmp_path, kubernetes))
    assert asks_here(read)
    assert read.hosts == ()


def test_a_shell_and_a_script_there_need_no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/dash")
    cluster = Cluster(name="c", nodes=(Node(name="head", here=True), Node(name="n1")))
    ssh = UserSsh(cluster)

    assert ssh.command("head") == ("/bin/dash", "-l")
    assert ssh.command("head", ("top", "-b")) == ("top", "-b")
    assert ssh.command("n1")[0] == "ssh"
