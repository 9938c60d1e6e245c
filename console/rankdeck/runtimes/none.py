"""No container: the command as it is."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.model.job import Container, Launch


class Bare:
    """Runs a rank on the host."""

    name: ClassVar[str] = "none"

    def wrap(
        self,
        argv: Sequence[str],
        container: Container,
        env: Mapping[str, str],
        launch: Launch,
    ) -> tuple[str, ...]:
        """The command itself; the host's environment is the job's already."""
        return tuple(argv)

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Nothing: the program has the environment of its process."""
        return {}

    def launcher_args(self, flavour: str) -> tuple[str, ...]:
        """Nothing."""
        return ()
