"""What a job sets in its environment stands in no argument list on its nodes, whatever runs it."""

import asyncio
import os
import secrets
import sys
from pathlib import Path

import pytest
from tests.support.jobs import console
from tests.support.programs import python_script

from rankdeck.model.job_spec import Container, Launch, MpiOptions, TorchOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MPIRUN = Path(sys.prefix) / "bin/mpirun"
TORCHRUN = Path(sys.prefix) / "bin/torchrun"
WORD = "saw"
SCRIPT = f"""echo {WORD} "$MARKER"; while [ ! -e "$GO" ]; do sleep 0.1; done"""
RUNTIME = """\
# Takes words and environment as the runtime of its name does, and runs the command right here.
import os, sys
words = sys.argv[1:]
words = words[words.index("{verb}") + 1:]
named = [word[6:] for word in words if word.startswith("--env=")]
while words[0].startswith("--"):
    words.pop(0)
env = dict(os.environ)
if "{prefix}":
    env.pop("MARKER")
    env.update((key[len("{prefix}"):], value) for key, value in os.environ.items() if key.startswith("{prefix}"))
elif "MARKER" not in named:
    env.pop("MARKER")
os.execvpe(words[1], words[1:], env)
"""
VERBS = {
    "apptainer": ("exec", "APPTAINERENV_"),
    "singularity": ("exec", "SINGULARITYENV_"),
    "podman": ("run", ""),
    "docker": ("run", ""),
    "enroot": ("start", ""),
}


def install(folder: Path) -> None:
    """Programs that stand in for the runtimes."""
    folder.mkdir()
    for name, (verb, prefix) in VERBS.items():
        program = folder / name
        program.write_text(python_script(RUNTIME.format(verb=verb, prefix=prefix)))
        program.chmod(0o755)


def commands_with(marker: str) -> set[str]:
    """The argument lists of this machine that show the marker."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in words:
            found.add(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_the_search_finds_an_argument_that_shows_the_marker() -> None:
    marker = secrets.token_hex(8)
    child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "30", f"0.{int(marker, 16)}")

    try:
        while not commands_with(f"0.{int(marker, 16)}"):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.left_out(
    "torchrun-none",
    "torchrun-apptainer",
    "torchrun-singularity",
    "torchrun-podman",
    "torchrun-docker",
    "torchrun-enroot",
    "mpi-singularity",
    "mpi-docker",
    "mpi-enroot",
)
@pytest.mark.parametrize("runtime", ["none", *VERBS])
@pytest.mark.parametrize("launch", [Launch.PLAIN, Launch.MPI, Launch.TORCHRUN])
async def test_the_ranks_see_a_variable_and_no_argument_list_does(
    tmp_path: Path, launch: Launch, runtime: str
) -> None:
    for program, wanted in ((MPIRUN, Launch.MPI), (TORCHRUN, Launch.TORCHRUN)):
        if launch is wanted and not program.exists():
            pytest.skip(f"no {program.name} here")
    install(tmp_path / "bin")
    marker, go = secrets.token_hex(16), tmp_path / "go"
    shown: set[str] = set()
    async with console(tmp_path, ("n1",)) as one:
        path = f"{tmp_path / 'bin'}:{one.nodes.sshd['n1'].environment['PATH']}"
        one.nodes.sshd["n1"].environment["PATH"] = path
        job = await one.launch(
            SCRIPT,
            launch=launch,
            nodes=1,
            env={"MARKER": marker, "GO": str(go)},
            container=None if runtime == "none" else Container(image="img", runtime=runtime),
            mpi=MpiOptions(path=str(MPIRUN)),
            torch=TorchOptions(path=str(TORCHRUN)),
        )
        following = asyncio.create_task(one.follow(job))
        async with asyncio.timeout(60):
            while not all(one.texts(job, rank) for rank in range(2)):
                shown |= commands_with(marker)
                one.watch(job, range(2)) if job in one.followers else None
                await asyncio.sleep(0.02)
        shown |= commands_with(marker)
        go.touch()
        await following

        assert [one.texts(job, rank) for rank in range(2)] == [[f"{WORD} {marker}"]] * 2
        assert shown == set()
