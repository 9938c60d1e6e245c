"""Scripts in place of Slurm's commands, whose answers have control
characters or megabytes, or are none.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import python_script

MUCH = 10 << 20
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "srun", "sacct")
KINDS = ("refused", "refused-10m", "id", "id-10m", "queue", "queue-10m")
"""Which command lies (`queue`: squeue, scontrol and sacct), and
whether with one text or with 10 MB.
"""
PROGRAM = """\
import pathlib, sys
name, kind, here = {name!r}, {kind!r}, pathlib.Path({here!r})
texts = (here / "texts").read_text()
lie = (texts * ({much} // len(texts) + 1 if kind.endswith("-10m") else 1)).encode()
counter = here / ("asked." + name)
asked = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(asked + 1))
answer, error = b"", b""

if name == "sbatch" and kind.startswith("refused"):
    error = lie
elif name == "sbatch":
    answer = lie if kind.startswith("id") else b"7\\n"
elif name == "squeue":
    marks = [word[9:].partition("%")[0].encode() for word in sys.argv if word.startswith("--format=")]
    answer = b"".join(marks) + b"%d " % asked + lie
elif name == "scontrol" and asked < 4:
    error = b"%d " % asked + lie if asked % 2 else b""
    answer = b"" if asked % 2 else b"JobId=7 JobState=" + lie + b" ExitCode=" + lie
elif name == "scontrol":
    error = b"slurm_load_jobs error: Invalid job id specified"
elif name == "sacct":
    answer = b"7|7|" + lie
try:
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
except BrokenPipeError:
    sys.stdout = None
sys.stderr.buffer.write(error)
sys.exit(1 if error else 0)
"""
"""After the fourth call of scontrol the job has left the queue."""


def lying_slurm(here: Path, kind: str, texts: Sequence[str]) -> str:
    """Write the commands into a new folder; returns a PATH that begins with it."""
    here.mkdir()
    (here / "texts").write_text("\n".join(texts))
    for name in COMMANDS:
        program = here / name
        program.write_text(
            python_script(PROGRAM.format(name=name, kind=kind, here=str(here), much=MUCH))
        )
        program.chmod(0o755)
    return f"{here}:/usr/bin:/bin"
