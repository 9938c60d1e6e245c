"""What a container runtime is: a way to write a longer command."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from rankdeck.model.job import Container, Launch


class Runtime(Protocol):
    """Turns a rank's command into one that runs inside an image."""

    name: ClassVar[str]

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """The command to run on the host; `env` is what the job sets, to be passed in.

        No value of `env` may stand in the command: everybody on the node can read it.
        """
        ...

    def variables(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """What must be set besides `env`, where the command starts, for it to arrive inside."""
        ...

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """`--mca NAME VALUE …` that mpirun of this flavour needs for ranks in such containers."""
        ...
