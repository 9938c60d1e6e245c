#!/usr/bin/env python3
"""A stand-in for systemctl, for machines without systemd: reads the unit that was
written, starts its command and stops it.
"""

import configparser
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["HOME"])
ROOT = Path(os.environ.get("RANKDECK_ROOT", "/"))
PID = HOME / "fake-systemd.pid"
ENABLED = HOME / "fake-systemd.enabled"


def unit(words):
    user = "--user" in words
    folder = HOME / ".config/systemd/user" if user else ROOT / "etc/systemd/system"
    return folder / "rankdeck-agent.service"


def running():
    with contextlib.suppress(OSError, ValueError):
        pid = int(PID.read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return pid if state != "Z" else 0
    return 0


def stop():
    pid = running()
    if pid:
        os.kill(pid, signal.SIGTERM)
    for _ in range(100):
        if not running():
            break
        time.sleep(0.05)
    PID.unlink(missing_ok=True)


def start(words):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read_string(unit(words).read_text())
    service = parser["Service"]
    kind, _, path = service["StandardInput"].partition(":")
    assert kind == "file"
    command = shlex.split(service["ExecStart"].replace("%%", "%").replace("$$", "$"))
    with Path(path).open("rb") as given, (HOME / "fake-journal").open("ab") as journal:
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=journal,
            stderr=journal,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    PID.write_text(str(process.pid))


def main(words):
    with (HOME / "fake-systemd.calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    if "restart" in words:
        stop()
        start(words)
    elif "enable" in words:
        ENABLED.touch()
    elif "disable" in words:
        ENABLED.unlink(missing_ok=True)
        stop()
    elif "show" in words:
        print(f"ActiveState={'active' if running() else 'failed'}")
        print(f"UnitFileState={'enabled' if ENABLED.exists() else 'disabled'}")
        print("NRestarts=0")


main(sys.argv[1:])
