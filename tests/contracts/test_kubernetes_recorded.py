"""The Kubernetes double behaves like a recorded real control plane.

The transcripts are of Kubernetes 1.36.2 and mpi-operator 0.8.2; the nodes
and the kubelet were pretended there, too.
"""

import json
import re
from pathlib import Path

import pytest

from tests.support.kubernetes.client import Client, Watching
from tests.support.kubernetes.pretend import Script
from tests.support.polling import wait_until

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "kubernetes"
SCENARIOS = (
    "indexed-job-success",
    "indexed-job-one-rank-fails-survivors-deleted",
    "indexed-job-suspend-resume-background-delete",
    "indexed-job-delete-without-policy-orphans-pods",
    "mpijob-success-cleanpodpolicy-running",
    "mpijob-success-default-cleanpodpolicy-workers-stay",
    "mpijob-launcher-fails",
    "mpijob-suspend-resume-delete",
    "unschedulable-gpu",
)
KINDS = {
    "pod": "/api/v1/namespaces/rec/pods",
    "job": "/apis/batch/v1/namespaces/rec/jobs",
    "mpijob": "/apis/kubeflow.org/v2beta1/namespaces/rec/mpijobs",
    "event": "/api/v1/namespaces/rec/events",
}
FASTER = 0.25


def recorded(name):
    file = DATA / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"needs the transcript {name}, which is not on this machine")
    return [json.loads(line) for line in file.read_text().splitlines()]


def conditions(found):
    known = (found.get("status") or {}).get("conditions") or []
    return tuple((c["type"], c["status"], c.get("reason", "")) for c in known)


def standing(found):
    """Conditions to wait for before a request: the state in which the recorded one was sent."""
    status = found.get("status") or {}
    return conditions(found), status.get("ready", 0), status.get("active", 0)


def now(watching):
    return standing(watching.events[-1][1]) if watching.events else None


def ours(path, pods):
    """A path with the name of our pod in place of the recorded one."""
    for _, pod in pods.events:
        path = re.sub(
            rf"pods/{plain(pod)}-[a-z0-9]{{5}}\b", f"pods/{pod['metadata']['name']}", path
        )
    return path


def steps(events):
    """The successive conditions of each object of a watch, without repetitions."""
    found = {}
    for _, each in events:
        told = found.setdefault(plain(each), [])
        if conditions(each) and (not told or told[-1] != conditions(each)):
            told.append(conditions(each))
    return found


def plain(found):
    """A name without its random part."""
    return re.sub(r"-[a-z0-9]{5}$", "", found["metadata"]["name"])


def of(transcript, kind):
    return [(e["type"], e["object"]) for e in transcript if e.get("watch") == kind]


def scripts(double, transcript):
    """Pretended pods do what the recorded pods' variables asked for, faster."""
    for entry in transcript:
        if entry.get("request") == "POST" and entry["body"]["kind"] in ("Job", "MPIJob"):
            text = json.dumps(entry["body"])
            values = dict(re.findall(r'"name": "([A-Z_]+)", "value": "([0-9]+)"', text))
            name = entry["body"]["metadata"]["name"]
            double.script(f"{name}-.*", Script(lasting=float(values.get("RUN_S", 4)) * FASTER))
            if "FAIL_INDEX" in values:
                at = float(values.get("FAIL_AT", values["RUN_S"])) * FASTER
                who = f"({values['FAIL_INDEX']}|launcher)"
                double.script(rf"{name}-{who}-\w+", Script(lasting=at, code=3))
            double.script(f"{name}-worker-.*", Script(lasting=1000))


def replayed(double, transcript):
    """Send the recorded requests, each when things stand as they stood; what was seen."""
    client = Client(double)
    seen = {kind: Watching(client, path) for kind, path in KINDS.items()}
    scripts(double, transcript)
    last, answers = {}, []
    for entry in transcript:
        if "watch" in entry and entry["watch"] in ("job", "mpijob"):
            last[entry["watch"]] = standing(entry["object"])
        if "request" not in entry:
            continue
        if entry["request"] != "POST":
            wait_until(lambda: all(now(seen[kind]) == last[kind] for kind in last), what=str(last))
        last.clear()
        if "/pods/" in entry["path"]:
            # The job may stand as it stood before its pod has been seen.
            wait_until(
                lambda e=entry: ours(e["path"], seen["pod"]) != e["path"], what=entry["path"]
            )
        path = ours(entry["path"], seen["pod"])
        answers.append(client.ask(entry["request"], path, entry.get("params"), entry.get("body")))
    left = {kind for kind in KINDS if any(e[0] == "DELETED" for e in of(transcript, kind))}
    for kind in left - {"event"}:
        gone = sum(e[0] == "DELETED" for e in of(transcript, kind))
        wait_until(lambda k=kind, n=gone: sum(e[0] == "DELETED" for e in seen[k].events) == n)
    return seen, answers


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_double_does_as_recorded(name, kubernetes):
    transcript = recorded(name)
    double = kubernetes(processes=False)
    seen, answers = replayed(double, transcript)
    for kind in ("job", "mpijob"):
        assert steps(seen[kind].events) == steps(of(transcript, kind)), kind
    asked = [e for e in transcript if "request" in e]
    for entry, (code, answer) in zip(asked, answers, strict=True):
        assert code == entry["status"], answer
        if answer is not None:
            assert answer["kind"] == entry["response"]["kind"]
    created = {labels_of(e) for kind, e in of(transcript, "pod") if kind == "ADDED"}
    assert {labels_of(e) for kind, e in seen["pod"].events if kind == "ADDED"} == created
    reasons = {e["reason"] for _, e in of(transcript, "event")}
    assert {e["reason"] for _, e in seen["event"].events} >= reasons


def labels_of(pod):
    """Labels, annotations, finalizers and owners of a pod, without what is random."""
    meta = pod["metadata"]
    labels = {k: v for k, v in meta["labels"].items() if "uid" not in k}
    owners = [(ref["kind"], ref["name"]) for ref in meta["ownerReferences"]]
    shown = (labels, meta.get("annotations"), meta.get("finalizers"), owners)
    return json.dumps([*shown, pod["spec"]["hostname"], pod["spec"]["subdomain"]], sort_keys=True)


def test_refusals_are_worded_as_recorded(kubernetes):
    double = kubernetes(processes=False)
    double.user("alice", [])
    admin, alice = Client(double), Client(double, "alice-token")
    double.forget_history()
    for entry in recorded("errors-and-discovery"):
        if entry["request"] == "DELETE" or entry["path"] in ("/version", "/api/v1/nodes"):
            continue
        client = alice if entry["status"] == 403 else admin
        path, _, query = entry["path"].partition("?")
        parameters = dict(pair.split("=") for pair in query.split("&") if pair)
        parameters |= entry.get("params") or {}
        code, answer = client.ask(entry["request"], path, parameters, entry.get("body"))
        told = entry["response"]
        if (entry.get("params") or {}).get("watch"):
            told, answer = told["object"], answer["object"]
            told["message"] = answer["message"] = answer["message"].split("(")[0]
        assert code == entry["status"], (path, answer)
        if code >= 400:
            assert answer == told
