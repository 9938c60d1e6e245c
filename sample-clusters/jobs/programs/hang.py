"""One rank stops taking part; the others print until the next collective, then wait for it."""

import os
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank = world.Get_rank()
culprit = int(os.environ.get("HANG_RANK", "2"))
after = float(os.environ.get("HANG_AFTER", "5"))
step = 0

while step * 0.5 < float(os.environ.get("HANG_SECONDS", "3600")):
    print(f"step {step} of rank {rank}", flush=True)
    time.sleep(0.5)
    step += 1
    if rank == culprit and step * 0.5 >= after:
        print("rank falls silent here", flush=True)
        while True:
            time.sleep(60)
    if step % 4 == 0:
        request = world.Ibarrier()
        while not request.Test():
            time.sleep(0.05)
