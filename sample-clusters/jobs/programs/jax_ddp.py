"""Data-parallel training of a small network on made-up data: gloo on CPUs, NCCL on GPUs."""

import argparse
import os
import platform

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    # The coordinator's address, and on GPUs the device, it reads from JAX_* by itself.
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )
    rank, size = jax.process_index(), jax.process_count()
    kind = jax.local_devices()[0].platform
    print(
        f"rank {rank} of {size} on {platform.node()}, {jax.device_count()} {kind} devices",
        flush=True,
    )
    train(rank, options.steps, options.batch)
    jax.distributed.shutdown()
    print(f"rank {rank} is done", flush=True)


def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    first, second = weights
    return jnp.mean((jnp.tanh(x @ first) @ second - jnp.sin(x.sum(1, keepdims=True) / 2)) ** 2)


@jax.jit
def step_once(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """One step of gradient descent on the samples of all processes."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, x)
    return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)], loss


def train(rank: int, steps: int, batch: int) -> None:
    """Learn y = sin(sum x / 2); every process draws its own samples."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    shared = NamedSharding(mesh, PartitionSpec())
    apart = NamedSharding(mesh, PartitionSpec("data"))
    same = np.random.default_rng(0)
    weights = [
        jax.make_array_from_process_local_data(shared, same.normal(0, 0.3, shape).astype("float32"))
        for shape in ((8, 64), (64, 1))
    ]
    own = np.random.default_rng(1 + rank)
    local = batch * jax.local_device_count()
    for step in range(1, steps + 1):
        drawn = own.normal(size=(local, 8)).astype("float32")
        weights, loss = step_once(weights, jax.make_array_from_process_local_data(apart, drawn))
        if step % 10 == 0 or step == steps:
            print(f"step {step:5d}  loss {float(loss):.5f}", flush=True)


if __name__ == "__main__":
    main()
