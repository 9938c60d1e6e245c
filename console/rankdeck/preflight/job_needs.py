"""What a job needs on its nodes: programs, modules, names."""

import ast
import sys
from collections.abc import Iterable
from ipaddress import ip_address

from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.runtimes import find_runtime
from rankdeck_agent.wire import RUN_TOKEN


def programs_of(spec: JobSpec) -> tuple[str, ...]:
    """Commands that must be on every node: the launcher, and the
    program if it is not in an image.
    """
    launcher = {Launch.MPI: spec.mpi.path, Launch.TORCHRUN: spec.torch.path}
    # If there is an image, torchrun is in it.
    outside = spec.launch is Launch.MPI or spec.container is None
    names = [launcher.get(spec.launch, "") if outside else ""]
    names += (
        own_files(spec)
        if spec.container is None
        else [find_runtime(spec.container.runtime).program]
    )
    return tuple(name for name in dict.fromkeys(names) if name)


def modules_of(spec: JobSpec) -> tuple[str, ...]:
    """`python3 numpy`: top-level modules that the job's own Python programs
    import, if they do not run in an image.
    """
    python = spec.command[0]
    boxed = spec.container is not None
    if boxed or not python.rpartition("/")[2].startswith("python") or "PYTHONPATH" in spec.env:
        return ()
    own = {name.removesuffix(".py") for name in spec.files}
    used = {
        name for file, text in spec.files.items() if file.endswith(".py") for name in _imports(text)
    }
    return tuple(f"{python} {name}" for name in sorted(used - own - sys.stdlib_module_names))


def _imports(text: str) -> Iterable[str]:
    """Top-level modules that this program needs; none if it is not Python."""
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for line in lines:
        if isinstance(line, ast.Import):
            yield from (one.name.partition(".")[0] for one in line.names)
        elif isinstance(line, ast.ImportFrom) and line.module and not line.level:
            yield line.module.partition(".")[0]


def own_files(spec: JobSpec) -> list[str]:
    """The program, and the script after an interpreter, unless the job brings them along."""
    words = [spec.command[0]]
    words += [word for word in spec.command[1:3] if word.endswith(".py")][:1]
    return [word for word in words if RUN_TOKEN not in word]


def needs_names(spec: JobSpec) -> bool:
    """Whether ranks find other nodes by the host names of the cluster file."""
    return spec.launch in (Launch.TORCHRUN, Launch.TENSORFLOW, Launch.JAX)


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
