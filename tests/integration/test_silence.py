"""Knowing nothing is never well: every verb that judges, on clusters of which no source answers."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.cli.verbs import VERBS

JOB = "job: j\nlaunch: plain\nnodes: 1\nranks_per_node: 1\ncommand: [hostname]\ncontainer: {image: busybox}\n"
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: a, context: {cluster: a, user: u}}]
users: [{name: u, user: {}}]
current-context: a
"""
SILENT = {
    "no API server": "cluster: c\nbackend: kubernetes\n",
    "no login node": "cluster: c\nbackend: slurm\nslurm: {login: nowhere.invalid}\n",
    "no login node, nodes named": "cluster: c\nbackend: slurm\nslurm: {login: nowhere.invalid}\nnodes: [nowhere.invalid]\n",
    "no broker": "cluster: c\nbackend: kubernetes\nbroker: {url: 'mqtt://127.0.0.1:9'}\n",
    "no node": "cluster: c\nnodes: [{name: n1, address: 127.0.0.1, port: 9, slots: 1}]\n",
}
"""What does not answer -> cluster file."""
JUDGES: Mapping[str, tuple[str, ...]] = {
    "check": ("check", "--live", "FILE"),
    "status": ("status", "-c", "FILE", "--wait", "6"),
    "health": ("health", "-c", "FILE", "--wait", "6"),
    "nodes": ("nodes", "-c", "FILE", "--live", "--wait", "6"),
    "expect": ("expect", "-c", "FILE", "--wait", "6"),
    "preflight": ("preflight", "-c", "FILE", "JOB"),
    "doctor": ("doctor", "-c", "FILE"),
    "accept": ("accept", "-c", "FILE", "--dry-run", "--yes"),
}
"""Verb that says whether nodes, a job or the cluster are well -> how it is called."""
ELSEWHERE = frozenset(
    "trust ack silence drain resume hold release requeue timelimit slurm sh ps cp run scale drill swap export-script images jobs logs cancel clean inspect "  # noqa: SIM905
    "report replay attach export completion demo".split()
)
"""Verbs that list, change or show something, and judge no node."""
LOCAL = frozenset(
    {("check", "no login node"), ("check", "no login node, nodes named"), ("check", "no node")}
)
"""`check` asks only Kubernetes."""


def no_console(cluster: object, *_: object) -> int:
    raise AssertionError(cluster)


def test_every_verb_is_known_to_judge_or_not_to() -> None:
    assert {verb.name for verb in VERBS} == {*JUDGES} | ELSEWHERE


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("verb", JUDGES)
def test_a_cluster_of_which_nothing_answers_is_never_well(
    files: Path, verb: str, silent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (verb, silent) in LOCAL:
        pytest.skip("nobody is asked")
    cluster = files / "c.yaml"
    cluster.write_text(SILENT[silent])
    places = {"FILE": str(cluster), "JOB": str(files / "job.yaml")}

    code = run_command_line([places.get(word, word) for word in JUDGES[verb]], no_console)

    said = capsys.readouterr()
    assert code != 0, said
    assert " OK" not in said.out
    assert said.out + said.err.rpartition("asking")[2].strip(), "the reason is said"


@pytest.mark.slow
@pytest.mark.parametrize("silent", SILENT)
def test_health_is_unknown_and_names_the_reason(
    files: Path, silent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = files / "c.yaml"
    cluster.write_text(SILENT[silent])

    code = run_command_line(["health", "-c", str(cluster), "--wait", "6", "--json"], no_console)

    told = json.loads(capsys.readouterr().out)
    assert (code, told["code"], told["level"]) == (3, 3, "unknown")
    assert told["troubles"] or all(node["reasons"] for node in told["nodes"])
