"""`cluster check` and `cluster watch` of the agent, by the real kubectl against the double."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.roles import documented
from tests.support.kubernetes.scheduler import node
from tests.support.polling import wait_until

pytestmark = pytest.mark.slow
Row = dict[str, Any]


class Asking:
    """Runs the agent's commands with one configuration of kubectl."""

    def __init__(self, kubectl: Path, config: Path) -> None:
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        self.env = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": str(config),
            "HOME": str(config.parent),
        }
        self.argv = (sys.executable, "-m", "rankdeck_agent", "cluster")

    def check(self, **config: str) -> Row:
        done = subprocess.run(
            (*self.argv, "check"),
            input=json.dumps(config) + "\n",
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-500:]
        return json.loads(done.stdout)

    def kubectl(self, *argv: str, stdin: str = "") -> None:
        """Somebody else does this."""
        subprocess.run(
            ("kubectl", *argv), input=stdin, env=self.env, text=True, timeout=300, check=True
        )

    @contextmanager
    def watch(self, **config: str) -> Iterator[list[Row]]:
        """The rows that `watch` has told so far; it has to end by itself once its stdin does."""
        running = subprocess.Popen(
            (*self.argv, "watch"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env
        )
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(json.dumps(config).encode() + b"\n")
        running.stdin.flush()
        os.set_blocking(running.stdout.fileno(), False)
        yield _Rows(running.stdout.fileno())
        running.stdin.close()
        assert running.wait(60) == 0


class _Rows(list[Row]):
    """Grows by what has been written, each time it is looked at."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor, self._rest = descriptor, b""

    def look(self) -> "_Rows":
        try:
            self._rest += os.read(self._descriptor, 1 << 20)
        except BlockingIOError:
            return self
        *lines, self._rest = self._rest.split(b"\n")
        self.extend(json.loads(line) for line in lines)
        return self

    def newest(self, what: str, name: str) -> Row:
        found = [row[what] for row in self.look() if what in row and row[what]["name"] == name]
        return found[-1] if found else {}


def test_all_that_may_be_done_is_asked_once(kubernetes, kubectl) -> None:
    double = kubernetes(processes=False, kinds=("mpijobs", "jobsets"))

    found = Asking(kubectl, double.kubeconfig()).check()

    assert found["kubectl"].startswith("v1.")
    assert (found["context"], found["namespace"]) == ("double", "default")
    assert found["server"] == "v1.36.2-double"
    assert found["kinds"] == ["Job", "MPIJob", "JobSet"]
    assert all(right["allowed"] for right in found["rights"])
    assert {right["need"] for right in found["rights"]} == {
        "launch", "tidy", "see", "follow", "events", "inspect", "cancel", "force", "fleet", "devices",
    }  # fmt: skip


def test_the_smallest_role_of_the_documentation_lacks_only_the_fleet_and_the_way_into_pods(
    kubernetes, kubectl
) -> None:
    double = kubernetes(processes=False, namespaces=("default", "training"))
    roles = [one for one in documented("The smallest Role") if one["kind"] == "Role"]
    config = double.user("op", roles, "training")

    found = Asking(kubectl, config).check()

    refused = {right["need"] for right in found["rights"] if not right["allowed"]}
    assert refused == {"fleet", "devices", "inspect"}


def test_the_two_roles_of_the_documentation_lack_only_the_way_into_pods(
    kubernetes, kubectl
) -> None:
    double = kubernetes(processes=False, namespaces=("default", "training"))
    roles = [one for one in documented("The smallest Role") if one["kind"].endswith("Role")]
    more = [one for one in documented("Nodes and devices") if one["kind"].endswith("Role")]

    found = Asking(kubectl, double.user("op", [*roles, *more], "training")).check()

    refused = [right["what"] for right in found["rights"] if not right["allowed"]]
    assert refused == ["get pods/exec", "create pods/exec"]


def test_what_stops_the_check_is_said_in_a_sentence(kubernetes, kubectl, tmp_path: Path) -> None:
    double = kubernetes(processes=False)
    asking = Asking(kubectl, double.kubeconfig())

    assert "no context `nowhere`" in asking.check(context="nowhere")["trouble"]
    double.expire()
    assert "log in again" in asking.check()["trouble"]
    double.stop_server()
    assert "does not answer" in asking.check()["trouble"]
    double.start_server()
    asking.env["PATH"] = str(tmp_path)
    assert "no program kubectl" in asking.check()["trouble"]


def test_nodes_and_jobs_are_told_and_what_becomes_of_them(kubernetes, kubectl) -> None:
    nodes = [node("w0", gpus=8, healthy=7, rdma__hca=2), node("w1")]
    double = kubernetes(processes=False, nodes=nodes)
    double.script("train-.*", Script(lasting=600))

    asking = Asking(kubectl, double.kubeconfig())
    with asking.watch() as rows:
        wait_until(lambda: rows.newest("node", "w1"), 60)
        first = rows.newest("node", "w0")
        assert first["devices"] == {
            "nvidia.com/gpu": {"capacity": 8, "allocatable": 7, "asked": 0},
            "rdma/hca": {"capacity": 2, "allocatable": 2, "asked": 0},
        }
        job = indexed_job("train", ["x"], 1, gpus=6)
        job["metadata"]["labels"] = {"user": "alice"}
        asking.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
        wait_until(lambda: rows.newest("job", "train").get("state") == "running", 60)
        told = rows.newest("job", "train")
        assert (told["kind"], told["owner"], told["pods"], told["ours"]) == ("Job", "alice", 1, "")
        on = double.all("pods")[0]["spec"]["nodeName"]
        wait_until(lambda: rows.newest("node", on)["devices"]["nvidia.com/gpu"]["asked"] == 6, 60)
        assert rows.newest("node", on)["jobs"] == ["default/train"]

        double.delete("jobs", "train")
        wait_until(lambda: {"job_gone": ["Job", "default/train"]} in rows.look(), 60)
        double.lose_node("w0")
        wait_until(lambda: rows.newest("node", "w0")["conditions"][0]["status"] == "Unknown", 60)


def test_a_server_that_comes_again_is_watched_again(kubernetes, kubectl) -> None:
    double = kubernetes(processes=False, nodes=[node("w0")])

    with Asking(kubectl, double.kubeconfig()).watch() as rows:
        wait_until(lambda: rows.newest("node", "w0"), 60)
        double.stop_server()
        wait_until(lambda: any(row.get("trouble") for row in rows.look()), 30)
        double.start_server()
        double.change("nodes", "w0", lambda found: found["spec"].update(unschedulable=True))
        wait_until(lambda: rows.newest("node", "w0")["unschedulable"], 60)
        wait_until(lambda: [r["trouble"] for r in rows.look() if "trouble" in r][-1] == "", 30)


def test_without_the_right_to_see_all_pods_devices_are_not_counted_as_free(
    kubernetes, kubectl
) -> None:
    double = kubernetes(processes=False, nodes=[node("w0")], namespaces=("training",))
    roles = [one for one in documented("The smallest Role") if one["kind"].endswith("Role")]
    see = {
        "kind": "ClusterRole",
        "metadata": {"name": "n"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}],
    }

    with Asking(kubectl, double.user("op", [*roles, see], "training")).watch() as rows:
        wait_until(lambda: rows.newest("node", "w0"), 60)
        assert rows.newest("node", "w0")["devices"]["nvidia.com/gpu"]["asked"] is None
