"""Changes single values of a job: `--set`, and the form of the launch screen."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rankdeck.config.document import suggest
from rankdeck.model.job import JobSpec
from rankdeck.model.nodeset import expand, fold


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"`{text}` is not a whole number from 0 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"`{text}` is not a number of seconds") from error
    if not 0 <= number <= 86400:
        raise ValueError("not within a day")
    return number


_FIELDS: Mapping[str, Callable[[str], Any]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "grace": _seconds,
    "workdir": str,
}


def changed(spec: JobSpec, key: str, value: str) -> JobSpec:
    """The job with one value changed; raises ValueError with a sentence."""
    if key.startswith("env.") and key[4:].isidentifier():
        return replace(spec, env={**spec.env, key[4:]: value})
    if key not in _FIELDS:
        known = (*_FIELDS, "env.NAME")
        hint = suggest(key, known) or f"; there are: {', '.join(known)}"
        raise ValueError(f"`{key}` cannot be set here{hint}")
    return replace(spec, **{key: _FIELDS[key](value)})


def on_nodes(spec: JobSpec, nodeset: str) -> JobSpec:
    """The job on these nodes; "" lets the cluster choose. Raises ValueError."""
    names = expand(nodeset) if nodeset.strip() else ()
    return replace(spec, on=names, nodes=len(names) or spec.nodes)


def form_of(spec: JobSpec) -> dict[str, str]:
    """What the launch screen lets one change, as text."""
    return {
        "nodes": str(spec.nodes),
        "ranks_per_node": str(spec.ranks_per_node or ""),
        "on": fold(spec.on) if spec.on else "",
        "command": shlex.join(spec.command),
        "env": shlex.join(f"{key}={value}" for key, value in spec.env.items()),
    }


def filled(spec: JobSpec, form: Mapping[str, str]) -> JobSpec:
    """The job as the form has it; only what differs is touched. Raises ValueError."""
    before = form_of(spec)
    for key, value in form.items():
        if value == before[key]:
            continue
        try:
            spec = _FORM[key](spec, value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    return spec


def _env(spec: JobSpec, text: str) -> JobSpec:
    pairs = [word.partition("=") for word in shlex.split(text)]
    if wrong := [name for name, _, _ in pairs if not name.isidentifier()]:
        raise ValueError(f"`{wrong[0]}` is not NAME=VALUE")
    return replace(spec, env={name: value for name, _, value in pairs})


def _command(spec: JobSpec, text: str) -> JobSpec:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("is empty")
    return replace(spec, command=words)


_FORM: Mapping[str, Callable[[JobSpec, str], JobSpec]] = {
    "nodes": lambda spec, text: replace(spec, nodes=_count(text), on=()),
    "ranks_per_node": lambda spec, text: replace(spec, ranks_per_node=_count(text or "0")),
    "on": on_nodes,
    "command": _command,
    "env": _env,
}
