"""`kubectl proxy` and our client over its socket: real kubectl, the
double, and every complaint in words.
"""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.manifests import config_map, indexed_job
from tests.support.polling import wait_until

from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
    in_words,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy
from rankdeck_agent.schedulers.kubernetes.target import Target, create_objects, list_left_objects
from rankdeck_agent.schedulers.kubernetes.watch import LISTED, TROUBLE, Watch, start_watch_thread

pytestmark = pytest.mark.slow
AGENTS = str(Path(__file__).resolve().parents[2] / "agents")
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def double(kubernetes, kubectl, monkeypatch, tmp_path):
    double = kubernetes(processes=False)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(double.kubeconfig(namespace="rec")))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return double


def test_the_socket_is_the_users_alone_and_goes_with_the_proxy(double) -> None:
    with Proxy() as proxy:
        folder = Path(proxy.api._path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert proxy.api.request("GET", PODS)["kind"] == "PodList"
        assert proxy.namespace() == "rec"

    assert not folder.exists()
    assert not proxy.alive


def test_a_server_behind_a_path_is_asked_below_it(double, monkeypatch) -> None:
    double.under = "/k8s/clusters/c-1"
    monkeypatch.setenv("KUBECONFIG", str(double.kubeconfig()))

    with Proxy() as proxy:
        made = proxy.api.request("POST", CONFIG_MAPS, body=config_map("below", {}))
        assert made["metadata"]["name"] == "below"
        kind, _ = next(iter(Watch(proxy.api, CONFIG_MAPS, {})))
        assert kind == LISTED


def test_a_kubectl_that_cannot_append_a_path_is_used_without(double, tmp_path, kubectl) -> None:
    old = tmp_path / "kubectl"
    old.write_text(
        "#!/bin/sh\n"
        'for word; do [ "$word" != --append-server-path ] || { echo "error: unknown flag: $word" >&2; exit 1; }; done\n'
        f'exec {kubectl} "$@"\n'
    )
    old.chmod(0o755)

    with Proxy(program=str(old)) as proxy:
        assert proxy.api.request("GET", PODS)["kind"] == "PodList"


def test_a_proxy_that_was_killed_serves_again_at_the_same_place(double) -> None:
    with Proxy() as proxy:
        api = proxy.api
        os.kill(proxy._process.pid, signal.SIGKILL)
        wait_until(lambda: not proxy.alive)
        with pytest.raises(ApiError, match="no answer from kubectl"):
            api.request("GET", PODS)
        proxy.start()

        assert api.request("GET", PODS)["kind"] == "PodList"


def test_a_server_that_is_not_kubernetes_is_no_refusal_of_the_job(
    double, monkeypatch, tmp_path
) -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{other.server_port}"
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        config["clusters"][0]["cluster"] = {"server": address}
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        with Proxy() as proxy:
            said = no_answer(proxy)
            # So it is where kubectl has no configuration, and another program has port 8080.
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
            without = no_answer(proxy)
        other.shutdown()

    assert said.startswith("what answers is no Kubernetes server: compare the address")
    assert without.startswith("kubectl has no configuration here: put one in ~/.kube/config")


def no_answer(proxy: Proxy) -> str:
    with pytest.raises(ApiError) as caught:
        proxy.api.request("GET", PODS)
    return describe_api_refusal(caught.value)


@pytest.fixture
def short_folder():
    """Where a socket's path fits: a test's own folder may be too deep."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_command_that_is_ended_leaves_neither_kubectl_nor_its_folder(
    double, monkeypatch, short_folder
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_folder))
    command = [sys.executable, "-m", "rankdeck_agent", "cluster", "watch"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": AGENTS},
    ) as watching:
        watching.stdin.write(b"{}\n")
        watching.stdin.flush()
        assert b"about" in watching.stdout.readline()
        assert list(short_folder.glob("rankdeck-*/s"))
        watching.terminate()

    assert not list(short_folder.glob("rankdeck-*"))


def test_a_watch_lists_goes_on_and_says_what_is_wrong(double) -> None:
    seen: list[tuple[str, str]] = []
    with Proxy() as proxy:
        watch = Watch(proxy.api, "/api/v1/namespaces/default/configmaps", {})

        def read() -> None:
            for kind, found in watch:
                seen.append((kind, found.get("metadata", {}).get("name", "")))

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: (LISTED, "") in seen)
        double.create(
            "configmaps", config_map("a", {}) | {"metadata": {"name": "a", "namespace": "default"}}
        )
        wait_until(lambda: ("ADDED", "a") in seen)
        double.expire()
        double.cut_watches()
        wait_until(lambda: (TROUBLE, "") in seen)
        watch.close()
        thread.join(15)

    assert not thread.is_alive()


@contextmanager
def watched(path: str) -> Iterator[list[tuple[str, str]]]:
    """What a watch of these objects tells: kinds of events, and names."""
    seen: list[tuple[str, str]] = []
    with Proxy() as proxy:
        watch = Watch(proxy.api, path, {})
        thread = start_watch_thread(
            watch,
            lambda kind, found: seen.append((kind, found.get("metadata", {}).get("name", ""))),
        )
        try:
            wait_until(lambda: (LISTED, "") in seen)
            yield seen
        finally:
            watch.close()
            thread.join(15)


def named(name: str) -> dict:
    return config_map(name, {}) | {"metadata": {"name": name, "namespace": "default"}}


def test_a_proxy_that_cuts_idle_watches_is_no_trouble(double, monkeypatch) -> None:
    monkeypatch.setattr("rankdeck_agent.schedulers.kubernetes.watch._HELD", 0.2)
    with watched(CONFIG_MAPS) as seen:
        for _ in range(3):
            asked = double.api.requests.count(("GET", CONFIG_MAPS))
            double.cut_watches()
            # A list and a watch; then it is idle for longer than a watch that is refused.
            wait_until(lambda a=asked: double.api.requests.count(("GET", CONFIG_MAPS)) > a + 1)
            time.sleep(0.3)
        double.create("configmaps", named("a"))
        wait_until(lambda: ("ADDED", "a") in seen)

    assert TROUBLE not in {kind for kind, _ in seen}


def test_a_server_that_was_restored_from_a_backup_is_heard_again(double, monkeypatch) -> None:
    monkeypatch.setattr("rankdeck_agent.schedulers.kubernetes.watch.WATCH_SECONDS", 2)
    with watched(CONFIG_MAPS) as seen:
        double.create("configmaps", named("before"))
        wait_until(lambda: ("ADDED", "before") in seen)
        double.restore_backup()
        double.cut_watches()
        wait_until(lambda: seen.count((LISTED, "")) > 1, what="another list")
        double.create("configmaps", named("after"))
        wait_until(lambda: ("ADDED", "after") in seen)


def test_a_stream_is_ended_by_another_thread(double) -> None:
    with Proxy() as proxy:
        stream = proxy.api.lines(PODS, {"watch": "1"})
        reader = threading.Thread(target=lambda: list(stream))
        reader.start()
        stream.close()
        reader.join(10)

    assert not reader.is_alive()


def test_the_server_checks_a_job_and_creates_nothing(double) -> None:
    target = Target("j", namespace="default")
    job = indexed_job("j", ["true"])
    with Proxy() as proxy:
        create_objects(proxy.api, target, [job], dry=True)
        bad = job | {"spec": job["spec"] | {"completionMod": "Indexed"}}
        with pytest.raises(ApiError, match="completionMod"):
            create_objects(proxy.api, target, [bad], dry=True)

        assert list_left_objects(proxy.api, target) == []


def test_a_kind_that_the_cluster_does_not_know_is_explained(kubernetes, double) -> None:
    mpijob = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}}
    double.answer("POST", ".*/mpijobs", 404, "404 page not found")
    with Proxy() as proxy, pytest.raises(ApiError, match="knows no MPIJob: the operator"):
        create_objects(proxy.api, Target("m", kind="MPIJob", namespace="default"), [mpijob])


def test_a_busy_server_is_asked_again_after_the_pause_that_it_asks_for(double) -> None:
    answers = iter([(429, "busy\n", "1"), (503, "busy\n", "1"), (200, {"gitVersion": "v1"}, "")])
    double.do(double.api.faults.answers.append, ("GET", "/version", lambda: next(answers)))
    with Proxy() as proxy:
        assert proxy.api.request("GET", "/version") == {"gitVersion": "v1"}


def test_what_a_refusal_is_about_is_not_taken_for_a_missing_right(double) -> None:
    ending = 'services "j" is forbidden: unable to create new content in namespace default because it is being terminated'
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": ending}
    double.answer("POST", ".*/jobs", 403, refused)
    with Proxy() as proxy, pytest.raises(ApiError) as told:
        create_objects(proxy.api, Target("j", namespace="default"), [indexed_job("j", ["true"])])
    assert told.value.message == ending


def config(path: Path, server: str, user: dict) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "a",
    }
    path.write_text(yaml.safe_dump(content))
    return path


PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({}, "the Kubernetes server does not answer"),
        ({"exec": {**PLUGIN, "command": "/no/such/plugin"}}, "log in again"),
        ({"exec": {**PLUGIN, "command": "false"}}, "log in again"),
    ],
)
def test_why_kubectl_cannot_ask_is_one_sentence(double, monkeypatch, tmp_path, user, words) -> None:
    server = "https://127.0.0.1:9" if user else "http://127.0.0.1:9"
    monkeypatch.setenv("KUBECONFIG", str(config(tmp_path / "bad", server, user)))
    with Proxy() as proxy, pytest.raises(ApiError) as refused:
        proxy.api.request("GET", PODS)

    assert words in describe_api_refusal(refused.value)


NOT_THERE = {"client-certificate": "gone.crt", "client-key": "gone.key"}
OLD_PLUGIN = {**PLUGIN, "apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "true"}
HINTED = {**PLUGIN, "command": "no-such-login", "installHint": "site-tool get login"}


@pytest.mark.parametrize(("user", "cluster", "words"), [
    ({}, {}, "kubectl has nothing to log in with"),
    (NOT_THERE, {}, "gone.crt: no such file"),
    ({"exec": OLD_PLUGIN}, {}, "speak no common version"),
    ({"exec": HINTED}, {}, "the plug-in says: site-tool get login"),
    ({"token": "t"}, {"proxy-url": "http://127.0.0.1:9"}, "the proxy of kubectl's configuration"),
])  # fmt: skip
def test_what_is_wrong_with_a_configuration_is_not_blamed_on_the_server(
    double, monkeypatch, tmp_path, user: dict, cluster: dict, words: str
) -> None:
    file = config(tmp_path / "bad", "https://127.0.0.1:9", user)
    content = yaml.safe_load(file.read_text())
    content["clusters"][0]["cluster"].update(cluster)
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(file))

    with pytest.raises((ProxyError, ApiError)) as refused, Proxy() as proxy:
        proxy.api.request("GET", PODS)

    said = describe_api_refusal(refused.value)
    assert words in said
    assert "server does not answer" not in said
    assert "server is not accepted" not in said


def test_what_a_plug_in_says_is_quoted_first(double, monkeypatch, tmp_path) -> None:
    plug_in = tmp_path / "aws"
    plug_in.write_text(
        "#!/bin/sh\necho 'The SSO session has expired: run aws sso login' >&2\nexit 255\n"
    )
    plug_in.chmod(0o755)
    user = {"exec": {**PLUGIN, "command": str(plug_in)}}
    monkeypatch.setenv("KUBECONFIG", str(config(tmp_path / "sso", "https://127.0.0.1:9", user)))
    with Proxy() as proxy, pytest.raises(ApiError) as refused:
        proxy.api.request("GET", PODS)

    said = describe_api_refusal(refused.value)
    assert "kubectl could not log in" in said
    assert "(the plug-in says: The SSO session has expired: run aws sso login; " in said


@pytest.mark.parametrize("namespace", ["", "team"])
def test_a_configuration_that_chooses_no_context_is_told_as_such(
    double, monkeypatch, tmp_path, namespace: str
) -> None:
    file = config(tmp_path / "unset", "https://127.0.0.1:9", {})
    content = yaml.safe_load(file.read_text())
    del content["current-context"]
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(file))

    with Proxy() as proxy, pytest.raises((ProxyError, ApiError)) as refused:
        proxy.api.request("GET", PODS) if namespace else proxy.namespace()

    said = describe_api_refusal(refused.value)
    assert "kubectl's configuration chooses no context" in said
    assert said.endswith("there are: a")


def test_no_configuration_no_context_and_no_kubectl_are_told_apart(
    double, monkeypatch, tmp_path
) -> None:
    with pytest.raises(ProxyError, match="knows no context `nosuch`"):
        Proxy("nosuch").start()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with Proxy() as proxy, pytest.raises(ProxyError, match="kubectl has no configuration here"):
        proxy.namespace()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProxyError, match="no program kubectl in PATH"):
        Proxy().start()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Unauthorized", "has expired"),
        ("tls: failed to verify certificate: x509: certificate has expired", "clock"),
        ("dial tcp: lookup api.example.org: no such host", "does not answer"),
        (
            'failed calling webhook "v.kyverno.svc": Post "https://kyverno": context deadline exceeded',
            "an admission webhook",
        ),
        ("the cause thereof", "the cause thereof"),
        ("something else entirely", "something else entirely"),
    ],
)
def test_other_complaints_in_words(said: str, words: str) -> None:
    assert words in in_words(said)
