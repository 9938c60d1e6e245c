"""`python -m tests.support.lab.root [NODES]`: a root lab by hand, until Enter is pressed."""

import sys
import tempfile
from pathlib import Path

from tests.support.lab.root import RootLab, missing


def main() -> None:
    """Bring it up, say how to use it, wait, take it down."""
    print("images: about two minutes where they are not cached", flush=True)
    if why := missing():
        sys.exit(why)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory(prefix="lab.") as name:
        lab = RootLab(Path(name).resolve(), count)
        try:
            lab.up()
            shell = " ".join(lab.command(["bash"]))
            print(f"up: {' '.join(lab.nodes)}; cluster file {lab.cluster_file()}")
            print(f"a shell on the head: {shell}\nssh -F {lab.ssh_config} n1")
            input("Enter ends it. ")
        finally:
            lab.down()


main()
