"""What the command line changes in a job file: `--on` and `--set`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rankdeck.cli.codes import UsageError
from rankdeck.config.document import suggest
from rankdeck.model.job import JobSpec
from rankdeck.model.nodeset import expand


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("a negative number")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 86400:
        raise ValueError("not within a day")
    return number


_FIELDS: Mapping[str, Callable[[str], Any]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "grace": _seconds,
    "workdir": str,
}


def override(spec: JobSpec, on: str, changes: Sequence[str]) -> JobSpec:
    """The job with what the command line says instead; raises UsageError."""
    if on:
        try:
            names = expand(on)
        except ValueError as error:
            raise UsageError(f"--on {on}: {error}") from error
        spec = replace(spec, on=names, nodes=len(names))
    for change in changes:
        spec = _changed(spec, change)
    return spec


def _changed(spec: JobSpec, change: str) -> JobSpec:
    key, equals, value = change.partition("=")
    if not equals:
        raise UsageError(f"--set {change}: write KEY=VALUE")
    if key.startswith("env.") and key[4:].isidentifier():
        return replace(spec, env={**spec.env, key[4:]: value})
    if key not in _FIELDS:
        known = (*_FIELDS, "env.NAME")
        hint = suggest(key, known) or f"; there are: {', '.join(known)}"
        raise UsageError(f"--set {change}: `{key}` cannot be set here{hint}")
    try:
        return replace(spec, **{key: _FIELDS[key](value)})
    except ValueError as error:
        raise UsageError(f"--set {change}: {error}") from error
