"""Namespaces of Kubernetes in the console: which there are, which the user may look
into, and the change from one to another; on the double, through the real kubectl.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.site import ROOT, Site, doubled
from tests.support.polling import eventually
from tests.support.terminal import Terminal, terminal

from rankdeck.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LISTS = {
    "kind": "ClusterRole",
    "metadata": {"name": "lists"},
    "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}],
}


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    """Two namespaces with the smallest Role, one without; a job of others in each."""
    double = kubernetes(processes=False, namespaces=("default", "team", "secret"))
    double.script(".*", Script("out", lasting=600))
    for namespace in ("default", "team", "secret"):
        body = indexed_job(f"job-of-{namespace}", ["x"])
        double.post("jobs", body, namespace)
    return Site(tmp_path / "site", allow(double), kubectl)


def allow(double: Double, *more: dict):
    where = doubled(double, pretends=True)
    roles = [smallest_role(), smallest_role("team"), *more]
    return replace(where, kubeconfig=double.user("member", roles))


def asked(site: Site) -> dict:
    """The answer of the agent's command, as the console gets it."""
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "cluster", "namespaces"],
        env={**os.environ, **site.environment, "KUBECONFIG": str(site.where.kubeconfig)},
        cwd=ROOT,
        input='{"context": "double"}\n',
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_all_namespaces_are_listed_with_those_that_the_user_may_look_into(site: Site) -> None:
    assert site.where.double is not None
    site.where = allow(site.where.double, LISTS)

    found = asked(site)

    may = {row["name"]: row["allowed"] for row in found["namespaces"]}
    assert may["default"] is may["team"] is True
    assert may["secret"] is False
    assert (found["current"], found["every"], found["why"]) == ("default", False, "")


def test_who_may_list_none_is_told_those_of_the_kubeconfig(site: Site) -> None:
    config = yaml.safe_load(site.where.kubeconfig.read_text())
    (own,) = config["contexts"]
    other = {"name": "elsewhere", "context": {**own["context"], "cluster": "x", "namespace": "far"}}
    team = {"name": "t", "context": {**own["context"], "namespace": "team"}}
    config["contexts"] = [own, team, other]
    site.where.kubeconfig.write_text(yaml.safe_dump(config))

    found = asked(site)

    assert found["namespaces"] == [
        {"name": "default", "allowed": True},
        {"name": "team", "allowed": True},
    ]
    assert found["why"].startswith("you may not list namespaces")


def console(site: Site):
    command = [sys.executable, "-m", "rankdeck", "-c", str(site.folder / "k8s.yaml")]
    kubeconfig = {"KUBECONFIG": str(site.where.kubeconfig)}
    return terminal(command, {**site.environment, **kubeconfig})


def shows(screen: Terminal, text: str, limit: float = 60) -> None:
    assert eventually(lambda: text in screen.text(), limit), screen.text()


def test_the_console_shows_another_namespace_on_the_same_screen(site: Site) -> None:
    with console(site) as screen:
        screen.press("2")
        shows(screen, "job-of-default")

        screen.press(":namespace team\r")

        shows(screen, "job-of-team")
        assert "job-of-default" not in screen.text()
        screen.press(":namespace secret\r")
        shows(screen, "you may not list jobs in secret")
        screen.press(":namespace\r")
        shows(screen, "shown now")
        assert "team" in next(x for x in screen.text().splitlines() if "shown now" in x)
        screen.press("\x1b")
        assert eventually(lambda: "shown now" not in screen.text()), screen.text()
        screen.press(":namespace default\r")
        shows(screen, "job-of-default")
        screen.press("1q")
        assert screen.process.wait(30) == 0
