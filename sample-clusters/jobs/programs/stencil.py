"""A 3-D Jacobi solver over MPI, reported as the Himeno benchmark reports itself.

    python3 stencil.py [I J K]      points in each direction; STENCIL_SECONDS: how long to measure

Pure Python on arrays of doubles: the MFLOPS are measured, and they are Python's.
"""

import os
import sys
from array import array

from mpi4py import MPI

OMEGA = 0.8
FLOPS_PER_POINT = 11
"""Of the loop in `sweep`: 5 + 1 + 1 for the change, 2 for the residual, 2 for the new value."""


class Block:
    """This rank's part of the grid, with a layer of neighbours' points all around it."""

    def __init__(self, cart, points):
        self.cart = cart
        self.shape = [share(n, d, c) for n, d, c in zip(points, cart.dims, cart.coords)]  # noqa: B905
        i, j, k = (n + 2 for n in self.shape)
        self.row, self.plane = k, j * k
        self.old = array("d", bytes(8 * i * j * k))
        self.new = array("d", bytes(8 * i * j * k))
        self.fill(points)

    def fill(self, points):
        """p = (i / (I - 1)) ** 2, as Himeno starts, halo included."""
        first = offset(points[0], self.cart.dims[0], self.cart.coords[0])
        for i in range(self.shape[0] + 2):
            height = (first + i - 1) / max(1, points[0] - 1)
            value = max(0.0, height) ** 2
            for at in range(i * self.plane, (i + 1) * self.plane):
                self.old[at] = self.new[at] = value

    def sweep(self):
        """One Jacobi step; the sum of squared changes over this rank's points."""
        old, new, row, plane = self.old, self.new, self.row, self.plane
        gosa = 0.0
        for i in range(1, self.shape[0] + 1):
            for j in range(1, self.shape[1] + 1):
                start = i * plane + j * row + 1
                for at in range(start, start + self.shape[2]):
                    around = old[at - 1] + old[at + 1] + old[at - row] + old[at + row]
                    around += old[at - plane] + old[at + plane]
                    change = around * (1.0 / 6.0) - old[at]
                    gosa += change * change
                    new[at] = old[at] + OMEGA * change
        self.old, self.new = new, old
        return gosa

    def exchange(self):
        """Give each neighbour our outermost layer, and take its."""
        for axis in range(3):
            low, high = self.cart.Shift(axis, 1)
            last = self.shape[axis]
            self.pass_on(axis, send=last, to=high, put=0, source=low)
            self.pass_on(axis, send=1, to=low, put=last + 1, source=high)

    def pass_on(self, axis, send, to, put, source):
        outgoing = array("d", [self.old[at] for at in self.layer(axis, send)])
        incoming = array("d", bytes(8 * len(outgoing)))
        self.cart.Sendrecv([outgoing, MPI.DOUBLE], to, 0, [incoming, MPI.DOUBLE], source, 0)
        if source != MPI.PROC_NULL:
            for at, value in zip(self.layer(axis, put), incoming):  # noqa: B905
                self.old[at] = value

    def layer(self, axis, index):
        """Where the points of one layer across `axis` are."""
        ranges = [range(1, n + 1) for n in self.shape]
        ranges[axis] = range(index, index + 1)
        steps = (self.plane, self.row, 1)
        return [
            i * steps[0] + j * steps[1] + k
            for i in ranges[0] for j in ranges[1] for k in ranges[2]
        ]  # fmt: skip


def share(points, parts, part):
    return points // parts + (part < points % parts)


def offset(points, parts, part):
    return part * (points // parts) + min(part, points % parts)


def run(block, steps):
    """Seconds for so many steps, and the residual of the last."""
    world = block.cart
    world.Barrier()
    start = MPI.Wtime()
    gosa = 0.0
    for _ in range(steps):
        block.exchange()
        gosa = world.allreduce(block.sweep())
    return world.allreduce(MPI.Wtime() - start, op=MPI.MAX), gosa


def main():
    points = [int(word) for word in sys.argv[1:4]] or [24, 24, 24]
    limit = float(os.environ.get("STENCIL_SECONDS", "10"))
    world = MPI.COMM_WORLD
    cart = world.Create_cart(MPI.Compute_dims(world.Get_size(), 3))
    chief = cart.Get_rank() == 0

    def say(text=""):
        if chief:
            print(text, flush=True)

    say("Sequential version array size")
    say(f" mimax = {points[0]} mjmax = {points[1]} mkmax = {points[2]}")
    say("Parallel version array size")
    block = Block(cart, points)
    say(f" mimax = {block.shape[0] + 2} mjmax = {block.shape[1] + 2} mkmax = {block.shape[2] + 2}")
    say(f" imax = {block.shape[0]} jmax = {block.shape[1]} kmax = {block.shape[2]}")
    say(f" I-decomp = {cart.dims[0]} J-decomp = {cart.dims[1]} K-decomp = {cart.dims[2]}")
    if not chief:
        print(
            f"rank {cart.Get_rank()} at {cart.coords} has {block.shape} points",
            flush=True,
        )

    say(" Start rehearsal measurement process.")
    say(" Measure the performance in 3 times.")
    seconds, gosa = run(block, 3)
    flops = FLOPS_PER_POINT * points[0] * points[1] * points[2]
    say(f"  MFLOPS: {flops * 3 / seconds / 1e6:.6f} time(s): {seconds:.6f} {gosa:.6e}")

    steps = max(1, int(limit / (seconds / 3)))
    say(" Now, start the actual measurement process.")
    say(f" The loop will be executed in {steps} times.")
    say(f" This will take about {limit:g} seconds.")
    say(" Wait for a while.")
    total, done = 0.0, 0
    while done < steps:
        part = min(steps - done, max(1, steps // 10))
        seconds, gosa = run(block, part)
        total, done = total + seconds, done + part
        say(f"  {done:6d} of {steps}  {flops * part / seconds / 1e6:10.3f} MFLOPS  Gosa {gosa:.6e}")
    say(f"cpu : {total:f} sec.")
    say(f"Loop executed for {steps} times")
    say(f"Gosa : {gosa:.6e}")
    say(f"MFLOPS measured : {flops * steps / total / 1e6:.6f}")


if __name__ == "__main__":
    main()
