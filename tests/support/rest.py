"""The rest of what a process writes, after a test has read lines of it."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor


def rest_of(process: subprocess.Popen[str], limit: float) -> tuple[str, str]:
    """What it still writes to stdout and stderr until it ends; it is killed after `limit` seconds.

    `Popen.communicate` reads the pipe itself, and loses the lines that `readline` had read ahead.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    late = threading.Timer(limit, process.kill)
    late.start()
    try:
        with ThreadPoolExecutor(2) as readers:
            rest, said = readers.map(lambda stream: stream.read(), (process.stdout, process.stderr))
        process.wait()
    finally:
        late.cancel()
    return rest, said
