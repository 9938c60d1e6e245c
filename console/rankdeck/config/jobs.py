"""Job files: what to run, on how many nodes, in which image; changes to
single values (`--set`, the launch form).
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rankdeck import plugins
from rankdeck.config import document
from rankdeck.config.command_text import command_complaint, split_command
from rankdeck.config.document import Entry, finish_document, load_document, read_text, take_text
from rankdeck.config.files import expand_path
from rankdeck.config.foreign_files import JOB_FILE, foreign_named
from rankdeck.config.schedulers import section_names, section_reader
from rankdeck.config.user import may_read, require_trust
from rankdeck.errors import ConfigError, suggest_or_list
from rankdeck.model.capabilities import SCHEDULED
from rankdeck.model.job_spec import (
    CLAIM,
    GPUS,
    Abort,
    Container,
    JobSpec,
    Launch,
    MpiOptions,
    TorchOptions,
)
from rankdeck.model.nodeset import expand_nodes, fold_nodes
from rankdeck.model.patterns import BadPatternError, compile_pattern
from rankdeck.schedulers.kubernetes.user_manifests import manifest_named
from rankdeck.values import replace
from rankdeck_agent.wire.run_folder import RANK_PREFIX, RESERVED

KEYS = (
    "job", "launch", "command", "nodes", "on", "ranks_per_node", "env", "workdir", "files",
    "container", "mpi", "torch", "grace", "abort", "tty", *SCHEDULED,
    "progress",
)  # fmt: skip
SAME_RUNTIME = {"pyxis": "enroot"}
"""Other name of a runtime -> its name: on Slurm, Pyxis is the srun plug-in that starts Enroot."""
_OF_SLURM = (
    "partition", "account", "qos", "time", "gres", "gpus", "mem", "constraint", "reservation",
    "exclusive", "nodelist", "exclude", "array",
)  # fmt: skip
_OF_CONTAINER = ("image", "runtime", "mounts", "gpu")
_REQUIRED = {
    "job": "a name for it",
    "launch": f"{', '.join(tuple(Launch)[:-1])} or {tuple(Launch)[-1]}",
    "command": "the program that each rank runs",
}
"""Key -> what it is."""
_ELSEWHERE = {
    **{key: f"`{key}` belongs into `container:`" for key in _OF_CONTAINER},
    **{key: f"`{key}` belongs into `slurm:`" for key in _OF_SLURM},
    "namespace": "`namespace` belongs into `kubernetes:`",
    "args": "`args` belongs into `mpi:`, `torch:` or `container:`",
}
"""Key that is known, but not at the top -> where it belongs."""
CONTAINER_KEYS = ("runtime", "image", "mounts", "gpu", "workdir", "args")
MPI_KEYS = ("flavour", "path", "args", "launcher")
FLAVOURS = ("openmpi5", "openmpi4", "mpich")
LAUNCHERS = ("rankdeck", "ssh")
TORCH_KEYS = ("path", "port", "args")
ABORT_KEYS = ("enabled", "countdown")
FILE_LIMIT = 1 << 20
MOST_PATTERNS = 12
_TO_NODES = " and lays it on the nodes"
_NO_HOME = "only a shell makes `~` the home folder, and none reads this: write the whole path"
_NO_FOLDER = "relative to no folder that a node has: write the whole path"


def read_job(path: Path) -> JobSpec:
    """The job in `path`; raises ConfigError with every mistake, UntrustedError without consent."""
    with manifest_named(path), foreign_named(path, JOB_FILE):
        root = load_document(path)
        spec = job_from(root)
        require_trust(root)
        finish_document(root)
    return spec


def job_from(root: Entry) -> JobSpec:
    """The job that a document describes; mistakes are in `root.problems`."""
    table = root.section(KEYS, _REQUIRED, _ELSEWHERE)
    launch = Launch(_choice(table, "launch", tuple(Launch), Launch.PLAIN.value))
    on = _on(table["on"]) if "on" in table else ()
    return JobSpec(
        name=document.read_name(table["job"]) if "job" in table else "",
        launch=launch,
        command=_command(table["command"], launch) if "command" in table else (),
        nodes=_nodes(table, on),
        on=on,
        ranks_per_node=_ranks_per_node(table, launch),
        env=document.read_variables(table["env"]) if "env" in table else {},
        workdir=take_text(table, "workdir"),
        files=_files(table["files"], root) if "files" in table else {},
        container=_container(table["container"]) if "container" in table else None,
        mpi=_mpi(table["mpi"], launch) if "mpi" in table else MpiOptions(detect=True),
        torch=_torch(table["torch"], launch) if "torch" in table else TorchOptions(),
        grace=table["grace"].number(10, most=86400) if "grace" in table else 10.0,
        abort=_abort(table.get("abort"), launch),
        tty=table["tty"].truth(default=True) if "tty" in table else True,
        options=_options(table),
        progress=_progress(table["progress"]) if "progress" in table else {},
        file=root.file,
    )


def _choice(table: Mapping[str, Entry], key: str, known: tuple[str, ...], default: str) -> str:
    return table[key].choice(known, default) if key in table else default


def _on(entry: Entry) -> tuple[str, ...]:
    """Node names, from a node set or a list of them; a list keeps its order."""
    sets = list(entry.items()) if entry.kind == "seq" else [entry]
    found = tuple(name for item in sets for name in document.read_node_names(item))
    if not found and entry.kind in ("seq", "str") and not entry.raw:
        entry.report("is empty; leave it out to use the first nodes of the cluster")
    if len(set(found)) < len(found):
        entry.report("names a node twice")
    return found


def _nodes(table: Mapping[str, Entry], on: tuple[str, ...]) -> int:
    """Number of nodes: `nodes`, else the number of names in `on`, else 1."""
    if "nodes" not in table:
        return len(on) or 1
    entry = table["nodes"]
    if entry.kind == "seq" or (entry.kind == "str" and not entry.raw.isdigit()):
        entry.report("is how many nodes; which ones stands in `on`: `on: n[1-4]`")
        return len(on) or 1
    count = entry.integer(1, least=1, most=100_000)
    if on and count != len(on):
        table["nodes"].report(f"{count} nodes, but `on` names {len(on)}; leave one of them out")
    return count


def _ranks_per_node(table: Mapping[str, Entry], launch: Launch) -> int:
    if "ranks_per_node" not in table:
        return 0
    entry = table["ranks_per_node"]
    count = entry.integer(0, most=65536)
    if launch is Launch.TENSORFLOW and count > 1:
        entry.report("tensorflow runs one rank per node; leave it out")
    return count


def _command(entry: Entry, launch: Launch) -> tuple[str, ...]:
    """The words of a command: a list, or one text split as a shell would."""
    words = entry.words() if entry.kind == "seq" else _split(entry)
    if not words and (entry.kind == "seq" or (entry.kind == "str" and not entry.raw.strip())):
        entry.report("is empty")
    if why := command_complaint(words, launch):
        entry.report(why)
    return words


def _split(entry: Entry) -> tuple[str, ...]:
    if entry.kind != "str":
        entry.expected("a list of words, or text")
        return ()
    try:
        return split_command(entry.text())
    except ValueError as error:
        entry.report(str(error))
        return ()


# ---- files ------------------------------------------------------------------------------


def _files(entry: Entry, root: Entry) -> dict[str, str]:
    folder = Path(root.file).parent
    files: dict[str, str] = {}
    for name, value in entry.fields().items():
        if _is_file_name(value, name):
            files[name] = _file_text(value, folder)
    return files


def _is_file_name(entry: Entry, name: str) -> bool:
    path = PurePosixPath(name)
    first = path.parts[0] if path.parts else ""
    if path.is_absolute() or not first or ".." in path.parts or not name.isprintable():
        entry.report(f"`{name[:60]}` is not a path inside the run folder")
        return False
    if first in RESERVED or first.startswith(RANK_PREFIX):
        entry.report(f"`{first[:60]}` is a name that Rankdeck uses itself")
        return False
    return True


def _file_text(entry: Entry, folder: Path) -> str:
    if entry.kind != "map":
        return entry.text()
    table = entry.section(("from",), ("from",))
    source = take_text(table, "from")
    if not source or not may_read(table["from"], source, folder, _TO_NODES):
        return ""
    try:
        return read_text(folder / expand_path(source), FILE_LIMIT)
    except ConfigError as error:
        table["from"].report(f"{source}: {error.problems[0].text}")
        return ""


# ---- sections ---------------------------------------------------------------------------


def _container(entry: Entry) -> Container:
    if entry.kind == "str":
        entry.report(f"expected a table: `container: {{image: {entry.raw[:60]}}}`")
        return Container(image="", runtime="apptainer")
    table = entry.section(CONTAINER_KEYS, ("image",))
    image = _path(table, "image")
    if "image" in table and table["image"].kind == "str" and (not image or image.startswith("-")):
        table["image"].report("is not the name of an image")
    runtimes = tuple(name for name in plugins.plugin_names("runtimes") if name != "none")
    runtime = _choice(table, "runtime", (*runtimes, *SAME_RUNTIME), "apptainer")
    return Container(
        image=image,
        runtime=SAME_RUNTIME.get(runtime, runtime),
        mounts=_mounts(table["mounts"]) if "mounts" in table else (),
        gpu=_gpu(table["gpu"]) if "gpu" in table else "",
        workdir=take_text(table, "workdir"),
        args=table["args"].words() if "args" in table else (),
    )


def _path(table: Mapping[str, Entry], key: str) -> str:
    """The text under `key`, which programs on the nodes take as it stands."""
    text = take_text(table, key)
    if text.startswith("~"):
        table[key].report(f"`{text[:80]}`: {_NO_HOME}")
    return text


def _gpu(entry: Entry) -> str:
    """Vendor of the GPUs; `true` means nvidia."""
    if entry.kind == "bool":
        return GPUS[0] if entry.truth() else ""
    return entry.choice(GPUS)


def _mounts(entry: Entry) -> tuple[str, ...]:
    return tuple(filter(None, (_mount(item) for item in entry.items())))


def _mount(entry: Entry) -> str:
    text = entry.text()
    source, *rest = text.removeprefix(CLAIM).split(":")
    target, mode = [*rest, "", ""][:2]
    wrong = len(rest) not in (1, 2) or (len(rest) == 2 and mode not in ("ro", "rw"))
    if entry.kind == "str" and (wrong or not source or not target.startswith(("/", "$"))):
        entry.report(f"`{text[:80]}` is not a mount; write source:/target or source:/target:ro")
        return ""
    if source.startswith(("~", "./", "../")):
        entry.report(f"`{source[:80]}`: {_NO_HOME if source[0] == '~' else _NO_FOLDER}")
        return ""
    return text


def _belongs(entry: Entry, launch: Launch, owner: Launch) -> None:
    if launch is not owner:
        entry.report(f"has no effect with `launch: {launch}`")


def _args(table: Mapping[str, Entry]) -> tuple[str, ...]:
    return table["args"].words() if "args" in table else ()


def _mpi(entry: Entry, launch: Launch) -> MpiOptions:
    _belongs(entry, launch, Launch.MPI)
    table = entry.section(MPI_KEYS)
    return MpiOptions(
        flavour=_choice(table, "flavour", FLAVOURS, "openmpi5"),
        detect="flavour" not in table,
        path=_path(table, "path") or "mpirun",
        args=_args(table),
        launcher=_choice(table, "launcher", LAUNCHERS, "rankdeck"),
    )


def _torch(entry: Entry, launch: Launch) -> TorchOptions:
    _belongs(entry, launch, Launch.TORCHRUN)
    table = entry.section(TORCH_KEYS)
    port = table["port"].integer(0, most=65535) if "port" in table else 0
    return TorchOptions(path=_path(table, "path") or "torchrun", port=port, args=_args(table))


def _abort(entry: Entry | None, launch: Launch) -> Abort:
    """The gang abort; enabled by default except for `launch: plain`, whose
    ranks need not wait for each other.
    """
    usual = Abort(enabled=launch is not Launch.PLAIN)
    if entry is None:
        return usual
    if entry.kind == "bool":
        return Abort(enabled=entry.truth())
    table = entry.section(ABORT_KEYS)
    enabled = table["enabled"].truth(default=usual.enabled) if "enabled" in table else True
    seconds = table["countdown"].number(10, most=86400) if "countdown" in table else 10.0
    return Abort(enabled=enabled, countdown=seconds)


def _progress(entry: Entry) -> dict[str, str]:
    """Name of a number -> pattern that finds it in the output."""
    patterns: dict[str, str] = {}
    if entry.kind == "map" and len(entry.node.value) > MOST_PATTERNS:
        entry.report(f"has more than {MOST_PATTERNS} patterns")
        return patterns
    for name, value in entry.fields().items():
        text = value.text()
        try:
            groups = compile_pattern(text).groups
        except BadPatternError as error:
            value.report(str(error))
            continue
        if text and not groups:
            value.report("has no group; put the number in brackets: `loss=([\\d.]+)`")
        patterns[name] = text
    return patterns


def _options(table: Mapping[str, Entry]) -> dict[str, str]:
    """`slurm: {time: …}` becomes `slurm.time`, so that one file serves several backends."""
    return {
        f"{section}.{key}": value
        for section in section_names()
        if section in table
        for key, value in section_reader(section)(table[section], job=True).items()
    }


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


def _arguments(text: str) -> tuple[str, ...]:
    return tuple(shlex.split(text))


def _image(text: str) -> str:
    if not text or text.startswith("-"):
        raise ValueError("is not the name of an image")
    return text


_FIELDS: Mapping[str, Callable[[str], Any]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "grace": _seconds,
    "workdir": str,
}
_OF_SECTIONS: Mapping[str, Callable[[str], Any]] = {
    "mpi.args": _arguments,
    "torch.args": _arguments,
    "container.image": _image,
    "container.args": _arguments,
}
"""`SECTION.KEY` -> how its value is read."""


def change_value(spec: JobSpec, key: str, value: str) -> JobSpec:
    """The job with one value changed (`--set KEY=VALUE`); raises ValueError with a sentence."""
    if key.startswith("env.") and key[4:].isidentifier():
        return replace(spec, env={**spec.env, key[4:]: value})
    if key in _OF_SECTIONS:
        return _change_section(spec, key, value)
    if key == "command":
        return _command_changed(spec, value)
    if key not in _FIELDS:
        known = (*_FIELDS, "command", *_OF_SECTIONS, "env.NAME")
        hint = suggest_or_list(key, known)
        raise ValueError(f"`{key}` cannot be set here{hint}")
    return replace(spec, **{key: _FIELDS[key](value)})


def _change_section(spec: JobSpec, key: str, value: str) -> JobSpec:
    section, _, name = key.partition(".")
    if section == "container" and spec.container is None:
        raise ValueError("the job has no container")
    if section in ("mpi", "torch") and spec.launch is not _OWNERS[section]:
        raise ValueError(f"has no effect with `launch: {spec.launch}`")
    return replace(
        spec, **{section: replace(getattr(spec, section), **{name: _OF_SECTIONS[key](value)})}
    )


_OWNERS = {"mpi": Launch.MPI, "torch": Launch.TORCHRUN}


def on_nodes(spec: JobSpec, nodeset: str) -> JobSpec:
    """The job on the nodes of this node set; "" removes the choice of nodes. Raises ValueError."""
    names = expand_nodes(nodeset) if nodeset.strip() else ()
    return replace(spec, on=names, nodes=len(names) or spec.nodes)


def form_of(spec: JobSpec) -> dict[str, str]:
    """Field of the launch form -> its present value as text."""
    return {
        "nodes": str(spec.nodes),
        "ranks_per_node": str(spec.ranks_per_node or ""),
        "on": fold_nodes(spec.on) if spec.on else "",
        "command": shlex.join(spec.command),
        "env": shlex.join(f"{key}={value}" for key, value in spec.env.items()),
    }


def fill_form(spec: JobSpec, form: Mapping[str, str]) -> JobSpec:
    """The job with the values of the launch form; only changed fields are applied.

    Raises ValueError.
    """
    before = form_of(spec)
    for key, value in form.items():
        if value == before[key]:
            continue
        try:
            spec = _FORM[key](spec, value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    return spec


def _env_changed(spec: JobSpec, text: str) -> JobSpec:
    pairs = [word.partition("=") for word in shlex.split(text)]
    if wrong := [name for name, _, _ in pairs if not name.isidentifier()]:
        raise ValueError(f"`{wrong[0]}` is not NAME=VALUE")
    return replace(spec, env={name: value for name, _, value in pairs})


def _command_changed(spec: JobSpec, text: str) -> JobSpec:
    words = split_command(text)
    why = command_complaint(words, spec.launch) if words else "is empty"
    if why:
        raise ValueError(why)
    return replace(spec, command=words)


_FORM: Mapping[str, Callable[[JobSpec, str], JobSpec]] = {
    "nodes": lambda spec, text: replace(spec, nodes=_count(text), on=()),
    "ranks_per_node": lambda spec, text: replace(spec, ranks_per_node=_count(text or "0")),
    "on": on_nodes,
    "command": _command_changed,
    "env": _env_changed,
}
