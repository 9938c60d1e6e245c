"""Lists of nodes that a site has already become cluster files; what
is no list is named with its line.
"""

from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.config.clusters import read_cluster
from rankdeck.config.document import write_documents
from rankdeck.config.node_sources import has_ansible
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
SINFO_REASONS = """\
REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-11-20T10:00:00 gpu[01-02]
Kill task failed     root      2026-11-20T10:00:00 gpu09
"""
SINFO_STATES = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up 1-00:00:00      1 drain* gpu01
gpu*         up 1-00:00:00      2   mix- gpu[02,04]
empty        up   infinite      0    n/a
"""
SPACED = """\
n1 slots = 4
n2 slots= 4 max_slots = 8
n3 slots =2 max-slots=3  # few
"""
BOUND = "n1:4 binding=user:0,1\nn2:2:mlx5_0 binding=map=socket\n"
ADDRESSES = "10.0.0.1 slots=4\n10.0.0.2 cpu=4 username=ada\n"
GROUP_VARIABLES = """\
[gpu] # the first rack
node[a:c] ansible_port=2222
db-[01:09:4].lab
gate.example:5309
[0:1].rack
[old]
c1
[every:children]
gpu
old
[old:vars]
ansible_port = 22
[every:vars]
ansible_port = 2200
ansible_user=bob
[all:vars]
ansible_user = "ops"
"""
VAULT = """\
---
# the site
all:
  # every one
  vars:
    ansible_user: ops
    ansible_port: 2201
  children:
    gpu:
      hosts:
        g[1:2]: null
      vars:
        ansible_port: 2202
        ansible_password: !vault |
          $ANSIBLE_VAULT;1.1;AES256
          6634
    cpu:
      hosts: {c1: {ansible_connection: local}}
"""
FLOW = "gpu: {hosts: {n1: {}, n2: {ansible_host: 10.1.1.1}}}\n"
DYNAMIC = """\
{"gpu": {"hosts": ["n1", "n2"], "vars": {"ansible_port": 2200}}, "old": ["n3"],
 "_meta": {"hostvars": {"n1": {"ansible_host": "10.0.0.1"}}}}
"""
ODD_HOSTS = """\
127.0.1.1\thead.lab head
0.0.0.0 advertisement.example
255.255.255.255 broadcasthost
fe80::1%eth0 gateway
2001:db8::5   n5 n5.lab # the fifth
10.0.0.6 N6.lab n6
10.0.0.7
"""
LONE_GENDERS = "node1\nnode2 gpu\nnode[3-4],node9 ib,mem=1T\nnode2 cores=32\n"
OPERATORS = "a: node[1-6]!node5\nb: @a,rack[1-2]n[1-2]\nc: n[0-10/5],@*\nd: c9!@b\n"
MIXED_YAML = "racks:\n  r1: '@gpu,c3'\n  r2: 'n[1-2],@cpu'\n"
KUBECTL_WIDE = """\
NAME  STATUS                    ROLES   AGE  VERSION  INTERNAL-IP  EXTERNAL-IP  OS-IMAGE            KERNEL-VERSION  CONTAINER-RUNTIME
kb-1  Ready,SchedulingDisabled  <none>  9d   v1.31.2  10.0.0.31    <none>       Ubuntu 22.04.4 LTS  5.15.0          containerd://1.7
kb-2  NotReady                  <none>  9d   v1.31.2  <none>       <none>       Ubuntu 22.04.4 LTS  5.15.0          containerd://1.7
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
        (KUBECTL_WIDE, "kubectl", [{"name": "kb-1", "address": "10.0.0.31"}, {"name": "kb-2"}]),
        ("node/kb-1\nnode/kb-2\n", "kubectl", [{"name": "kb-[1-2]"}]),
        (SINFO_REASONS, "sinfo", [{"name": "gpu[01-02,09]"}]),
        (SINFO_STATES, "sinfo", [{"name": "gpu[01-02,04]"}]),
        (
            "HOSTNAMES CPUS STATE\na1 64+ mixed\na2 64 down~\n",
            "sinfo",
            [{"name": "a[1-2]", "slots": 64}],
        ),
        (SPACED, "hostfile", [{"name": "n[1-2]", "slots": 4}, {"name": "n3", "slots": 2}]),
        (BOUND, "hostfile", [{"name": "n1", "slots": 4}, {"name": "n2", "slots": 2}]),
        (ADDRESSES, "hostfile", [{"name": "10.0.0.[1-2]", "slots": 4}]),
        ("n1\nn1\r\nn2\n", "hostfile", [{"name": "n1", "slots": 2}, {"name": "n2"}]),
        (
            GROUP_VARIABLES,
            "ansible",
            [
                {"name": "nodea,nodeb,nodec", "port": 2222},
                {"name": "[0-1].rack,db-[01,05,09].lab", "port": 2200},
                {"name": "gate.example", "port": 5309},
                {"name": "c1", "port": 22},
            ],
        ),
        (
            VAULT,
            "yaml",
            [{"name": "g[1-2]", "port": 2202}, {"name": "c1", "address": "local", "port": 2201}],
        ),
        (FLOW, "yaml", [{"name": "n1"}, {"name": "n2", "address": "10.1.1.1"}]),
        (
            DYNAMIC,
            "json",
            [
                {"name": "n1", "address": "10.0.0.1", "port": 2200},
                {"name": "n2", "port": 2200},
                {"name": "n3"},
            ],
        ),
        (
            ODD_HOSTS,
            "hosts",
            [{"name": "n5", "address": "2001:db8::5"}, {"name": "N6.lab", "address": "10.0.0.6"}],
        ),
        (LONE_GENDERS, "genders", [{"name": "node[1-4,9]"}]),
        (OPERATORS, "groups", [{"name": "c9,n[0,5,10],node[1-4,6],rack[1-2]n[1-2]"}]),
        (MIXED_YAML, "yaml", [{"name": "c3,n[1-2]"}]),
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


