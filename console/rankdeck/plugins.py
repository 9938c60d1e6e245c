"""Find a backend or runtime by name, importing only that one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankdeck.errors import UnknownPluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

BACKENDS = {
    "ssh": "rankdeck.backends.ssh:SshBackend",
    "slurm": "rankdeck.backends.slurm:SlurmBackend",
    "kubernetes": "rankdeck.backends.kubernetes:KubernetesBackend",
}
RUNTIMES = {
    "none": "rankdeck.runtimes:Bare",
    "apptainer": "rankdeck.runtimes:Apptainer",
    "singularity": "rankdeck.runtimes:Singularity",
    "podman": "rankdeck.runtimes:Podman",
    "docker": "rankdeck.runtimes:Docker",
    "enroot": "rankdeck.runtimes:Enroot",
}
_TABLES = {"backends": BACKENDS, "runtimes": RUNTIMES}


def names(kind: str) -> tuple[str, ...]:
    """The names known for "backends" or "runtimes", other packages' included."""
    extra = (point.name for point in _points(kind))
    return tuple(dict.fromkeys((*_TABLES[kind], *extra)))


def find(kind: str, name: str) -> Any:  # noqa: ANN401 - the caller knows the Protocol
    """The class registered as `name`; raises UnknownPluginError."""
    target = _TABLES[kind].get(name)
    if target is not None:
        module, attribute = target.split(":")
        return getattr(import_module(module), attribute)
    for point in _points(kind):
        if point.name == name:
            return point.load()
    known = ", ".join(names(kind))
    raise UnknownPluginError(f"no {kind[:-1]} `{name}`; there are: {known}")


def _points(kind: str) -> "EntryPoints":
    """What other packages offer; reading that of all packages is slow."""
    from importlib.metadata import entry_points

    return entry_points(group=f"rankdeck.{kind}")
