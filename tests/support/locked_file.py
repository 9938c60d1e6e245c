"""Another process that keeps an SQLite file locked, as a program of somebody else may do."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

HOLDS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA locking_mode = EXCLUSIVE")
database.execute("UPDATE job SET state = state")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(history: Path) -> Generator[subprocess.Popen[str]]:
    """Keep the history locked until the block ends, or until
    `communicate` of the process is called.
    """
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HOLDS, str(history)]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
