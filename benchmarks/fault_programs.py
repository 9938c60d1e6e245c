"""The programs of the fault bench: real ranks that work in steps,
and go wrong where they are told to.

A program says in its run folder that it is at work (`ready.RANK`) and when it goes wrong (`fault`).
"""

from textwrap import indent

HEAD = """\
import os, signal, socket, sys, threading, time
from datetime import timedelta
HERE, NODE = os.environ["RANKDECK_RUN"], os.environ["RANKDECK_NODE"]
END = time.time() + 170

def note(name, text=""):
    new = f"{HERE}/{name}.{os.getpid()}.new"
    with open(new, "w") as file:
        file.write(text)
    os.replace(new, f"{HERE}/{name}")

def fault():
    note("fault", repr(time.time()))

"""
_MPI = """\
import mpi4py
mpi4py.rc.finalize = %(finalize)s
from mpi4py import MPI
WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()

def meet():
    WORLD.allreduce(1)

"""
_TORCH = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
GROUP = dist.new_group(timeout=timedelta(seconds=%(timeout)d))
RANK, TENSOR = dist.get_rank(), torch.ones(1)

def meet():
    dist.all_reduce(TENSOR, group=GROUP)

"""
_STEPS = """\
step, pause = 0, 0.1
while time.time() < END:
    meet()
    if %(speaks)s:
        print("step", step, "residual", 1 / (step + 1), flush=True)
    if step == 5:
        note(f"ready.{RANK}")
    if step == 15 and RANK in %(victims)r:
%(wrong)s
    time.sleep(pause)
    step += 1
"""
NOTHING = "pass"
"""Nothing goes wrong by the program itself."""


def mpi(
    wrong: str = NOTHING,
    *,
    victims: tuple[int, ...] = (4,),
    speaks: str = "True",
    finalize: bool = False,
    first: str = "",
) -> str:
    """An mpi4py program whose ranks `victims` do `wrong` at step 15; `first` comes before MPI."""
    body = _MPI % {"finalize": finalize}
    return HEAD + first + body + _steps(wrong, victims, speaks)


def torch(
    wrong: str = NOTHING,
    *,
    victims: tuple[int, ...] = (3,),
    speaks: str = "True",
    timeout: int = 60,
    first: str = "",
) -> str:
    """A PyTorch program over gloo, wrong in the same way; `timeout` in seconds of a collective."""
    body = _TORCH % {"timeout": timeout}
    return HEAD + first + body + _steps(wrong, victims, speaks)


def _steps(wrong: str, victims: tuple[int, ...], speaks: str) -> str:
    told = "" if wrong == NOTHING else "fault()\n"
    words = {"wrong": indent(told + wrong, " " * 8), "victims": victims, "speaks": speaks}
    return _STEPS % words


WORKS = """\
step = 0
while time.time() < END:
    begun = time.process_time()
    while time.process_time() < begun + 0.15:
        sum(range(10000))
    meet()
    print("step", step, flush=True)
    if step == 5:
        note(f"ready.{RANK}")
    step += 1
"""
"""All ranks compute as much, and wait for each other."""


def works() -> str:
    """An MPI job that computes in steps."""
    return HEAD + _MPI % {"finalize": False} + WORKS


def works_torch() -> str:
    """A PyTorch job that computes in steps; its ranks sleep while they wait."""
    return HEAD + _TORCH % {"timeout": 120} + WORKS


HEALTHY = """\
import random
random.seed(RANK)
for step in range(12):
    meet()
    for line in range(random.choice((0, 1, 40))):
        print("step", step, "iteration", line, "warning: timer moved", random.random(), flush=True)
    if step == 6:
        until = time.time() + %(pause)s
        while %(how)s and time.time() < until:
            sum(range(10000))
        time.sleep(max(until - time.time(), 0))
    time.sleep(random.random())
meet()
print("done", flush=True)
%(after)s
"""
"""All ranks of a healthy job: bursts of lines, then a pause of all at once, busy or asleep."""


def healthy_mpi(pause: float, *, busy: bool) -> str:
    """An MPI job in which nothing is wrong."""
    body = HEALTHY % {"pause": pause, "how": busy, "after": ""}
    return HEAD + _MPI % {"finalize": True} + body


def healthy_torch(pause: float) -> str:
    """A PyTorch job in which nothing is wrong."""
    after = "dist.destroy_process_group()"
    body = HEALTHY % {"pause": pause, "how": True, "after": after}
    return HEAD + _TORCH % {"timeout": 120} + body


HEALTHY_SHELL = """\
i=0
while [ $i -lt 30 ]; do
    i=$((i + 1))
    echo "chunk $i"
    [ $i != 20 ] || sleep 25
    sleep 0.$((i % 9))
done
"""
"""A plain rank that speaks often, then pauses, each rank for itself."""

HANDLES_SIGTERM = """\
def told(number, frame):
%(does)s
signal.signal(signal.SIGTERM, told)
"""
"""Goes before MPI: what every rank does when its launcher tells it to end."""


def when_told(does: str) -> str:
    """The beginning of a program that does this when it is told to end by SIGTERM."""
    return HANDLES_SIGTERM % {"does": indent(does, "    ")}


WRITES = """\
for step in range(20):
    meet()
    print("step", step, flush=True)
    if step == 8:
        until = time.time() + %(pause)s
        with open(f"{HERE}/checkpoint.{RANK}", "wb") as file:
            while time.time() < until:
                file.seek(0)
                for _ in range(64): file.write(bytes(1 << 16))
    time.sleep(0.3)
meet()
print("done", flush=True)
"""
"""All ranks of a healthy job: they write a checkpoint, silent and for
long, with much time in the kernel.
"""


def healthy_writes(pause: float) -> str:
    """An MPI job that writes its checkpoint for `pause` seconds."""
    return HEAD + _MPI % {"finalize": True} + WRITES % {"pause": pause}


MPICH = """\
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void note(const char *name, double at) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("RANKDECK_RUN"), name);
    FILE *file = fopen(path, "w");
    fprintf(file, "%.6f", at);
    fclose(file);
}

static double now(void) {
    struct timeval at;
    gettimeofday(&at, NULL);
    return at.tv_sec + at.tv_usec / 1e6;
}

int main(int count, char **words) {
    int rank, size, one = 1, sum;
    char ready[64];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < 1500; step++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        printf("step %d\\n", step);
        fflush(stdout);
        snprintf(ready, sizeof ready, "ready.%d", rank);
        if (step == 5) note(ready, 0);
        if (step == 15 && rank == atoi(words[1])) {
            note("fault", now());
            if (!strcmp(words[2], "segv")) *(volatile int *)(long)(rank - rank) = 1;
            if (!strcmp(words[2], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
            if (!strcmp(words[2], "exit")) exit(3);
            if (!strcmp(words[2], "hang")) sleep(1000);
            if (!strcmp(words[2], "exit0")) _exit(0);
            if (!strcmp(words[2], "abort143")) MPI_Abort(MPI_COMM_WORLD, 143);
            if (!strcmp(words[2], "mismatch")) MPI_Bcast(&one, 1, MPI_INT, (rank + 1) % size, MPI_COMM_WORLD);
            if (!strcmp(words[2], "receives")) MPI_Recv(&one, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        usleep(100000);
    }
    MPI_Finalize();
    return 0;
}
"""
"""A C program for MPICH: `prog RANK HOW`."""
