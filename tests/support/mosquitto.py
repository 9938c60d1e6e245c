"""A real mosquitto with the sample configuration of docs/mosquitto: TLS, passwords, ACL."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.polling import wait_until
from tests.support.ports import free_port

DOCS = Path(__file__).resolve().parents[2] / "docs/mosquitto"
LIMIT = 60.0


class Mosquitto:
    """Started and ended by the test; a restart keeps the port."""

    def __init__(self, folder, authority, accounts, server=None):
        self.program = shutil.which("mosquitto")
        if not self.program or not shutil.which("mosquitto_passwd"):
            pytest.skip("mosquitto is not installed")
        self.folder, self.port, self.ca = folder, free_port(), authority.file
        self._lay(authority, accounts, server or authority.server())
        self.process = None

    def _lay(self, authority, accounts, server):
        text = (DOCS / "rankdeck.conf").read_text()
        passwords = self.folder / "passwords"
        passwords.write_text("".join(f"{n}:{p}\n" for n, p in accounts.items()))
        subprocess.run(["mosquitto_passwd", "-U", passwords], check=True)
        acl = shutil.copy(DOCS / "acl", self.folder / "acl")
        for path in (passwords, acl):
            Path(path).chmod(0o700)
        changes = {
            "listener 8883": f"listener {self.port} 127.0.0.1",
            "/etc/mosquitto/rankdeck/ca.crt": authority.file,
            "/etc/mosquitto/rankdeck/server.crt": server.cert,
            "/etc/mosquitto/rankdeck/server.key": server.key,
            "/etc/mosquitto/rankdeck/passwords": passwords,
            "/etc/mosquitto/rankdeck/acl": acl,
            "persistence true": f"persistence true\npersistence_location {self.folder}/\nuser root",
        }
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, str(new))
        (self.folder / "mosquitto.conf").write_text(text)

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "-c", self.folder / "mosquitto.conf"],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "mosquitto.log").open("ab"),
        )
        wait_until(self._listens)
        assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return self.process.poll() is not None
        return True

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(LIMIT)
            self.process = None

    def heard(self, user, password, topic="rankdeck/#", count=1, limit=10):
        """Messages that mosquitto's own client received, as lines `topic payload`."""
        done = subprocess.run(
            ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(self.port), "--cafile", self.ca,
             "-u", user, "-P", password, "-t", topic, "-C", str(count), "-W", str(limit), "-F", "%t %p"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.splitlines()
