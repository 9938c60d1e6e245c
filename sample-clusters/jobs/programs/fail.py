"""One rank exits in mid-run without a word to MPI; the others would go on for a minute."""

import os
import sys
import time

from mpi4py import MPI

rank = MPI.COMM_WORLD.Get_rank()
culprit = int(os.environ.get("FAIL_RANK", "2"))
after = float(os.environ.get("FAIL_AFTER", "5"))
code = int(os.environ.get("FAIL_CODE", "3"))

for step in range(int(os.environ.get("FAIL_STEPS", "120"))):
    print(f"step {step} of rank {rank}", flush=True)
    time.sleep(0.5)
    if rank == culprit and (step + 1) * 0.5 >= after:
        print(
            f"ValueError: loss is NaN in step {step}; exit code {code}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(code)
