"""Each MPI rank says who and where it is, then all take part in one sum."""

import platform
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
library = MPI.Get_library_version().split(",")[0].strip()

print(
    f"Hello from rank {rank} of {size} on {MPI.Get_processor_name()} ({platform.machine()}, {library})",
    flush=True,
)
for beat in range(5):
    total = world.allreduce(rank)
    print(f"beat {beat}: the sum of all ranks is {total}", flush=True)
    time.sleep(1)
if rank == 0:
    print(f"{size} ranks are done", flush=True)
