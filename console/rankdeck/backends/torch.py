"""torchrun jobs: one torchrun per node, static rendezvous on the first node's address.

Torch is in the image where there is one: torchrun runs in a container per node, and starts the
shim there, through the run folder that every container sees.
"""

from dataclasses import replace

from rankdeck.backends.layout import Layout, Place, interface_env
from rankdeck.backends.tokens import PORT_TOKEN, SHIM
from rankdeck_agent.wire import RUN_TOKEN, NodePlan, ProcessPlan


def plan_torch(layout: Layout) -> tuple[NodePlan, ...]:
    """A torchrun on every node."""
    return tuple(_node(layout, place) for place in layout.places)


def _node(layout: Layout, place: Place) -> NodePlan:
    process = ProcessPlan(
        name="torchrun",
        argv=layout.wrapped(torchrun_argv(layout, place)),
        env={"TORCHELASTIC_ERROR_FILE": f"{RUN_TOKEN}/torch-error.json"},
        cwd=layout.spec.workdir,
    )
    return replace(layout.node_plan(place, interface_env(place.node)), processes=(process,))


def torchrun_argv(layout: Layout, place: Place) -> tuple[str, ...]:
    """The torchrun command of one node: static, so that rank and node are what the plan says."""
    torch = layout.spec.torch
    local = (f"--local-addr={place.node.address}",) if place.node.address else ()
    return (
        torch.path,
        f"--nnodes={len(layout.places)}",
        f"--nproc-per-node={len(place.ranks)}",
        f"--node-rank={place.index}",
        f"--master-addr={layout.places[0].node.host}",
        f"--master-port={torch.port or PORT_TOKEN}",
        *local,
        "--max-restarts=0",
        *torch.args,
        "--no-python",
        SHIM,
        *script_command(layout.spec.command),
    )


def script_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """`train.py …` made a command, as torchrun without --no-python would."""
    return ("python3", "-u", *command) if command[0].endswith(".py") else command
