"""Lists of nodes that a site has already become cluster files; what
is no list is named with its line.
"""

from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.config.clusters import read_cluster
from rankdeck.config.document import write_documents
from rankdeck.config.site_lists import FORMATS, read_site_list
from rankdeck.errors import ConfigError
from tests.unit.test_cli_acks import no_console

HOSTFILE = """\
# the rack at the window
n01 slots=4
n02 slots=4 max_slots=8
n03
n03   # twice: two slots
"""
MPICH = "n[1-2]:8\nuser7@n3:2\n"
INI = """\
[head]
login ansible_host=10.0.0.1 ansible_user=ro644 ansible_port=2222

[gpu]
gpu[01:03].lab ansible_user=ro644
rack-[a:b]1   # two racks

[all:vars]
ansible_python_interpreter=/usr/bin/python3

[compute:children]
gpu
"""
YAML = """\
all:
  vars: {ntp: yes}
  hosts:
    login: {ansible_host: 10.0.0.1, ansible_port: 2222}
  children:
    gpu:
      hosts:
        gpu[01:03]:
        login:
"""
HOSTS = """\
127.0.0.1 localhost
::1 ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
10.0.0.11 node1 node1.lab
fd00::12  node2
"""
CLUSH = "all: @gpu,@cpu\ngpu: node[1-4]\ncpu: c[01-02],c09\n"
CLUSH_YAML = """\
roles:
  gpu: 'node[1-2]'
  cpu: ['c1', 'c2']
  all: '@gpu,@cpu'
"""
GENDERS = "node[1-2] gpu,ib,mem=1T\nlogin1   login\n"
SINFO = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      3    mix gpu[01-03]
debug        up      30:00      1   idle gpu01
"""
SINFO_LONG = """\
Fri Nov 27 03:00:00 2026
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY
gpu01          1      gpu*       mixed 128    2:32:2 1031000
gpu02          1      gpu*        idle 128    2:32:2 1031000
"""
KUBECTL = """\
NAME       STATUS   ROLES           AGE   VERSION
kb-ctl     Ready    control-plane   9d    v1.31.2
kb-gpu-1   Ready    <none>          9d    v1.31.2
"""


@pytest.mark.parametrize(
    ("text", "form", "rows"),
    [
        (HOSTFILE, "hostfile", [{"name": "n[01-02]", "slots": 4}, {"name": "n03", "slots": 2}]),
        (MPICH, "hostfile", [{"name": "n[1-2]", "slots": 8}, {"name": "n3", "slots": 2}]),
        ("n1\nn2\n", "hostfile", [{"name": "n[1-2]"}]),
        (
            INI,
            "ansible",
            [
                {"name": "login", "address": "10.0.0.1", "port": 2222},
                {"name": "gpu[01-03].lab,rack-a1,rack-b1"},
            ],
        ),
        (
            "n1 ansible_host=10.0.0.1\nn2\n",  # without groups
            "ansible",
            [{"name": "n1", "address": "10.0.0.1"}, {"name": "n2"}],
        ),
        (
            YAML,
            "yaml",
            [{"name": "login", "address": "10.0.0.1", "port": 2222}, {"name": "gpu[01-03]"}],
        ),
        (
            HOSTS,
            "hosts",
            [{"name": "node1", "address": "10.0.0.11"}, {"name": "node2", "address": "fd00::12"}],
        ),
        (CLUSH, "groups", [{"name": "c[01-02,09],node[1-4]"}]),
        (CLUSH_YAML, "yaml", [{"name": "c[1-2],node[1-2]"}]),
        (GENDERS, "genders", [{"name": "login1,node[1-2]"}]),
        (SINFO, "sinfo", [{"name": "gpu[01-03]"}]),
        (SINFO_LONG, "sinfo", [{"name": "gpu[01-02]", "slots": 128}]),
        (
            SINFO_LONG + "gpu01 1 all mixed 128 2:32:2 1031000\n",
            "sinfo",
            [{"name": "gpu[01-02]", "slots": 128}],  # in two partitions
        ),
        (
            "gpu: node[1,3] @cpu,c9\n",
            "groups",
            [{"name": "c9,node[1,3]"}],
        ),
        (KUBECTL, "kubectl", [{"name": "kb-ctl,kb-gpu-1"}]),
    ],
)
def test_a_list_is_known_by_its_text_and_becomes_a_cluster_file(
    text: str, form: str, rows: list[dict[str, object]], tmp_path: Path
) -> None:
    found = read_site_list(Path("list"), text)
    file = tmp_path / "site.yaml"
    file.write_text(write_documents([found.cluster_table("site")]))

    assert found.format == form
    assert found.cluster_table("site")["nodes"] == rows
    assert {node.name for node in read_cluster(file).nodes} == {node.name for node in found.nodes}


def test_one_user_becomes_the_login_of_all() -> None:
    assert read_site_list(Path("list"), INI).cluster_table("x")["ssh"] == {"user": "ro644"}
    several = read_site_list(Path("list"), "a@n1\nb@n2\n")
    assert ("ssh" in several.cluster_table("x"), several.users) == (False, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("n1\nn[1-\n", "", "list:2:1"),
        ("n1\nsome;thing\n", "", "`some;thing` is not the name of a node"),
        ("", "", "not a list of nodes that is known here"),
        ("# nothing\n", "hostfile", "without any node"),
        ("n1 slots=4\n", "hosts", "not a hosts file"),
        ("[gpu]\nn1 ansible_host='10.0.0.1\n", "", "list:2:1: list: not a line of an inventory"),
        ("all:\n  hosts:\n    n1:\n   bad\n", "yaml", "not YAML"),
        ("all:\n  children: {a: &a {children: {b: *a}}}\n", "yaml", "list:"),
    ],
)
def test_what_is_no_list_is_named_with_its_line(text: str, form: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_site_list(Path("list"), text, form)
    assert said in str(refused.value)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text", ["\0", "a" * 100_000, "[" * 5000, "::\n" * 10, "n[1-9999999]\n", "- 1\n", "🚀 x\n"]
)
def test_rubbish_is_refused_or_gives_nodes_and_nothing_else(text: str, form: str) -> None:
    told = ""
    try:
        found = read_site_list(Path("list"), text, form).nodes
    except ConfigError as error:
        found, told = (), str(error)
    assert found or told.startswith("list:")


def test_the_command_prints_a_cluster_file_and_says_how_the_list_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts.ini"
    file.write_text("[gpu]\nn1 ansible_user=a\nn2 ansible_user=b\n")

    assert run_command_line(["nodes", "--import", str(file)], no_console) == 0
    out, err = capsys.readouterr()
    assert out == "cluster: hosts\nnodes:\n- name: n[1-2]\n"
    assert "2 nodes, read as an Ansible inventory" in err
    assert "n1: the list logs in as a" in err

    assert run_command_line(["nodes", "--import", str(file), "--format", "word"], no_console) == 2
    assert "`word` is none of ansible" in capsys.readouterr().err
    assert run_command_line(["nodes", "--import", str(tmp_path / "none")], no_console) == 2
    assert "none: No such file" in capsys.readouterr().err
