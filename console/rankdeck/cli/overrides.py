"""What the command line changes in a job file: `--on` and `--set`."""

from collections.abc import Sequence

from rankdeck.cli.codes import UsageError
from rankdeck.config.changes import changed, on_nodes
from rankdeck.model.job import JobSpec


def override(spec: JobSpec, on: str, changes: Sequence[str]) -> JobSpec:
    """The job with what the command line says instead; raises UsageError."""
    if on:
        try:
            spec = on_nodes(spec, on)
        except ValueError as error:
            raise UsageError(f"--on {on}: {error}") from error
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"--set {change}: write KEY=VALUE")
        try:
            spec = changed(spec, key, value)
        except ValueError as error:
            raise UsageError(f"--set {change}: {error}") from error
    return spec
