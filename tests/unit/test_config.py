"""Cluster, job and settings files: what is read, and what is said of every mistake."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.cli.check import look_at
from rankdeck.config import clusters, files
from rankdeck.config.clusters import read_cluster
from rankdeck.config.jobs import read_job
from rankdeck.config.user import UiSettings, read_settings
from rankdeck.errors import ConfigError
from rankdeck.model.cluster import Cluster, Transport
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck_agent.rules import derived

CLUSTER = """\
cluster: ro644-lab
nodes:
  - {name: sakuya, address: 192.168.10.4, slots: 4}
  - {name: "gpu[00-03]", address: "10.0.0.[1-4]", slots: 8, gpus: 8, rdma: 8}
ssh: {user: ro644}
broker: {url: "mqtts://head:8883", username: console, password_env: RANKDECK_MQTT}
expect: {gpu_model: A100, rdma_rate_gbps: 25}
"""
JOB = """\
job: himeno
launch: mpi                  # mpi | torchrun | tensorflow | plain
nodes: 2
ranks_per_node: 4
container: {runtime: apptainer, image: mpi-multinodes.sif, mounts: ["/data:/data:ro"]}
command: [bmt]
env: {OMP_NUM_THREADS: "1"}
mpi: {args: ["--mca", "btl_vader_single_copy_mechanism", "none"]}
"""


def write(folder: Path, text: str | bytes, name: str = "f.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mistakes(folder: Path, text: str | bytes) -> list[str]:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        look_at(path)[0]
    return [str(p).removeprefix(f"{path}:") for p in caught.value.problems]


def test_the_cluster_of_the_design_is_read(tmp_path: Path) -> None:
    cluster = read_cluster(write(tmp_path, CLUSTER))

    assert [n.name for n in cluster.nodes] == [
        "sakuya",
        "gpu00",
        "gpu01",
        "gpu02",
        "gpu03",
    ]
    assert cluster.node("gpu02").address == "10.0.0.3"
    assert cluster.node("gpu02").slots == 8
    assert cluster.broker is not None
    assert (cluster.broker.host, cluster.broker.port, cluster.broker.tls) == (
        "head",
        8883,
        True,
    )
    assert cluster.expect == {"gpu_model": "A100", "rdma_rate_gbps": 25}


def test_the_job_of_the_design_is_read(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, JOB))

    assert (job.launch, job.nodes, job.ranks_per_node) == (Launch.MPI, 2, 4)
    assert job.container is not None
    assert job.container.mounts == ("/data:/data:ro",)
    assert job.mpi.args[-1] == "none"


def test_a_document_is_told_by_its_own_key(tmp_path: Path) -> None:
    assert isinstance(look_at(write(tmp_path, CLUSTER))[0], Cluster)
    assert isinstance(look_at(write(tmp_path, JOB))[0], JobSpec)


def test_what_is_made_up_and_what_is_left_alone_is_read(tmp_path: Path) -> None:
    more = 'simulate: [gpu, "gpu:hot@sakuya"]\nrdma_exclude: ["mlx5_8", "bnxt*"]\n'
    cluster = read_cluster(write(tmp_path, CLUSTER + more))

    assert cluster.simulate == ("gpu", "gpu:hot@sakuya")
    assert cluster.rdma_exclude == ("mlx5_8", "bnxt*")


def test_a_fault_that_is_none_is_reported_with_the_nearest(tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, CLUSTER + 'simulate: ["gpu:hott@sakuya"]\n')

    assert "gpu:hot" in mistake


def test_a_switch_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    one = "{name: leaf1, ports: {E1: 'n1:mlx5_0/1'}}"
    text = f"cluster: x\nnodes: [{{name: n1}}]\nswitches: [{one}, {one}]\n"

    assert mistakes(tmp_path, text) == [
        "3:55: switches[1]: switch `leaf1` is given twice; write all its ports in one entry"
    ]


def test_every_mistake_is_reported_at_its_place(tmp_path: Path) -> None:
    text = "cluster: x\nnodes:\n  - {name: a, adress: h}\n  - {name: a, slots: eight}\nbrokr: {}\n"

    assert mistakes(tmp_path, text) == [
        "3:15: nodes[0]: unknown key `adress`; did you mean `address`?",
        "4:5: nodes[1]: node `a` is given twice; first on line 3",
        "4:22: nodes[1].slots: expected a whole number from 1 to 65536, found text `eight`",
        "5:1: file: unknown key `brokr`; did you mean `broker`?",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "the file is empty"),
        (b"a: [1", "not YAML"),
        (b"a: \x07", "not YAML"),
        (b"x\xff", "not UTF-8: byte 0xff"),
        pytest.param(b"[" * 5000, "nested too deeply", id="deep"),
        (b"job: &a [*a]", "aliases"),
        pytest.param(b"x: " + b"y" * (1 << 20), "larger than 1024 KiB", id="large"),
        (b"cluster: a\ncluster: b\nnodes: [n]", "given twice; first on line 1"),
        (b"- 1", "expected a table"),
        (b"cluster: c\nnodes: [n]\nexpect: {gpu_modle: A100}", "did you mean `gpu_model`?"),
        (b"cluster: c\nnodes: [n]\nexpect: {net_speed_gbps: fast}", "expected a number"),
        (
            b"cluster: c\nnodes: [n]\nbroker: {url: 'mqtt://h', password: x}",
            "password_env",
        ),
        (b"cluster: c\nnodes: [n]\nbroker: {url: 'mqtt://u:pw@h'}", "holds a password"),
        (b"cluster: c\nnodes: [n]\nssh: {password: x}", "identity"),
        (b"cluster: c\nnodes: ['n[1-']", "not a node set"),
        (b"cluster: c\nnodes: ['n[1-999999999]']", "more than 100000 names"),
        (b"cluster: c\nnodes: ['n[01-21-99999999]']", "not a node set: [01-21-99999999]"),
        (b"cluster: c\nnodes: ['n[[1-99999999]']", "a bracket is missing"),
        (b"cluster: c\nnodes: ['-oProxyCommand=x']", "is not a node name"),
        (b"cluster: c\nnodes: [{name: n, address: '-oX'}]", "host name or IP"),
        (
            b"cluster: c\nnodes: [{name: 'n[1-2]', address: h}]",
            "1 addresses for 2 nodes",
        ),
        (b"cluster: c\nnodes: [n]\nbackend: slrum", "did you mean `slurm`?"),
        (b"cluster: c\nnodes: [n]\nnetwork: 10.0.0.1/24", "is not a network"),
        (b"job: j\nlaunch: mpii\ncommand: x", "did you mean `mpi`?"),
        (b"job: j\nlaunch: mpi", "`command` is missing: the program that each rank runs"),
        (b"job: j\ncommand: a", "`launch` is missing: mpi, torchrun, "),
        (b"job: j\nlaunch: mpi\ncommand: 'a \"b'", "cannot be split"),
        (b"job: j\nlaunch: mpi\ncommand: x\nenv: {A: yes}", "put it in quotes"),
        (b"job: j\nlaunch: mpi\ncommand: x\nenv: {'A B': c}", "name of a variable"),
        (b"job: j\nlaunch: mpi\ncommand: x\nfiles: {../a: b}", "not a path inside"),
        (b"job: j\nlaunch: mpi\ncommand: x\nfiles: {events: b}", "uses itself"),
        (
            b"job: j\nlaunch: mpi\ncommand: x\nfiles: {a: {from: gone.py}}",
            "gone.py: no such file",
        ),
        (
            b"job: j\nlaunch: mpi\ncommand: x\ncontainer: {image: i, mounts: [x]}",
            "not a mount",
        ),
        (b"job: j\nlaunch: plain\ncommand: x\ntorch: {port: 1}", "no effect"),
        (b"job: j\nlaunch: mpi\ncommand: x\nnodes: 3\non: 'a,b'", "`on` names 2"),
    ],
)
def test_a_mistake_is_one_clear_sentence(tmp_path: Path, text: bytes, part: str) -> None:
    found = mistakes(tmp_path, text)

    assert any(part in line for line in found), found
    assert all(line.isprintable() for line in found)


def test_a_password_never_appears_in_a_message(tmp_path: Path) -> None:
    text = "cluster: c\nnodes: [n]\nbroker: {url: 'xx://u:hunter2@h', password: hunter2}"

    assert "hunter2" not in " ".join(mistakes(tmp_path, text))


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        look_at(tmp_path / "gone.yaml")[0]
    with pytest.raises(ConfigError, match="cannot be read"):
        look_at(tmp_path)[0]


def test_files_come_from_beside_the_job(tmp_path: Path) -> None:
    write(tmp_path, "print(1)\n", "p.py")
    text = "job: j\nlaunch: plain\ncommand: x y\nfiles: {a.py: {from: p.py}, b: text}"
    job = read_job(write(tmp_path, text))

    assert job.files == {"a.py": "print(1)\n", "b": "text"}
    assert job.command == ("x", "y")


@pytest.mark.parametrize(("launch", "on"), [("mpi", True), ("plain", False), ("torchrun", True)])
def test_gang_abort_is_on_where_ranks_wait_for_one_another(
    tmp_path: Path, launch: str, on: bool
) -> None:
    job = read_job(write(tmp_path, f"job: j\nlaunch: {launch}\ncommand: x"))

    assert job.abort.enabled is on


def test_what_is_expected_as_a_number_is_what_the_agent_compares_as_one() -> None:
    assert set(clusters.COUNTED) == {*derived.SPEEDS, *derived.COUNTS}


def test_clusters_are_found_by_name_the_users_own_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert files.find_cluster("demo") == files.find_shipped("sample-clusters") / "demo.yaml"
    folder = files.config_folder() / "clusters"
    folder.mkdir(parents=True)
    own = write(folder, CLUSTER, "demo.yaml")

    assert files.find_cluster("demo") == own
    with pytest.raises(ConfigError, match="did you mean `demo`"):
        files.find_cluster("dem")


def test_what_is_said_behind_c_leads_to_the_file_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = files.config_folder() / "clusters"
    folder.mkdir(parents=True)
    named, other = write(folder, CLUSTER, "hall.yaml"), write(tmp_path, CLUSTER, "hall.yaml")
    monkeypatch.chdir(tmp_path)

    assert files.said_for(str(named)) == "hall"
    assert files.said_for("hall.yaml") == str(other)
    assert files.said_for(str(files.demo_folder() / "cluster.yaml")) == "demo"
    for said in ("hall", str(other)):
        monkeypatch.chdir("/")
        assert files.said_for(str(files.find_cluster(said))) == said


def test_settings_are_read_and_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert read_settings() == UiSettings()
    monkeypatch.setenv("LC_ALL", "C")
    assert read_settings() == UiSettings(ascii=True)

    path = write(tmp_path, "theme: mono\nascii: true\ndiff: false")
    assert read_settings(path) == UiSettings(theme="mono", ascii=True, diff=False)


@given(st.binary(max_size=200) | st.text(alphabet="{}[]:-,&*!|>'\"\n clusterjobnd01", max_size=80))
def test_no_file_at_all_raises_anything_but_config_errors(
    tmp_path_factory: pytest.TempPathFactory, text: bytes | str
) -> None:
    path = write(tmp_path_factory.getbasetemp(), text, "fuzz.yaml")
    try:
        look_at(path)[0]
    except ConfigError as error:
        assert all(str(problem).isprintable() for problem in error.problems)  # noqa: PT017


PATTERN_MISTAKES = [
    (r"(a)\1", "refers back to a group"),
    (r"(?=loss)(\d)", "looks around"),
    (r"(?P<n>\d)(?P=n)", "refers back to a group"),
    ("(", "is not a regular expression: missing )"),
    (r"((.{0,900}){0,900})", "repeats more than 1,000 times"),
    (r"(\pL{0,999})", "is too large"),
    ("(a)" + "b" * 500, "is a pattern of more than 500 characters"),
]


@pytest.mark.parametrize(("pattern", "why"), PATTERN_MISTAKES)
def test_a_pattern_that_cannot_be_searched_in_linear_time_is_refused(
    tmp_path: Path, pattern: str, why: str
) -> None:
    text = f"job: x\nlaunch: plain\ncommand: [a]\nprogress:\n  loss: '{pattern}'\n"

    (said,) = mistakes(tmp_path, text)

    assert said.startswith(f"5:9: progress.loss: {why}")


LOST = [
    ("job: x\nlaunch: mpi\ncommand: [a, ':', b]\n", "3:10: command: mpirun takes a lone `:`"),
    ('job: x\nlaunch: plain\ncommand: [a]\nslurm: {comment: "x\\ntouch X"}\n', "4:18: slurm.comment: holds a control character"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), LOST)
def test_what_cannot_be_passed_on_is_refused_at_its_place(
    tmp_path: Path, text: str, why: str
) -> None:
    (said,) = mistakes(tmp_path, text)

    assert said.startswith(why)


# ---- metrics: the site's Prometheus

SITE = "cluster: c\nnodes: [n1]\nmetrics: {%s}\n"


def test_the_sites_prometheus_is_read(tmp_path: Path) -> None:
    text = (
        f"url: 'https://prom.example:8443/mimir/prometheus/', token_file: {tmp_path}/token, label: node,"
        " labels: {cluster: pi, rack: 7}, interval: 15"
    )
    found = read_cluster(write(tmp_path, SITE % text)).metrics

    assert found is not None
    assert (found.place, found.tls, found.path) == ("prom.example:8443", True, "/mimir/prometheus")
    assert (found.label, found.gpu_label) == ("node", "Hostname")
    assert found.labels == {"cluster": "pi", "rack": "7"}
    assert found.interval == 15


def test_the_query_api_may_stand_in_the_address(tmp_path: Path) -> None:
    found = read_cluster(write(tmp_path, SITE % "url: 'http://prom:9090/api/v1'")).metrics

    assert found is not None
    assert (found.path, found.port, found.tls) == ("", 9090, False)


def test_what_is_exported_may_be_chosen_without_a_prometheus_to_ask(tmp_path: Path) -> None:
    words = "gpu, node_load1, node_memory_MemFree_bytes, node_infiniband_hw_rto_total"
    found = read_cluster(write(tmp_path, SITE % f"export: [{words}]"))

    assert found.export == tuple(words.split(", "))
    assert found.metrics is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user: me", "`url` is missing"),
        (
            "export: [gpu, diskstat]",
            "3:25: metrics.export[1]: `diskstat` is neither a group",
        ),
        ("export: [diskstat]", "did you mean `diskstats`?"),
        ("export: [node_load2]", "did you mean `node_load"),
        ("export: [foo]", "groups are agent, cgroup, conntrack, cpu"),
        ("url: 'ftp://prom'", "expected http://host:port or https://host:port; found `ftp://prom`"),
        ("url: 'http://u:geheim@prom'", "the address holds a password"),
        ("url: 'http://prom/a b'", "its path may hold"),
        ("url: 'http://prom', password: x", "would keep a secret in this file"),
        ("url: 'http://prom', user: me", "a user needs a password"),
        ("url: 'http://prom', password_env: RANKDECK_P", "a password needs `user`"),
        ("url: 'http://prom', token_env: RANKDECK_T, token_file: t", "not both"),
        ("url: 'http://prom', label: 'a-b'", "is not the name of a label"),
        ("url: 'http://prom', labels: {'a b': c}", "is not the name of a label"),
        ("url: 'http://prom', interval: 0", "from 1 to 600"),
        ("url: 'http://prom', lable: x", "did you mean `label`?"),
    ],
)
def test_a_mistake_about_the_sites_prometheus_is_said(tmp_path: Path, text: str, said: str) -> None:
    found = mistakes(tmp_path, SITE % text)

    assert any(said in one for one in found), found
    assert not any("geheim" in one for one in found)


def test_installed_agents_send_samples_as_often_as_the_broker_can_carry(tmp_path: Path) -> None:
    text = "cluster: c\nnodes: [n1]\nbroker: {url: 'mqtt://b', sample_period: %s}\n"
    found = read_cluster(write(tmp_path, text % "5")).broker

    assert found is not None
    assert found.sample_period == 5
    for wrong in ("0", "16", "often"):
        assert any("from 1 to 15" in one for one in mistakes(tmp_path, text % wrong))


def test_pythons_are_named_for_all_nodes_or_for_some_one_or_in_order(tmp_path: Path) -> None:
    text = """
