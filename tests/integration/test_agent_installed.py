"""Agents that stay: installed over SSH, publishing over TLS to a real mosquitto with ACL."""

import argparse
import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto
from tests.support.polling import until
from tests.support.sshd import nodes

from rankdeck.cli import agent, choose
from rankdeck.cli.output import UsageError
from rankdeck.model.cluster import Broker
from rankdeck.opening import open_cluster_session
from rankdeck.telemetry.node_telemetry import INSTALLED
from rankdeck.values import replace
from rankdeck_agent.service_files import place_installation, write_unit_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
FAKE = Path(__file__).resolve().parents[1] / "support/systemctl.py"
CONSOLE = ("console", "c0nsole")
VERBS = {
    "install": "run_install",
    "uninstall": "run_uninstall",
    "status": "run_agent_status",
}


@pytest.fixture
async def site(tmp_path, own_folders):
    """Two nodes with a stand-in for systemd, and the site's broker."""
    async with nodes(tmp_path) as running:
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir()
        (bin_folder / "systemctl").symlink_to(FAKE)
        for sshd in running.sshd.values():
            (sshd.home / "run/systemd/system").mkdir(parents=True)
            sshd.environment |= {
                "PATH": f"{bin_folder}:{os.environ['PATH']}",
                "RANKDECK_ROOT": str(sshd.home),
                "XDG_RUNTIME_DIR": str(sshd.home),
            }
        accounts = tmp_path / "agents"
        accounts.write_text("n1:one\nn2:two\n")
        (tmp_path / "console.password").write_text(CONSOLE[1])
        folder = tmp_path / "broker"
        folder.mkdir()
        known = {"n1": "one", "n2": "two", CONSOLE[0]: CONSOLE[1]}
        broker = Mosquitto(folder, Authority(folder), known)
        broker.start()
        running.broker = broker
        running.cluster = replace(
            running.cluster,
            broker=Broker(
                host="127.0.0.1",
                port=broker.port,
                tls=True,
                ca_file=str(broker.ca),
                username=CONSOLE[0],
                password_file=str(tmp_path / "console.password"),
                agents_file=str(accounts),
            ),
        )
        try:
            yield running
        finally:
            for sshd in running.sshd.values():
                environment = {**sshd.environment, "HOME": str(sshd.home)}
                subprocess.run(  # noqa: ASYNC221
                    [sys.executable, FAKE, "disable", "--now"],
                    env=environment,
                    check=True,
                )
            broker.stop()


async def verb(site, monkeypatch, capsys, name, given="", **options):
    """One verb of the command line; its exit code and its JSON."""
    monkeypatch.setattr(choose, "choose_cluster", lambda _: site.cluster)
    values = {"system": False, "dry_run": False, "json": True, "kubernetes": False, **options}
    namespace = argparse.Namespace(cluster="", nodes=given, **values)
    code = await asyncio.to_thread(getattr(agent, VERBS[name]), namespace, None)
    printed = capsys.readouterr()
    answer = json.loads(printed.out) if values["json"] else printed.out
    return code, answer, printed.err


def files_of(home):
    """Every file of the node but caches and the stand-in's own."""
    return {
        str(path.relative_to(home))
        for path in home.rglob("*")
        if path.is_file() and not str(path.relative_to(home)).startswith((".cache", "fake-"))
    }


@pytest.mark.kept
async def test_install_publishes_status_tells_and_uninstall_leaves_nothing(
    site, monkeypatch, capsys
) -> None:
    code, answer, _ = await verb(site, monkeypatch, capsys, "install")
    home = site.sshd["n1"].home
    heard = await asyncio.to_thread(site.broker.heard, *CONSOLE, "rankdeck/1/test/n1/hello")
    hello = json.loads(heard[0].partition(" ")[2])
    config = home / ".config/rankdeck/agent.conf"

    assert (code, [n["did"] for n in answer["nodes"]]) == (0, ["installed"] * 2)
    assert hello["installed"]
    assert hello["up"]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert files_of(home) == {
        ".local/lib/rankdeck/agent.pyz",
        ".config/rankdeck/agent.conf",
        ".config/systemd/user/rankdeck-agent.service",
    }

    code, answer, _ = await verb(site, monkeypatch, capsys, "install")
    assert [n["did"] for n in answer["nodes"]] == ["unchanged"] * 2
    calls = (home / "fake-systemd.calls").read_text()
    assert calls.count("restart") == 1

    for _ in range(10):  # on a busy machine an agent may be late
        code, answer, _ = await verb(site, monkeypatch, capsys, "status")
        if all(n["heard_s"] is not None and n["heard_s"] < 5 for n in answer["nodes"]):
            break
    assert code == 0
    assert [n["state"] for n in answer["nodes"]] == ["active"] * 2
    assert all(n["heard_s"] < 5 and n["enabled"] for n in answer["nodes"])

    code, answer, _ = await verb(site, monkeypatch, capsys, "uninstall", "n1")
    assert [(n["node"], n["did"]) for n in answer["nodes"]] == [("n1", "removed")]
    assert files_of(home) == set()
    assert not list(home.rglob("rankdeck/")) or not (home / ".config/rankdeck").exists()
    kept = await asyncio.to_thread(site.broker.heard, *CONSOLE, "rankdeck/1/test/+/hello", 2, 2)
    assert [line.split("/")[3] for line in kept] == ["n2"]

    code, answer, _ = await verb(site, monkeypatch, capsys, "uninstall", "n1")
    assert [n["did"] for n in answer["nodes"]] == ["was not there"]


