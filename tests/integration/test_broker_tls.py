"""A real mosquitto with TLS, passwords and the sample ACL: what agent and console say of it."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto
from tests.support.polling import until as eventually
from tests.support.polling import wait_until

from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.remote.bundle import build_bundle
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.link import open_link

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ACCOUNTS = {"n1": "one", "n2": "two", "console": "c0nsole"}
CONSOLE = ("console", "c0nsole")


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@contextmanager
def broker(tmp_path, authority, **more):
    made = Mosquitto(tmp_path, authority, ACCOUNTS, **more)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def agent(tmp_path, broker, **more):
    """The agent as a service runs it: a configuration file and a password file."""
    (tmp_path / "agent.pyz").write_bytes(build_bundle().data)
    (tmp_path / "password").write_text(more.pop("password", "one") + "\n")
    config = {
        "cluster": "lab", "node": "n1", "host": "127.0.0.1", "port": broker.port, "tls": True,
        "ca_file": str(broker.ca), "username": "n1", "password_file": str(tmp_path / "password"), "period": 0.2,
        **more,
    }  # fmt: skip
    (tmp_path / "agent.conf").write_text(json.dumps(config))
    command = [sys.executable, "-I", tmp_path / "agent.pyz"]
    log = (tmp_path / "agent.log").open("wb")
    process = subprocess.Popen([*command, "--config", tmp_path / "agent.conf"], stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(tmp_path):
    return (tmp_path / "agent.log").read_text()


def cluster(broker, **changes):
    (broker.folder / "console.password").write_text(CONSOLE[1])
    values = {
        "host": "127.0.0.1", "port": broker.port, "tls": True, "ca_file": str(broker.ca), "username": CONSOLE[0],
        "password_file": str(broker.folder / "console.password"), **changes,
    }  # fmt: skip
    return Cluster(name="lab", nodes=(Node(name="n1"),), broker=Broker(**values))


async def trouble(cluster):
    """What the console says of the broker."""
    fleet = Fleet(cluster)
    async with open_link(cluster, fleet):
        await eventually(lambda: fleet.trouble)
    return fleet.trouble


async def test_samples_flow_over_tls_and_the_broker_may_restart(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site, agent(tmp_path, site):
        fleet = Fleet(cluster(site))
        async with open_link(cluster(site), fleet):
            await eventually(lambda: fleet.node("n1").heard_s() is not None)
            site.stop()
            await eventually(lambda: fleet.trouble)
            site.start()
            await eventually(lambda: not fleet.trouble and not fleet.node("n1").silent)


def test_a_killed_agent_is_down_by_its_last_will(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site, agent(tmp_path, site) as process:
        topic = "rankdeck/1/lab/n1/hello"
        assert '"up":true' in wait_until(lambda: site.heard(*CONSOLE, topic))[0]
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: '"up":false' in site.heard(*CONSOLE, topic)[0])


def test_an_agent_can_write_its_own_topics_only(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site, agent(tmp_path, site, node="n2"):
        # n1's account with n2's name: the broker drops it without a word.
        wait_until(lambda: "n1" in (tmp_path / "mosquitto.log").read_text())
        assert site.heard(*CONSOLE, "rankdeck/1/lab/n2/#", 1, 3) == []
    with broker(tmp_path, authority) as site, agent(tmp_path, site):
        assert wait_until(lambda: site.heard(*CONSOLE, "rankdeck/1/lab/n1/sample"))
        assert site.heard("n1", "one", "rankdeck/#", 1, 2) == []


def test_the_console_can_write_nothing(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site:
        where = ["-h", "127.0.0.1", "-p", str(site.port), "--cafile", site.ca]
        message = ["-t", "rankdeck/1/lab/n1/hello", "-r", "-m", "forged"]
        login = ["-u", CONSOLE[0], "-P", CONSOLE[1]]
        subprocess.run(["mosquitto_pub", *where, *login, *message], check=False)

        assert site.heard(*CONSOLE, "rankdeck/#", 1, 2) == []


async def test_a_wrong_password_is_one_sentence_on_both_sides(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site, agent(tmp_path, site, password="no"):
        why = await trouble(cluster(site, username="n1"))
        await eventually(lambda: said(tmp_path))

        sentence = "refuses the user name or password"
        where = f"127.0.0.1:{site.port}"
        assert said(tmp_path) == f"rankdeck-agent: broker {where} {sentence}\n"
        assert why in (
            f"the broker at {where} {sentence}",
            f"the broker at {where} does not allow this user to connect: is the password right?",
        )


async def test_a_broker_of_another_authority_is_refused_on_both_sides(tmp_path, authority) -> None:
    other = Authority(tmp_path, "other")
    with broker(tmp_path, authority) as site:
        with agent(tmp_path, site, ca_file=str(other.file)):
            why = await trouble(cluster(site, ca_file=str(other.file)))
            await eventually(lambda: said(tmp_path))

        start = "shows a certificate that we do not accept: "
        assert f"127.0.0.1:{site.port} {start}" in said(tmp_path)
        assert len(said(tmp_path).splitlines()) == 1
        assert why.startswith(f"the broker at 127.0.0.1:{site.port} {start}")


async def test_tls_that_is_missing_in_the_url_is_said_on_both_sides(tmp_path, authority) -> None:
    with broker(tmp_path, authority) as site, agent(tmp_path, site, tls=False, ca_file=""):
        why = await trouble(cluster(site, tls=False, ca_file=""))
        await eventually(lambda: said(tmp_path))

        assert why.endswith("speaks TLS: write `mqtts://` in the `url` of `broker:`")
        assert "with TLS or without as configured" in said(tmp_path)
        assert len(said(tmp_path).splitlines()) == 1


async def test_a_client_certificate_that_is_wanted_is_said(tmp_path, authority) -> None:
    site = Mosquitto(tmp_path, authority, ACCOUNTS)
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(conf.read_text() + "\nrequire_certificate true\n")
    site.start()
    try:
        assert "wants a client certificate" in await trouble(cluster(site))
    finally:
        site.stop()


async def test_an_expired_certificate_is_named_on_both_sides(tmp_path, authority) -> None:
    expired = authority.server("expired", days=-1)
    with (
        broker(tmp_path, authority, server=expired) as site,
        agent(tmp_path, site),
    ):
        why = await trouble(cluster(site))
        await eventually(lambda: said(tmp_path))

        end = "shows a certificate that we do not accept: certificate has expired"
        assert said(tmp_path).rstrip().endswith(end)
        assert why.endswith(end)


async def test_a_certificate_file_that_is_missing_or_none_is_one_sentence(
    tmp_path, authority
) -> None:
    (tmp_path / "none.crt").write_text("hello")
    with broker(tmp_path, authority) as site:
        for name in ("missing.crt", "none.crt"):
            path = str(tmp_path / name)
            with agent(tmp_path, site, ca_file=path) as process:
                assert process.wait(20) == 2
            assert path in said(tmp_path)
            why = await trouble(cluster(site, ca_file=path))
            assert why.startswith(f"cannot read the broker's certificates in {path}: ")