cluster: c
nodes: [n1, {name: "n[2-3]", python: ["~/py/bin/python3", "/opt/*/bin/python3"]}]
ssh: {python: python3.9}
"""
    cluster = read_cluster(write(tmp_path, text))

    assert cluster.access.pythons == ("python3.9",)
    own = ("~/py/bin/python3", "/opt/*/bin/python3")
    assert [node.pythons for node in cluster.nodes] == [(), own, own]


def test_a_python_that_is_an_option_or_none_is_refused(tmp_path: Path) -> None:
    text = "cluster: c\nnodes: [n1]\nssh: {python: %s}\n"

    assert "the name or path of a program" in mistakes(tmp_path, text % "[python3, -c]")[0]
    assert "`~` means" in mistakes(tmp_path, text % "~")[0]


def test_the_transport_and_the_agents_folder_are_read_and_mistakes_named(tmp_path: Path) -> None:
    text = "cluster: c\nnodes: [n1]\nssh: {transport: %s, folder: %s}\n"
    access = read_cluster(write(tmp_path, text % ("openssh", "~/scratch/"))).access

    assert (access.transport, access.folder) == (Transport.OPENSSH, "~/scratch")
    assert read_cluster(write(tmp_path, "cluster: c\nnodes: [n1]\n")).access.transport is None
    with pytest.raises(ConfigError) as caught:
        read_cluster(write(tmp_path, text % ("openshh", "scratch")))
    assert "3:18: ssh.transport: no such value `openshh`; did you mean `openssh`?" in str(
        caught.value
    )
    assert "ssh.folder: a path that begins with `/` or `~/`" in str(caught.value)


def test_logins_at_a_time_are_limited_by_the_cluster_file(tmp_path: Path) -> None:
    text = "cluster: c\nnodes: [n1]\nssh: {logins: %s}\n"

    assert read_cluster(write(tmp_path, text % "20")).access.logins == 20
    for wrong in ("0", "1001", "many"):
        assert any("from 1 to 1000" in one for one in mistakes(tmp_path, text % wrong))
