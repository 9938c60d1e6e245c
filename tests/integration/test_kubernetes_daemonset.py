"""The DaemonSet of `agent install --kubernetes`, by the real kubectl
and the double's strict validation.
"""

from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.site import Site, doubled

pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    """A cluster file with a broker, on a double."""
    made = Site(tmp_path / "site", doubled(kubernetes(processes=False), pretends=True), kubectl)
    made.cluster({"broker": {"url": "mqtt://head.example.org:1883"}})
    return made


def printed(site: Site) -> Path:
    done = site.rankdeck("agent", "install", "--kubernetes", "--image", "python:3.12-slim")
    assert done.returncode == 0, done.stderr[-800:]
    (site.folder / "agent.yaml").write_text(done.stdout)
    return site.folder / "agent.yaml"


def test_the_server_takes_every_field_of_it_and_kubectl_creates_it(site: Site) -> None:
    file = printed(site)

    said = site.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(file))
    assert said.count("created (server dry run)") == 3
    assert site.kubectl("get", "daemonsets", "-o", "name") == ""

    site.kubectl("create", "--validate=strict", "-f", str(file))
    assert site.kubectl("get", "daemonsets", "-o", "name") == "daemonset.apps/rankdeck-agent\n"


def test_a_field_that_kubernetes_does_not_know_would_be_refused(site: Site) -> None:
    file = printed(site)
    made = list(yaml.safe_load_all(file.read_text()))
    made[2]["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privilege"] = True
    file.write_text(yaml.safe_dump_all(made))

    said = site.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(file), code=1)

    assert "daemonset" not in said
    assert said.count("created") == 2
