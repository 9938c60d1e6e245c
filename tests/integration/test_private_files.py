"""Nobody else reads what Rankdeck keeps, also where the user's umask forbids nothing."""

import asyncio
import os
import resource
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.support.sshd import nodes

from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.config.files import create_private_folder, private_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SCRIPT = 'echo out; echo err >&2; echo "$TMPDIR" >"$HOME/of-the-job"; exit 3'
LIMITS = """
from resource import RLIMIT_CORE, RLIMIT_NOFILE, getrlimit
from rankdeck.__main__ import main
main(["--version"])
print(getrlimit(RLIMIT_NOFILE), getrlimit(RLIMIT_CORE)[0])
"""
OF_THE_JOB = "of-the-job"
"""What a job itself makes follows the umask of a login, not ours."""


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(*roots: Path) -> list[str]:
    """Everything below these folders that the group or others may do anything with."""
    found: list[str] = []
    for root in roots:
        for path in (root, *root.rglob("*")):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append(f"{stat.filemode(mode)} {path.relative_to(root.parent)}")
    return found


async def rankdeck(env: dict[str, str], *words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rankdeck", *words),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode()


def write_files(root: Path, cluster) -> None:
    access = cluster.access
    table = {
        "cluster": "test",
        "nodes": [
            {"name": n.name, "address": n.address, "port": n.port, "slots": 2}
            for n in cluster.nodes
        ],
        "ssh": {
            "user": access.user,
            "identity": access.identity,
            "known_hosts": access.known_hosts,
            "config": "none",
            "python": sys.executable,
        },
    }
    job = {
        "job": "j",
        "launch": "plain",
        "command": ["sh", "-c", SCRIPT],
        "nodes": 1,
        "files": {"deep/er.txt": "text"},
    }
    (root / "test.yaml").write_text(yaml.safe_dump(table))
    (root / "job.yaml").write_text(yaml.safe_dump(job))


@pytest.mark.usefixtures("_open_umask")
async def test_all_that_a_job_leaves_is_its_users_alone(tmp_path: Path) -> None:
    kept = {name: tmp_path / name for name in ("state", "config", "cache")}
    env = {
        **os.environ,
        **{f"XDG_{name.upper()}_HOME": str(path) for name, path in kept.items()},
    }
    async with nodes(tmp_path, ("n1",)) as found:
        write_files(tmp_path, found.cluster)
        at = ("-c", str(tmp_path / "test.yaml"))
        job = str(tmp_path / "job.yaml")
        ran, said = await rankdeck(env, *at, "run", job, "--no-preflight")
        assert "exit 3" in said, said
        name = next((found.sshd["n1"].home / "state/jobs").iterdir()).name
        report, script = tmp_path / "r.tar.gz", tmp_path / "job.sh"
        for words in (
            ("report", name, "--output", str(report)),
            ("export-script", job, "--output", str(script)),
            ("ack", "n1", "node.silent", "--for", "1h", "--why", "known"),
        ):
            code, said = await rankdeck(env, *at, *words)
            assert code == 0, said
    home = found.sshd["n1"].home
    assert ran != 0
    assert (home / OF_THE_JOB).stat().st_mode & 0o777 == 0o644
    assert (kept["state"] / "rankdeck/console/history.db").exists()

    made = [path for path in kept.values() if path.exists()]
    shown = open_to_others(*made, home / "state", home / ".cache")
    assert shown == []
    for file in (report, script):
        assert not file.stat().st_mode & 0o077, file
    with tarfile.open(report) as archive:
        assert not [entry.name for entry in archive if entry.mode & 0o077]


@pytest.mark.usefixtures("_open_umask")
def test_what_was_open_to_others_is_narrowed(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "history.db").touch()
    assert len(open_to_others(folder)) == 2

    create_private_folder(folder)
    private_file(folder / "history.db")

    assert open_to_others(folder) == []


BESIDE = """
import sys
from pathlib import Path
from rankdeck.acceptance.store import AcceptanceRuns
AcceptanceRuns(Path(sys.argv[1])).close()
"""


def test_a_database_opened_twice_here_keeps_its_log_when_another_process_leaves(
    tmp_path: Path,
) -> None:
    """Who leaves last deletes the log: no other process may take us for gone."""
    path = tmp_path / "acceptance.db"
    with closing(AcceptanceRuns(path)), closing(AcceptanceRuns(path)):
        log = path.with_name(f"{path.name}-wal").stat().st_ino
        subprocess.run([sys.executable, "-c", BESIDE, str(path)], timeout=300, check=True)

        assert path.with_name(f"{path.name}-wal").stat().st_ino == log


def test_the_console_takes_as_many_descriptors_as_it_may_and_leaves_no_core() -> None:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    core = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    told = subprocess.run(
        ["prlimit", "--nofile=256:4096", f"--core={core}", sys.executable, "-c", LIMITS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    assert told.stdout.splitlines()[-1] == "(4096, 4096) 0"
