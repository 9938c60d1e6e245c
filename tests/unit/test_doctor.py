"""What `doctor` says of this machine and of what nodes tell."""

import json
import os

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.errors import HostKeyError, UnreachableError
from rankdeck.model.cluster import Cluster, Node, Switch
from rankdeck.preflight.doctor import Machine, judge_here, judge_nodes, this_machine
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.run import all_unreachable
from rankdeck.remote.login_errors import Destination, unreachable_error
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from tests.unit.test_preflight import GOOD

CLUSTER = Cluster(
    name="c", nodes=(Node(name="n1"), Node(name="n2"), Node(name="n3", rdma=1, gpus=2))
)
WHOLE = Machine(
    term="xterm", unicode=True, files=1 << 16, space=1 << 30, keys=True,
    programs=frozenset({"ssh", "kubectl"}), modules=frozenset({"pygnmi"}),
)  # fmt: skip
KUBERNETES = replace(CLUSTER, backend="kubernetes")
LOGIN_HERE = replace(KUBERNETES, options={"login": "localhost"})
SWITCHED = replace(CLUSTER, switches=(Switch(name="s", address="h"),))
HAS = {
    name: {"path": f"/bin/{name}", "size": 1, "digest": ""}
    for name in ("mpirun", "torchrun", "apptainer", "py-spy", "ib_write_bw")
}


def told(findings):
    return [(one.level, one.check, one.node, one.text) for one in findings]


def test_a_machine_that_has_all_is_said_to_have_it() -> None:
    (one,) = judge_here(WHOLE, KUBERNETES)

    assert (one.level, one.text) == (Level.OK, "this machine has what the console needs")
    assert isinstance(this_machine(os.environ).files, int)


@pytest.mark.parametrize(
    ("lacks", "cluster", "level", "text"),
    [
        ({"refused": "Python 3.14.1 crashes: install"}, CLUSTER, Level.BAD, "3.14.1 crashes"),
        ({"term": "dumb"}, CLUSTER, Level.WARN, "TERM is `dumb`"),
        ({"term": ""}, CLUSTER, Level.WARN, "TERM is not set"),
        ({"unicode": False}, CLUSTER, Level.WARN, "ASCII only"),
        ({"files": 1000}, CLUSTER, Level.WARN, "1,000 open files are allowed, 1,036 are wanted"),
        ({"space": None}, CLUSTER, Level.BAD, "cannot be written"),
        ({"space": 1 << 20}, CLUSTER, Level.WARN, "has 1 MiB left"),
        ({"programs": frozenset()}, CLUSTER, Level.WARN, "no `ssh` here"),
        ({"keys": False}, CLUSTER, Level.WARN, "logins will be refused"),
        ({"programs": frozenset({"ssh"})}, KUBERNETES, Level.BAD, "no `kubectl` here"),
        ({"programs": frozenset({"ssh"})}, LOGIN_HERE, Level.BAD, "no `kubectl` here"),
        ({"modules": frozenset()}, SWITCHED, Level.WARN, "pygnmi is not installed"),
    ],
)
def test_each_lack_of_this_machine_is_one_sentence_with_what_to_do(
    lacks, cluster, level, text
) -> None:
    (one,) = judge_here(replace(WHOLE, **lacks), cluster)

    assert one.level is level
    assert text in one.text
    assert one.fix


def test_what_concerns_another_cluster_is_not_said() -> None:
    poor = replace(WHOLE, programs=frozenset({"ssh"}), modules=frozenset())

    assert [one.level for one in judge_here(poor, CLUSTER)] == [Level.OK]
    there = replace(KUBERNETES, options={"login": "n1"})
    assert [one.level for one in judge_here(poor, there)] == [Level.OK]


def test_nodes_with_the_same_lack_are_one_sentence_and_rdma_tools_only_where_there_is_rdma() -> (
    None
):
    bare = {name: HAS[name] for name in ("mpirun", "torchrun")}
    facts = {
        "n1": node_facts({**GOOD, "programs": HAS}, 99.9, 100.1),
        "n2": node_facts({**GOOD, "programs": bare}, 99.9, 100.1),
        "n3": node_facts({**GOOD, "programs": bare, "memlock": 65536}, 99.9, 100.1),
    }
    said = told(judge_nodes(CLUSTER, facts))

    assert (Level.OK, "mpi", "n[1-3]", "/bin/mpirun") in said
    lacking = {(check, node) for level, check, node, _ in said if level is Level.WARN}
    assert lacking == {
        ("runtime", "n[2-3]"),
        ("inspect", "n[2-3]"),
        ("rdma", "n3"),
        ("memlock", "n3"),
    }


def test_a_node_that_did_not_answer_lacks_nothing_that_is_known() -> None:
    facts = {"n2": node_facts({**GOOD, "programs": HAS}, 99.9, 100.1)}
    said = told(judge_nodes(CLUSTER, facts))

    assert {node for _, _, node, _ in said} <= {"", "n2"}
    assert all(level is Level.OK for level, *_ in said)


def test_nothing_is_said_of_gpus_and_rdma_that_no_node_should_have() -> None:
    plain = replace(CLUSTER, nodes=CLUSTER.nodes[:2])
    facts = {name: node_facts({**GOOD, "programs": HAS}, 99.9, 100.1) for name in ("n1", "n2")}
    checks = [check for _, check, *_ in told(judge_nodes(plain, facts))]

    assert "clock" in checks
    assert not {"gpu", "memlock"} & set(checks)


def test_nodes_that_fail_in_the_same_way_share_a_finding() -> None:
    def closed(name: str, host: str) -> UnreachableError:
        return unreachable_error(name, ConnectionRefusedError(), Destination(host, 22))

    failed = {f"n{n}": closed(f"n{n}", f"10.0.0.{n}") for n in range(1, 301)}
    key = HostKeyError("k1", "its host key is not known: SHA256:x")

    found = told(all_unreachable({**failed, "k1": key, "m1": closed("m1", "10.1.0.1")}))
    alone = told(all_unreachable({"n1": failed["n1"]}))

    sentence = "port 22 refused the connection; is sshd running there?"
    assert found == [
        (Level.BAD, "reach", "m1,n[1-300]", f"HOST {sentence}"),
        (Level.BAD, "reach", "k1", "its host key is not known: SHA256:x"),
    ]
    assert alone == [(Level.BAD, "reach", "n1", f"10.0.0.1 {sentence}")]


def test_without_any_cluster_this_machine_alone_is_looked_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKDECK_CLUSTER", raising=False)

    run_command_line(["doctor", "--json"], lambda *_, **__: 0)
    told = capsys.readouterr()
    refused = run_command_line(["-c", "nowhere", "doctor"], lambda *_, **__: 0)

    assert {one["check"] for one in json.loads(told.out)["findings"]} == {"here"}
    assert told.err.startswith("rankdeck: only this machine is looked at: no cluster: say -c FILE")
    assert refused == 2
