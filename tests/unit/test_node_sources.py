"""Nodes that a cluster file takes from elsewhere: groups of
ClusterShell, Slurm, inventories, lists in files.
"""

import os
import shutil
from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.config import node_sources
from rankdeck.config.clusters import read_cluster
from rankdeck.config.node_sources import read_ansible_inventory
from rankdeck.config.site_lists import read_inventory
from rankdeck.config.user import allow_uses
from rankdeck.errors import ConfigError, UntrustedError
from rankdeck.model.cluster import Cluster, Node

needs_ansible = pytest.mark.skipif(
    shutil.which("ansible-inventory") is None, reason="ansible-inventory is not installed here"
)
INVENTORY = """\
[gpu]
gpu[01:02] ansible_user=ada
[cpu]
c1 ansible_host=10.0.0.7 ansible_port=2222 ansible_user=ada
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def cluster(folder: Path, source: str, more: str = "") -> Cluster:
    file = folder / "c.yaml"
    file.write_text(f"cluster: c\nnodes: {{from: {source}{more}}}\n")
    return read_cluster(file)


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A program that comes first in the PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.defpath}")


def test_a_file_is_read_at_each_opening_and_what_is_said_besides_is_so_for_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 a\n10.0.0.2 b\n")
    first = cluster(tmp_path, "hosts hosts", ", slots: 8, gpus: 2")
    (tmp_path / "hosts").write_text("10.0.0.1 a\n")
    second = cluster(tmp_path, "hosts hosts")

    assert first.nodes == (
        Node(name="a", address="10.0.0.1", slots=8, gpus=2),
        Node(name="b", address="10.0.0.2", slots=8, gpus=2),
    )
    assert [node.name for node in second.nodes] == ["a"]


def test_a_hostfile_brings_its_slots(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("n1 slots=4\nn2:2\n")

    assert [(n.name, n.slots) for n in cluster(tmp_path, "hostfile h").nodes] == [("n1", 4), ("n2", 2)]  # fmt: skip


def test_groups_of_clustershell_are_resolved_by_it(tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/clustershell"
    (folder / "groups.d").mkdir(parents=True)
    (folder / "groups.conf").write_text(
        f"[Main]\ndefault: local\nautodir: {folder}/groups.d\n"
        f"[local]\nmap: sed -n 's/^$GROUP:\\(.*\\)/\\1/p' {folder}/local\nlist: true\n"
    )
    (folder / "local").write_text("gpu: gpu[1-2],@big\nbig: big7\n")
    (folder / "groups.d" / "site.yaml").write_text("racks: {r1: 'gpu1', r2: '@r1,c[2-3]'}\n")

    for groups, expected in {
        "@gpu": ["big7", "gpu1", "gpu2"],
        "@gpu!@big": ["gpu1", "gpu2"],
        "@racks:r2,@big": ["big7", "c2", "c3", "gpu1"],
        "@racks:*": ["c2", "c3", "gpu1"],
        "@gpu&@racks:r1": ["gpu1"],
    }.items():
        assert [node.name for node in cluster(tmp_path, f"'clush {groups}'").nodes] == expected
    with pytest.raises(
        ConfigError,
        match=r"c\.yaml:2:15: nodes\.from: clush: @none has no nodes|c\.yaml:2:15: .*none",
    ):
        cluster(tmp_path, "'clush @none'")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("'clush @gpu;rm'", "is no group"),
        ("'clush $(id)'", "is no group"),
        ("'slurm -x'", "is no partition"),
        ("'slrm'", "is no source of nodes; did you mean `slurm`"),
        ("'hosts none'", "no such file"),
        ("'hosts'", "needs the name of a file"),
        ("slurm", "`sinfo` is not installed here"),
    ],
)
def test_a_source_that_gives_nothing_is_one_sentence_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        cluster(tmp_path, source)

    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{tmp_path}/c.yaml:2:15: nodes.from: "), problem
    assert said in problem.text


def test_slurm_is_asked_for_the_nodes_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = f"echo \"$@\" >{tmp_path}/asked; printf 'NODELIST CPUS\\na1 64\\na1 64\\na2 32\\n'"
    program(tmp_path, monkeypatch, "sinfo", answer)
    found = cluster(tmp_path, "slurm gpu")

    assert [(node.name, node.slots) for node in found.nodes] == [("a1", 64), ("a2", 32)]
    assert (tmp_path / "asked").read_text() == "-N -o %N %c -p gpu\n"


def test_a_source_that_fails_or_hangs_is_named_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "sinfo", "echo 'slurm_load_partitions: \x1b[31mrefused' >&2; exit 1")  # fmt: skip
    with pytest.raises(ConfigError, match=r"`sinfo` says: slurm_load_partitions: <U\+001B>\[31mrefused"):  # fmt: skip
        cluster(tmp_path, "slurm")
    monkeypatch.setattr(node_sources, "LIMIT", 0.3)
    program(tmp_path, monkeypatch, "sinfo", "exec sleep 60")
    with pytest.raises(ConfigError, match=r"`sinfo` gave no answer within 0\.3 s"):
        cluster(tmp_path, "slurm")


# ---- Ansible


def test_an_inventory_is_read_without_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "inventory").write_text(INVENTORY)
    found = cluster(tmp_path, "ansible inventory")

    assert [node.name for node in found.nodes] == ["gpu01", "gpu02", "c1"]
    assert found.access.user == "ada"
    found = cluster(tmp_path, "ansible inventory gpu")
    assert [node.name for node in found.nodes] == ["gpu01", "gpu02"]
    with pytest.raises(ConfigError, match="without any node in `disk`"):
        cluster(tmp_path, "ansible inventory disk")
    with pytest.raises(ConfigError, match="a folder is read by ansible-inventory, which is not"):
        cluster(tmp_path, "ansible .")


def test_a_host_of_an_inventory_that_is_this_machine_is_used_without_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "inventory").write_text("[gpu]\nn1 ansible_connection=local\nn2\n")
    found = cluster(tmp_path, "ansible inventory")

    assert found.nodes == (Node(name="n1", here=True), Node(name="n2"))


def test_ansible_inventory_runs_only_with_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "ansible-inventory", f"touch {tmp_path}/ran; echo '{{}}'")
    (tmp_path / "inventory").write_text(INVENTORY)
    with pytest.raises(UntrustedError, match="ansible-inventory"):
        cluster(tmp_path, "ansible inventory")

    assert not (tmp_path / "ran").exists()


def test_what_ansible_inventory_prints_is_read() -> None:
    text = """{"_meta": {"hostvars": {"a": {"ansible_host": "10.0.0.1", "ansible_port": 22}}},
      "all": {"children": ["g", "ungrouped"]}, "g": {"children": ["h", "g"]}, "h": {"hosts": ["a", "b", 7]}}"""
    found = read_inventory(Path("i"), text)

    assert [(one.name, one.address, one.port) for one in found.nodes] == [("a", "10.0.0.1", 22), ("b", "", 0)]  # fmt: skip
    for bad in ("[]", "{", '{"all": {}}', '{"all": {"hosts": ["../x"]}}'):
        with pytest.raises(ConfigError, match=r"^i:1:1: list: "):
            read_inventory(Path("i"), bad)


@needs_ansible
def test_ansible_itself_tells_hosts_groups_and_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inventory").write_text(INVENTORY + "[gpu:vars]\nansible_port=2200\n")
    with pytest.raises(UntrustedError) as caught:
        cluster(tmp_path, "ansible inventory gpu")
    allow_uses(caught.value.problems)
    found = cluster(tmp_path, "ansible inventory gpu")

    assert found.nodes == (Node(name="gpu01", port=2200), Node(name="gpu02", port=2200))
    assert run_command_line(["nodes", "--import", str(tmp_path / "inventory")], None) == 0
    assert "port: 2200" in capsys.readouterr().out


WITH_PARENTS = """\
[gpu]
n[1:3]
[b]
n1 ansible_user=own
n2
[top:children]
gpu
b
[top:vars]
ansible_port=1
[gpu:vars]
ansible_port=2
[b:vars]
ansible_port=4
ansible_user=b
[all:vars]
ansible_user=every
ansible_host=10.0.0.9
"""


@needs_ansible
def test_our_reading_of_groups_and_variables_is_ansibles(tmp_path: Path) -> None:
    (tmp_path / "i").write_text(WITH_PARENTS)

    assert read_inventory(tmp_path / "i", WITH_PARENTS) == read_ansible_inventory(tmp_path / "i")


def test_groups_within_groups_say_what_is_so_for_their_hosts() -> None:
    found = read_inventory(Path("i"), WITH_PARENTS)
    said = [(one.name, one.address, one.port, one.user) for one in found.nodes]

    assert said == [
        ("n1", "10.0.0.9", 2, "own"), ("n2", "10.0.0.9", 2, "b"), ("n3", "10.0.0.9", 2, "every"),
    ]  # fmt: skip


def test_an_inventory_that_ansible_cannot_read_is_said_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'test "$ANSIBLE_INVENTORY_UNPARSED_FAILED" = 1 && echo "[ERROR]: not parsed" >&2; exit 1'
    program(tmp_path, monkeypatch, "ansible-inventory", text)
    (tmp_path / "i").write_text("plugin: aws_ec2\n")

    assert run_command_line(["nodes", "--import", str(tmp_path / "i")], None) == 1
    assert f"says: [ERROR]: not parsed (`ansible-inventory -i {tmp_path}/i --list`" in capsys.readouterr().err  # fmt: skip


ALLOCATED = """\
case "$*" in *-n*) printf 'NODELIST CPUS\\nn3 8\\nn4 8\\n' ;; *) printf 'NODELIST CPUS\\nn1 8\\nn2 8\\nn3 8\\nn4 8\\n' ;; esac"""


def test_inside_an_allocation_its_nodes_are_first_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "sinfo", ALLOCATED)
    program(tmp_path, monkeypatch, "squeue", f'echo "$@" >{tmp_path}/asked; echo "n[3-4]"')
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[3-4]")

    every, own = cluster(tmp_path, "slurm"), cluster(tmp_path, "allocation")
    other = cluster(tmp_path, "allocation 48_3")

    assert [node.name for node in every.nodes] == ["n3", "n4", "n1", "n2"]
    assert [node.name for node in own.nodes] == ["n3", "n4"]
    assert own.nodes == other.nodes
    assert "-j 48_3 " in (tmp_path / "asked").read_text()


def test_without_an_allocation_the_sentence_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    program(tmp_path, monkeypatch, "squeue", "exit 0")
    for source, why in (
        ("allocation", "start inside `salloc`, or name a job of yours that runs"),
        ("allocation x;id", "there is no allocation here"),
        ("allocation 4711", "job 4711 does not run: it has no nodes"),
    ):
        with pytest.raises(ConfigError, match=why):
            cluster(tmp_path, source)
