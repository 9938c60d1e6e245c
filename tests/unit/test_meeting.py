"""Where the ranks of a torch job meet, and what preflight says of it."""

from typing import Any

import pytest

from rankdeck.backends.launchers import lay_out
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch, TorchOptions
from rankdeck.preflight import checks
from rankdeck.preflight.check_network import foreign_host, listens_on, meeting_place
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.findings import Change, Finding
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.run import judge_case
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

NODES = tuple(Node(name=f"n{i}", address=f"10.0.0.{i}", slots=2) for i in (1, 2))
CLUSTER = Cluster(name="c", nodes=NODES)
PLAIN = JobSpec(name="j", launch=Launch.PLAIN, command=("app",), nodes=2)
TORCH = replace(PLAIN, launch=Launch.TORCHRUN)


def torchrun(*args: str, port: int = 0) -> JobSpec:
    return replace(TORCH, torch=TorchOptions(args=args, port=port))


def variables(**env: str) -> JobSpec:
    return replace(PLAIN, env=env)


def judged(spec: JobSpec, cluster: Cluster = CLUSTER, **told: Any) -> list[Finding]:
    """What is found about port, meeting and numbering; `n2={...}` is what a node told."""
    facts = {n.name: node_facts(told.get(n.name, {}), 0.0, 1.0) for n in cluster.nodes}
    case = JobContext(layout=lay_out(cluster, spec, "j"), facts=facts, health={})
    found = [f for f in judge_case(case) if f.check in ("port", "meeting", "numbering")]
    return [f for f in found if f.level is not Level.OK]


@pytest.mark.parametrize(
    ("spec", "host", "port", "node"),
    [
        (TORCH, "", 0, "n1"),
        (torchrun(port=29500), "", 29500, "n1"),
        (torchrun("--master-port=29501", port=29500), "", 29501, "n1"),
        (torchrun("--master_port", "29502"), "", 29502, "n1"),
        (torchrun("--master-addr=n2"), "n2", 0, "n2"),
        (torchrun("--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.2:29503"), "10.0.0.2", 29503, "n2"),
        (torchrun("--rdzv_endpoint", "head"), "head", 29400, ""),
        (torchrun("--rdzv-endpoint=[fe80::1]:29504"), "fe80::1", 29504, ""),
        (torchrun("--standalone", "--rdzv-endpoint=n1:1"), "", 0, "n1"),
        (torchrun("--master-port=${PORT}"), "", 0, "n1"),
        (variables(MASTER_ADDR="head", MASTER_PORT="29505"), "head", 29505, "n1"),
        (variables(MASTER_PORT="many"), "", 0, "n1"),
    ],
)  # fmt: skip
def test_what_is_fixed_is_read_from_arguments_and_variables(
    spec: JobSpec, host: str, port: int, node: str
) -> None:
    layout = lay_out(CLUSTER, spec, "j")
    met = meeting_place(layout)

    assert (met.host, met.number, listens_on(layout)) == (host, port, node)


def test_the_cluster_files_variables_count_as_well() -> None:
    cluster = replace(CLUSTER, environment={"MASTER_PORT": "29500"})

    assert meeting_place(lay_out(cluster, PLAIN, "j")).number == 29500


@pytest.mark.parametrize(
    ("spec", "by", "change"),
    [
        (torchrun(port=29500), "torch.port", (Change("torch.port", None),)),
        (torchrun("-t", "3", "--master_port", "29500", "-r"), "--master-port", (Change("torch.args", ["-t", "3", "-r"]),)),
        (torchrun("--rdzv-endpoint=n1:29500"), "--rdzv-endpoint", ()),
        (variables(MASTER_PORT="29500"), "MASTER_PORT", ()),
    ],
)  # fmt: skip
def test_a_taken_port_is_told_with_the_key_that_fixes_it(
    spec: JobSpec, by: str, change: tuple[Change, ...]
) -> None:
    (finding,) = judged(spec, n1={"port": "Address already in use"})

    assert (finding.level, finding.node) == (Level.BAD, "n1")
    assert f"port 29500 (`{by}`)" in finding.text
    assert by in finding.fix
    assert finding.patch == change


def test_a_port_that_is_none_is_told() -> None:
    (finding,) = judged(variables(MASTER_PORT="many"))

    assert "`MASTER_PORT` says `many`, which is no port" in finding.text


def test_a_free_port_and_a_known_name_have_nothing_against_them() -> None:
    known = {"names": {"head": {"addresses": ["10.0.0.1"]}}}

    assert judged(variables(MASTER_ADDR="head", MASTER_PORT="29500"), n1=known, n2=known) == []


def test_a_name_that_a_node_does_not_know_is_told() -> None:
    unknown = {"names": {"head": {"error": "Name or service not known"}}}
    (finding,) = judged(variables(MASTER_ADDR="head"), n2=unknown)

    assert (finding.level, finding.node) == (Level.BAD, "n2")
    assert "`head` (`MASTER_ADDR`) does not resolve" in finding.text


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (torchrun("--rdzv-backend=c10d", "-t", "3"), (Change("torch.args", ["-t", "3"]),)),
        (torchrun("--rdzv_backend", "etcd-v2"), (Change("torch.args", []),)),
        (replace(TORCH, torch=TorchOptions(path="/opt/nvrx/bin/ft_launcher")), ()),
    ],
)
def test_a_rendezvous_that_numbers_the_nodes_itself_is_told(
    spec: JobSpec, change: tuple[Change, ...]
) -> None:
    (finding,) = (one for one in judged(spec) if one.check == "numbering")

    assert finding.level == Level.WARN
    assert "its ranks may be on other nodes than planned" in finding.text
    assert finding.patch == change
    assert judged(replace(spec, nodes=1)) == []  # nobody else can have its ranks


@pytest.mark.parametrize("spec", [TORCH, torchrun("--rdzv-backend=static"), PLAIN])
def test_nodes_that_the_plan_numbers_have_nothing_against_them(spec: JobSpec) -> None:
    assert judged(spec) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_loopback_address_is_refused_where_there_are_more_nodes(host: str) -> None:
    (finding,) = judged(variables(MASTER_ADDR=host))

    assert "every node would look for rank 0 on itself" in finding.text
    assert finding.fix == "name the first node: 10.0.0.1"
    assert judged(replace(variables(MASTER_ADDR=host), nodes=1)) == []


@pytest.mark.parametrize("host", ["n2", "10.0.0.2"])
def test_another_node_than_that_of_rank_0_is_refused(host: str) -> None:
    (finding,) = judged(variables(MASTER_ADDR=host))

    assert "rank 0 runs on n1" in finding.text


def test_only_names_are_asked_for() -> None:
    hosts = ("head", "10.0.0.1", "localhost", "")
    asked = [foreign_host(lay_out(CLUSTER, variables(MASTER_ADDR=h), "j")) for h in hosts]

    assert asked == ["head", "", "", ""]


def test_variables_that_torchrun_sets_itself_are_told() -> None:
    findings = checks.check_job_file(replace(TORCH, env={"MASTER_PORT": "29500"}))

    assert [(f.level, f.check) for f in findings] == [(Level.WARN, "environment")]
    assert findings[0].patch == (Change("env.MASTER_PORT", None),)