@pytest.mark.kept
async def test_another_agent_is_an_upgrade_and_says_from_what(site, monkeypatch, capsys) -> None:
    await verb(site, monkeypatch, capsys, "install", "n1")
    old = site.sshd["n1"].home / ".local/lib/rankdeck/agent.pyz"
    old.write_bytes(old.read_bytes()[:-100])

    code, answer, _ = await verb(site, monkeypatch, capsys, "install", "n1")

    assert code == 0
    assert answer["nodes"][0]["did"] == "upgraded"
    assert answer["nodes"][0]["old"] != answer["nodes"][0]["new"]


async def test_a_console_starts_no_second_agent_beside_an_installed_one(
    site, monkeypatch, capsys
) -> None:
    await verb(site, monkeypatch, capsys, "install", "n1")
    # It says that it is installed when it has connected, not when systemd has started it.
    topic = "rankdeck/1/test/n1/hello"
    assert await asyncio.to_thread(site.broker.heard, *CONSOLE, topic, 1, 40)

    async with open_cluster_session(site.cluster) as session:
        # n2 has none: there the console starts one, with the node's own account.
        await until(lambda: session.fleet.node("n2").heard_s() is not None)
        await until(lambda: session.fleet.node("n1").attach == INSTALLED)
        await until(lambda: session.fleet.node("n1").heard_s() is not None)
        said = session.fleet.node("n2").attach

    assert said == "its telemetry has started"
    journal = (site.sshd["n1"].home / "fake-journal").read_text()
    assert journal == ""


async def test_a_console_that_came_first_ends_its_own_agent_for_the_installed_one(
    site, monkeypatch, capsys
) -> None:
    async with open_cluster_session(site.cluster) as session:
        session.hearing.want(None)
        node = session.fleet.node("n1")
        await until(lambda: node.heard_s() is not None)
        assert node.attach == "its telemetry has started"

        await verb(site, monkeypatch, capsys, "install", "n1")
        await until(lambda: node.attach == INSTALLED, 40)
        count = node.samples
        await until(lambda: node.samples > count + 2 and node.hello.installed, 40)
        carried = subprocess.run(  # noqa: ASYNC221
            ["pgrep", "-f", f"{site.sshd['n1'].home}.*agent.* telemetry"],
            capture_output=True,
            check=False,
        )

    heard = await asyncio.to_thread(site.broker.heard, *CONSOLE, "rankdeck/1/test/n1/hello")
    kept = json.loads(heard[0].partition(" ")[2])
    assert (kept["installed"], kept["up"]) == (True, True)
    assert carried.stdout == b""


async def test_a_dry_run_shows_files_and_commands_and_does_nothing(
    site, monkeypatch, capsys
) -> None:
    code, text, _ = await verb(site, monkeypatch, capsys, "install", "n1", dry_run=True, json=False)

    assert code == 0
    assert "$ systemctl --user restart rankdeck-agent.service" in text
    assert "StandardInput=file:" in text
    assert '"host": "127.0.0.1"' in text
    assert '"password": "…"' in text
    assert '"one"' not in text
    assert files_of(site.sshd["n1"].home) == set()


async def test_a_node_without_systemd_and_one_without_link_fail_alone(
    site, monkeypatch, capsys
) -> None:
    shutil.rmtree(site.sshd["n1"].home / "run")
    await site.sshd["n2"].stop()

    code, answer, _ = await verb(site, monkeypatch, capsys, "install")
    await site.sshd["n2"].start()

    n1, n2 = answer["nodes"]
    assert code == 1
    assert n1["why"].startswith("no systemd runs there; ")
    assert not n2["ok"]
    assert n2["why"]
    assert files_of(site.sshd["n1"].home) == set()


async def test_missing_accounts_are_made_and_the_operator_is_told(
    site, monkeypatch, capsys, tmp_path
) -> None:
    accounts = tmp_path / "new"
    site.cluster = replace(
        site.cluster, broker=replace(site.cluster.broker, agents_file=str(accounts))
    )

    _, _, err = await verb(site, monkeypatch, capsys, "install", "n1", dry_run=True)
    assert not accounts.exists()
    assert "would add 1 accounts" in err
    _, _, err = await verb(site, monkeypatch, capsys, "install", "n1")

    name, _, password = accounts.read_text().strip().partition(":")
    assert name == "n1"
    assert len(password) >= 24
    assert stat.S_IMODE(accounts.stat().st_mode) == 0o600
    assert "mosquitto_passwd -U" in err


@pytest.mark.parametrize(
    ("given", "why"),
    [("n[1-", "not a node set"), ("x9", "no node `x9`"), ("n3", "no node `n3`")],
)
async def test_a_wrong_node_set_is_bad_input(site, monkeypatch, capsys, given, why) -> None:
    with pytest.raises(UsageError, match=why):
        await verb(site, monkeypatch, capsys, "install", given)


async def test_without_a_broker_of_the_site_nothing_is_installed(site, monkeypatch, capsys) -> None:
    site.cluster = replace(site.cluster, broker=None)
    with pytest.raises(UsageError, match="add `broker:"):
        await verb(site, monkeypatch, capsys, "install")


@pytest.mark.kept("True")
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("system", [True, False])
def test_systemd_takes_the_units_as_they_are(tmp_path, system) -> None:
    at = place_installation(tmp_path, tmp_path, system=system)
    text = write_unit_text(at, sys.executable, "SupplementaryGroups=root\n" if system else "")
    file = tmp_path / "rankdeck-agent.service"
    file.write_text(text.replace("User=rankdeck-agent", "User=root"))

    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            *([] if system else ["--user"]),
            file,
        ],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert [line for line in done.stderr.splitlines() if "rankdeck" in line] == []
    assert done.returncode == 0, done.stderr
