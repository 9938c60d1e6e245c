"""The Kubernetes double, asked by the real kubectl, with pods that are real processes."""

import http.client
import json
import os
import socket
import subprocess

import pytest
import yaml
from tests.support.kubernetes.manifests import config_map, indexed_job, service
from tests.support.kubernetes.pretend import Script
from tests.support.polling import wait_until

pytestmark = pytest.mark.slow


class Kubectl:
    """kubectl with one configuration."""

    def __init__(self, program, config):
        self.program = str(program)
        self.environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(config.parent)}

    def __call__(self, *args, stdin="", limit=300, code=0):
        done = subprocess.run(
            [self.program, *args],
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        assert done.returncode == code, done.stderr[-500:] + done.stdout[-500:]
        return done.stdout + done.stderr

    def create(self, *objects):
        return self("create", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def json(self, *args):
        return json.loads(self(*args, "-o", "json"))


@pytest.fixture
def started(kubernetes, kubectl):
    """`started(**options)`: a double and the kubectl that speaks to it."""

    def start(**options):
        double = kubernetes(**options)
        return double, Kubectl(kubectl, double.kubeconfig())

    return start


def phases(double):
    return sorted(pod["status"]["phase"] for pod in double.all("pods"))


def test_kubectl_creates_follows_waits_and_deletes_a_job_of_real_processes(started):
    double, kubectl = started()
    script = 'cat /rankdeck/a.txt; echo "rank $JOB_COMPLETION_INDEX on $(hostname)"; getent hosts "$(hostname).j"'
    files = {"name": "files", "configMap": {"name": "files"}}
    mount = {"volumeMounts": [{"name": "files", "mountPath": "/rankdeck"}]}
    job = indexed_job("j", ["sh", "-c", script], volumes=[files], container=mount)
    kubectl.create(service("j"), config_map("files", {"a.txt": "hello from a file\n"}), job)
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=240s")
    said = kubectl("logs", "-f", "-l", "batch.kubernetes.io/job-name=j", "--prefix")
    assert said.count("hello from a file") == 2
    assert "rank 0 on j-0" in said
    assert "rank 1 on j-1" in said
    assert "10.244.0.2      j-0.j.default.svc.cluster.local" in said
    assert "10.244.0.3      j-1.j.default.svc.cluster.local" in said
    kubectl("delete", "job", "j", "--cascade=foreground")
    assert double.all("pods") == []
    assert double.all("jobs") == []


def test_a_follow_gives_lines_as_they_come_and_a_deleted_pod_gets_its_grace(started):
    double, kubectl = started()
    script = "trap 'echo got TERM; exit 5' TERM; echo ready; sleep 60 & wait"
    kubectl.create(indexed_job("j", ["sh", "-c", script], 1))
    wait_until(lambda: phases(double) == ["Running"])
    pod = double.all("pods")[0]["metadata"]["name"]
    follow = subprocess.Popen(
        [kubectl.program, "logs", "-f", pod],
        env=kubectl.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout.readline() == "ready\n"
    kubectl("delete", "job", "j", "--cascade=foreground", "--timeout=20s")
    assert follow.communicate(timeout=300)[0] == "got TERM\n"


def test_what_ignores_term_is_killed_and_nothing_of_it_is_left(started):
    _double, kubectl = started()
    mark = f"kubernetes-mark-{os.getpid()}"
    script = f"trap '' TERM; (exec -a {mark} sleep 300) & (exec -a {mark} sleep 300) & wait"
    kubectl.create(indexed_job("j", ["bash", "-c", script], 1, grace=1))
    wait_until(lambda: processes_named(mark) == 2)
    kubectl("delete", "job", "j", "--cascade=foreground", "--timeout=20s")
    wait_until(lambda: processes_named(mark) == 0)


def processes_named(mark):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return sum(line.startswith(mark) for line in listed.stdout.splitlines())


def test_survivors_are_deleted_when_a_rank_fails(started):
    double, kubectl = started()
    script = 'if [ "$JOB_COMPLETION_INDEX" = 1 ]; then exit 3; fi; sleep 60'
    kubectl.create(indexed_job("j", ["sh", "-c", script], 3, grace=1))
    kubectl("wait", "--for=condition=failed", "job/j", "--timeout=240s")
    (left,) = double.all("pods")
    assert left["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    (known,) = left["status"]["containerStatuses"]
    assert known["state"]["terminated"]["exitCode"] == 3
    assert double.all("jobs")[0]["status"]["failed"] == 3


def test_rights_are_those_of_the_role(started, kubectl):
    double, _ = started(processes=False)
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}
    role = {"kind": "Role", "metadata": {"name": "r", "namespace": "default"}, "rules": [rule]}
    alice = Kubectl(kubectl, double.user("alice", [role]))
    assert alice("auth", "can-i", "list", "jobs").startswith("yes")
    assert alice("auth", "can-i", "create", "jobs", code=1).startswith("no")
    assert "pods is forbidden: User" in alice("get", "pods", code=1)
    double.expire("alice-token")
    assert "logged in" in alice("get", "jobs", code=1)


def test_kubectl_proxy_serves_lists_watches_and_logs_on_a_unix_socket(started, tmp_path):
    double, kubectl = started(processes=False)
    double.script("j-.*", Script("line {n}", 0.1, 600))
    kubectl.create(indexed_job("j", ["x"], 2))
    wait_until(lambda: phases(double) == ["Running"] * 2)
    proxy = subprocess.Popen(
        [kubectl.program, "proxy", f"--unix-socket={tmp_path}/s"],
        env=kubectl.environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (tmp_path / "s").exists())
        listed = json.loads(
            asked(tmp_path, "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dj")
        )
        assert len(listed["items"]) == 2
        pod = listed["items"][0]["metadata"]["name"]
        log = asked(
            tmp_path, f"/api/v1/namespaces/default/pods/{pod}/log?tailLines=1&timestamps=true"
        )
        assert b"line" in log.split()[1]
        watch = asked(tmp_path, "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=1")
        assert [json.loads(line)["type"] for line in watch.splitlines()] == ["ADDED"] * 2
    finally:
        proxy.kill()
        proxy.wait(60)


def asked(folder, path):
    """The answer to a GET through the socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(str(folder / "s"))
        link.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = http.client.HTTPResponse(link)
        answer.begin()
        assert answer.status == 200
        return answer.read()


def test_each_fault_looks_as_it_does_on_a_cluster(started):
    double, kubectl = started(processes=False)
    double.script("j-.*", Script("line {n}", 0.1, 600))
    double.bad_image("missing")
    kubectl.create(indexed_job("j", ["x"], 3))
    kubectl.create(indexed_job("nopull", ["x"], 1, container={"image": "missing"}))
    wait_until(lambda: phases(double) == ["Pending", *["Running"] * 3])
    first, second, third = sorted(p["metadata"]["name"] for p in double.all("pods"))[:3]
    node = kubectl.json("get", "pod", third)["spec"]["nodeName"]
    double.restart_container(first)
    wait_until(
        lambda: (
            kubectl.json("get", "pod", first)["status"]["containerStatuses"][0]["restartCount"] == 1
        )
    )
    assert "line 1" in kubectl("logs", "--previous", first)
    double.lose_node(node)
    assert "NodeNotReady" in kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    (known,) = [
        c for c in kubectl.json("get", "node", node)["status"]["conditions"] if c["type"] == "Ready"
    ]
    assert known["status"] == "Unknown"
    double.oom(second)
    wait_until(lambda: double.all("jobs")[0]["status"].get("failed"))
    refused = kubectl("logs", "-l", "job-name=nopull", code=1)
    assert "trying and failing to pull image" in refused
    double.restart_server()
    assert kubectl.json("get", "jobs")["items"][0]["status"]["failed"] == 3
