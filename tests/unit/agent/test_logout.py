"""Whether jobs end with the login: by what systemd-logind says, and only in a session of its own."""

import pytest

from rankdeck_agent import logout
from rankdeck_agent.logout import ends_with_login, is_ended

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

    assert ends_with_login() is expected


def test_without_systemd_nothing_is_claimed(tmp_path, monkeypatch):
    (tmp_path / "cgroup").write_text("0::/session-3.scope\n")
    monkeypatch.setattr(logout, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert not ends_with_login()
