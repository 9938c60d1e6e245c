"""Brings an RDMA lab up and says how to use it, if RANKDECK_RDMA_LAB=1 is set."""

import shlex
import sys

from tests.support.rdma_lab import missing, running


def main() -> None:
    """Stay up until the end of the input."""
    if why := missing():
        sys.exit(why)
    with running() as lab:
        file = lab.cluster_file()
        settings = " ".join(f"{k}={shlex.quote(v)}" for k, v in lab.environment().items())
        print(f"env {settings} {shlex.quote(sys.executable)} -m rankdeck -c {file} status")
        for name, one in lab.machines.items():
            print(f"{name}: ssh -p {one.port} -i {lab.folder}/id lab@127.0.0.1")
        print("Enter or the end of the input ends the lab.", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