CLUSH_SETTINGS = "[Main]\ndefault: local\nconfdir: /etc/clustershell/groups.conf.d\n"
LOST = """\
[gpu]
n[1:2] ansible_ssh_private_key_file=~/.ssh/lab
n3 ansible_ssh_common_args='-o ProxyJump=gate'
n4 ansible_host="{{ ip }}"
"""


def test_what_a_cluster_file_cannot_say_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "group_vars").mkdir()
    file = tmp_path / "inventory"
    file.write_text(LOST)

    assert run_command_line(["nodes", "--import", str(file)], no_console) == 0
    out, err = capsys.readouterr()
    assert "- name: n[1-4]\n" in out
    assert "{{" not in out
    assert "n[1-2]: the list's key is ~/.ssh/lab: say so by `IdentityFile`" in err
    assert "n3: ansible_ssh_common_args is `-o ProxyJump=gate`: say it in ~/.ssh/config" in err
    assert "n4: ansible_host is a template" in err
    if not has_ansible():
        assert f"group_vars beside {file} is not read" in err
        assert run_command_line(["nodes", "--import", str(tmp_path)], no_console) == 2
        assert "a folder is read by ansible-inventory" in capsys.readouterr().err


def test_the_key_of_all_becomes_that_of_the_cluster() -> None:
    text = "[g]\nn1\nn2\n[g:vars]\nansible_ssh_private_key_file=~/.ssh/lab\n"
    assert read_site_list(Path("i"), text).cluster_table("x")["ssh"] == {"identity": "~/.ssh/lab"}


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        (CLUSH_SETTINGS, "", "write `nodes: {from: clush @GROUP}`"),
        ("plugin: aws_ec2\nregions: [x]\n", "", "install ansible-inventory, which asks it"),
        ("#!/bin/sh\necho '{}'\n", "", "--list | rankdeck nodes --import -`"),
        ("[gpu:hosts]\nn1\n", "", "list:1:1: list: `:hosts` is no kind of section"),
        (
            "[gpu]\n[1:9]x[1:999]y[1:999]\n",
            "",
            "list:2:1: list: not a line of an inventory: more than",
        ),
        ("{ not json", "", "no inventory in JSON"),
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
    assert "`word` is none of json" in capsys.readouterr().err
    assert run_command_line(["nodes", "--import", str(tmp_path / "none")], no_console) == 2
    assert "none: No such file" in capsys.readouterr().err
