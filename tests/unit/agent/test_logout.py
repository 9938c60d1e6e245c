"""Whether jobs end with the login: by what systemd-logind says,
and only in a session of its own.
"""

import sys

import pytest

from rankdeck_agent import logout
from rankdeck_agent.logout import (
    LogoutFacts,
    LogoutPlan,
    is_ended,
    judge_logout,
    leave_session,
    logout_facts,
    scope_words,
)
from rankdeck_agent.schedulers.slurm.keeper_lease import start_keeper
from tests.support.polling import wait_until

SPARES_ROOT = 'as 1 "root"'


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (["b true", "as 0", SPARES_ROOT], True),
        (["b false", "as 0", SPARES_ROOT], False),
        (["b true", "as 0", 'as 2 "root" "me"'], False),
        (["b true", 'as 1 "me"', SPARES_ROOT], True),
        (["b true", 'as 1 "you"', SPARES_ROOT], False),
        (["b true"], False),
        (["b true", 'as 1 "', ""], False),
        ([], False),
    ],
)
def test_the_properties_of_logind_decide(properties, expected):
    assert is_ended("me", properties) is expected


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", True),
        ("1:name=systemd:/user.slice/user-1000.slice/session-c3.scope\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice\n", False),
        ("0::/\n", False),
    ],
)
def test_only_a_process_in_the_scope_of_a_session_is_ended(tmp_path, monkeypatch, cgroup, expected):
    (tmp_path / "cgroup").write_text(cgroup)
    busctl = tmp_path / "busctl"
    busctl.write_text("#!/bin/sh\nprintf 'b true\\nas 0\\nas 0\\n'\n")
    busctl.chmod(0o755)
    monkeypatch.setattr(logout, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert judge_logout(logout_facts()).ends is expected


def test_without_systemd_nothing_is_claimed(tmp_path, monkeypatch):
    (tmp_path / "cgroup").write_text("0::/session-3.scope\n")
    monkeypatch.setattr(logout, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert logout_facts() == LogoutFacts(session=True, kills=False, lingers=False)
    assert leave_session("j-1") == ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((True, True, True), (False, True)),
        ((True, True, False), (True, False)),
        ((True, False, True), (False, False)),
        ((True, False, False), (False, False)),
        ((False, True, True), (False, False)),
        ((False, True, False), (False, False)),
    ],
)
def test_a_job_moves_out_of_a_login_that_would_end_it_if_the_user_lingers(facts, expected):
    assert judge_logout(LogoutFacts(*facts)) == LogoutPlan(*expected)


def commands(folder, monkeypatch, lingers, moves):
    """busctl and loginctl that answer so; what moves is put into another control group."""
    cgroup = folder / "cgroup"
    cgroup.write_text("0::/user.slice/user-1000.slice/session-3.scope\n")
    move = f"echo 0::/user.slice/user@1000.service/x.scope >{cgroup}" if moves else "exit 1"
    for name, text in {
        "busctl": f"echo \"$@\" >>{folder}/asked; case $1 in --user) {move};; *) printf 'b true\\nas 0\\nas 0\\n';; esac",
        "loginctl": f"echo Linger={lingers}",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(logout, "_CGROUP", cgroup)
    monkeypatch.setattr(logout, "_LIMIT", 2.0)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("lingers", "moves", "expected"),
    [
        ("yes", True, ""),
        ("yes", False, "it ends with the login (KillUserProcesses): the user's systemd gave it no scope"),
        ("no", True, "it ends with the login (KillUserProcesses)"),
    ],
)  # fmt: skip
def test_what_cannot_leave_a_login_that_ends_it_says_so(tmp_path, monkeypatch, lingers, moves, expected):  # fmt: skip
    commands(tmp_path, monkeypatch, lingers, moves)

    assert leave_session("j-1") == expected
    asked = (tmp_path / "asked").read_text()
    assert ("StartTransientUnit" in asked) is (lingers == "yes")


def test_the_scope_is_asked_for_as_busctl_writes_it():
    assert " ".join(scope_words("j-1", 42)) == (
        "rankdeck-j-1-42.scope fail 2 PIDs au 1 42 Delegate b true 0"
    )


def test_the_keeper_of_slurm_jobs_leaves_a_login_that_would_end_it(tmp_path, monkeypatch):
    commands(tmp_path, monkeypatch, lingers="yes", moves=True)
    (tmp_path / "agent").write_text(f"open('{tmp_path}/kept', 'w').close()\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "agent")])

    start_keeper()

    wait_until(lambda: (tmp_path / "kept").exists(), 30)
    assert "rankdeck-slurm-keeper-" in (tmp_path / "asked").read_text()
