"""Checks of a job (its file, launcher, program, MPI, image) and of its nodes (clocks,
cores, memory, disks, names, GPUs, telemetry).
"""

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import PurePath

from rankdeck.images.bring import describe_versions, push_command
from rankdeck.model.cluster import Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.preflight.check_network import check_overridden
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Change, Finding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext, findings_for_each
from rankdeck.preflight.job_needs import is_address, modules_of, needs_names, own_files, programs_of
from rankdeck.rules.head_clock import REMEDY, describe_head_clock, seconds_behind
from rankdeck.rules.messages import explain_end
from rankdeck.runtimes import find_runtime
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.table import LET_GO
from rankdeck_agent.rules.units import write_duration, write_size

_PLACING = {
    "-np": 1, "-n": 1, "--np": 1, "-c": 1, "-N": 1, "--hostfile": 1, "-hostfile": 1, "--machinefile": 1,
    "-machinefile": 1, "--host": 1, "-host": 1, "-H": 1, "--map-by": 1, "-map-by": 1, "-ppn": 1, "-f": 1,
    "--npernode": 1, "-npernode": 1, "--pernode": 0, "-pernode": 0, "--bynode": 0, "-bynode": 0,
    "--rankfile": 1, "-rankfile": 1, "-rf": 1,
}  # fmt: skip
"""Arguments that contradict the plan on where ranks run -> how many words follow each."""


def _by_slot(word: str, rest: Sequence[str]) -> bool:
    """Whether this option maps ranks by slot, as the plan does."""
    name, equals, value = word.partition("=")
    return name.lstrip("-") == "map-by" and (value if equals else "".join(rest[:1])) == "slot"


def check_arguments(spec: JobSpec) -> Iterable[Finding]:
    """Report arguments of mpirun that contradict the plan."""
    words, kept = list(spec.mpi.args), list[str]()
    twice: list[str] = []
    while spec.launch is Launch.MPI and words:
        word = words.pop(0)
        if _by_slot(word, words):
            kept.append(word)
            continue
        if (count := _PLACING.get(word.partition("=")[0])) is None:
            kept.append(word)
            continue
        twice.append(word)
        del words[: 0 if "=" in word else count]
    if twice:
        yield make_finding(
            Level.BAD,
            "arguments",
            "",
            f"`mpi.args` has {', '.join(twice)}, but the plan already places the ranks",
            "take it out; `nodes`, `on` and `ranks_per_node` say the same",
            Change("mpi.args", kept),
        )


def check_vader(spec: JobSpec) -> Iterable[Finding]:
    """Report a parameter that Open MPI 5 no longer has, and ignores silently."""
    args = list(spec.mpi.args)
    name = "btl_vader_single_copy_mechanism"
    if spec.launch is Launch.MPI and spec.mpi.flavour == "openmpi5" and name in args:
        at = args.index(name)
        changed = [*args[: max(0, at - 1)], "--mca", "smsc", "^cma", *args[at + 2 :]]
        yield make_finding(
            Level.WARN,
            "arguments",
            "",
            f"`{name}` is a parameter of Open MPI 4: Open MPI 5 ignores it",
            "write `--mca smsc ^cma` instead",
            Change("mpi.args", changed),
        )


def check_environment(spec: JobSpec) -> Iterable[Finding]:
    """Report a container that would start without the variables that tell a rank its number."""
    box = spec.container
    if box is None or spec.launch is not Launch.MPI:
        return
    shuts_out = find_runtime(box.runtime).shuts_out
    if hit := [word for word in box.args if word in shuts_out]:
        kept = [word for word in box.args if word not in shuts_out]
        yield make_finding(
            Level.BAD,
            "environment",
            "",
            f"`container.args` has {', '.join(hit)}: the launcher's variables do not get in, every"
            " rank would be rank 0 of 1",
            "take it out",
            Change("container.args", kept),
        )


def check_noise(spec: JobSpec) -> Iterable[Finding]:
    """Report debugging output that was left on."""
    level = spec.env.get("NCCL_DEBUG", "")
    if level.upper() == "TRACE":
        yield make_finding(
            Level.WARN,
            "environment",
            "",
            f"NCCL_DEBUG={level} writes thousands of lines a second and slows the job",
            "WARN is enough to be told of errors",
            Change("env.NCCL_DEBUG", "WARN"),
        )


CHECKS = (check_arguments, check_vader, check_environment, check_noise, check_overridden)


def check_job_file(spec: JobSpec) -> list[Finding]:
    """The findings of all checks that need only the job file."""
    return [finding for check in CHECKS for finding in check(spec)]


_FLAVOURS = (
    (re.compile(r"\(Open MPI\) 5\.|prterun|PRRTE", re.IGNORECASE), "openmpi5"),
    (re.compile(r"\(Open MPI\) [1-4]\.", re.IGNORECASE), "openmpi4"),
    (re.compile(r"HYDRA|MPICH|Intel\(R\) MPI", re.IGNORECASE), "mpich"),
)
_SERIES = re.compile(r"\d+\.\d+")


def check_programs(case: JobContext) -> Iterable[Finding]:
    """Report a launcher, runtime or program that is missing on some node."""
    for name in programs_of(case.spec):
        refused = [
            p.node.name for p, f in case.answered if name in f.programs and f.programs[name].refused
        ]
        if refused:
            yield _not_allowed(name, refused)
        without = [
            p.node.name
            for p, f in case.answered
            if f.has(name) is False and p.node.name not in refused
        ]
        if not without:
            continue
        everywhere = len(without) == len(case.answered)
        text = f"no `{name}` on {'any' if everywhere else 'this'} node"
        yield make_finding(
            Level.BAD,
            "program",
            fold_nodes(without),
            text,
            _how_to_get(case, name, without),
            *_other_runtime(case, name),
        )


def _not_allowed(name: str, nodes: Sequence[str]) -> Finding:
    """The finding for a program that is there, and that this user may not run."""
    what, mode = ("readable", "+r") if name.endswith(".py") else ("executable", "+x")
    text = f"`{name}` is there, but not {what}"
    fix = f"`chmod {mode} {shlex.quote(name)}` there, or ask its owner"
    return make_finding(Level.BAD, "program", fold_nodes(nodes), text, fix)


def check_modules(case: JobContext) -> Iterable[Finding]:
    """Report a Python package that the program imports and that is missing on some node."""
    for word in modules_of(case.spec):
        python, _, name = word.rpartition(" ")
        if without := [p.node.name for p, f in case.answered if f.modules.get(word) is False]:
            yield make_finding(
                Level.BAD,
                "modules",
                fold_nodes(without),
                f"no `{name}` for {python}: the program imports it",
                f"`{python} -m pip install {name}` there, name the Python of an environment that"
                " has it, or use a container",
            )


def _how_to_get(case: JobContext, name: str, nodes: Sequence[str]) -> str:
    spec = case.spec
    key = {spec.mpi.path: "mpi.path", spec.torch.path: "torch.path"}.get(name)
    if spec.container is not None and name == find_runtime(spec.container.runtime).program:
        return f"install {name} there, or change `container.runtime`"
    if key is not None:
        return f"install it there, set `{key}` to its full path, or PATH in the cluster file's `environment`"
    if name in case.programs_here:
        copied = f"rankdeck cp {shlex.quote(name)} {fold_nodes(nodes)}:{shlex.quote(name)}"
        return f"it is on this machine only: `{copied}`, or bring it with `files`"
    if (file := PurePath(name).name) in spec.files:
        return f"`files` puts it into the folder of the run: write `${{RANKDECK_RUN}}/{file}`"
    where = "a path from `workdir` or home" if "/" in name else "a command in PATH"
    return f"put it there ({where}), or bring it with `files`"


def _other_runtime(case: JobContext, name: str) -> tuple[Change, ...]:
    box = case.spec.container
    if box is None or name != (runtime := find_runtime(box.runtime)).program or not runtime.twin:
        return ()
    program = find_runtime(runtime.twin).program
    instead = Change("container.runtime", runtime.twin)
    return (instead,) if all(f.has(program) for _, f in case.answered) else ()


def same_program(case: JobContext) -> Iterable[Finding]:
    """Report if the job's own program is a different file on some node."""
    if case.spec.container is not None:
        return
    machines = {f.machine for _, f in case.answered}
    for name in own_files(case.spec):
        digests = group_nodes((p.node.name, _digest(f, name)) for p, f in case.answered)
        if len(digests) > 1:
            own = "/" in name or name.endswith(".py")
            level = Level.BAD if own and len(machines) == 1 else Level.WARN
            parts = ", ".join(f"{d[:12]} on {nodes}" for d, nodes in digests.items())
            yield make_finding(
                level,
                "program",
                "",
                f"`{name}` is not the same file everywhere: {parts}",
                "copy one of them to all nodes",
            )


def _digest(facts: NodeFacts, name: str) -> str | None:
    program = facts.programs.get(name)
    return (program.digest or None) if program else None


def check_mpi(case: JobContext) -> Iterable[Finding]:
    """Report an MPI that differs from the job file, or between nodes."""
    spec = case.spec
    if spec.launch is not Launch.MPI:
        return
    versions = group_nodes(
        (p.node.name, f.versions.get(spec.mpi.path) or None) for p, f in case.answered
    )
    if len({_series(version) for version in versions}) > 1:
        parts = ", ".join(f"{version} on {nodes}" for version, nodes in versions.items())
        yield make_finding(
            Level.BAD,
            "mpi",
            "",
            f"`{spec.mpi.path}` differs: {parts}",
            "install one version everywhere, or name a common one by `mpi.path`",
        )
    for version, nodes in versions.items():
        flavour = flavour_of(version)
        if spec.mpi.detect:
            yield make_finding(
                Level.OK,
                "mpi",
                nodes,
                f"`{spec.mpi.path}` is {version}: {flavour or spec.mpi.flavour}",
            )
        elif flavour and flavour != spec.mpi.flavour:
            yield make_finding(
                Level.BAD,
                "mpi",
                nodes,
                f"`{spec.mpi.path}` is {version}, but the job says `flavour: {spec.mpi.flavour}`",
                f"say `flavour: {flavour}`",
                Change("mpi.flavour", flavour),
            )


def _series(version: str) -> str:
    found_version = _SERIES.search(version)
    return found_version[0] if found_version else version


def flavour_of(version: str) -> str:
    """`openmpi5`, `openmpi4` or `mpich`, from the first line of `mpirun
    --version`; "" if it is not known.
    """
    for pattern, flavour in _FLAVOURS:
        if pattern.search(version):
            return flavour
    return ""


def found_mpi(spec: JobSpec, version: str) -> JobSpec:
    """The job with the MPI flavour of this `mpirun --version`, if its file names none."""
    flavour = flavour_of(version)
    if spec.launch is not Launch.MPI or not spec.mpi.detect or not flavour:
        return spec
    return replace(spec, mpi=replace(spec.mpi, flavour=flavour))


_bad_image = partial(make_finding, Level.BAD, "image")


def check_image(case: JobContext) -> Iterable[Finding]:
    """Report different versions of the image, a missing image, or
    nodes to which it will be copied.
    """
    box = case.spec.container
    images = {p.node.name: f.image for p, f in case.answered if f.image is not None}
    if box is None or not images:
        return
    if text := describe_versions(images):
        push = push_command(box.runtime, box.image, images, images.values(), replace=True)
        fix = _one_kind(case) or f"bring the right one to all nodes: {push}"
        yield _bad_image("", f"`{box.image}`: {text}", fix)
    errors = group_nodes(
        (n, row.error or None) for n, row in images.items() if row.kind == "failed"
    )
    for error, nodes in errors.items():
        told = explain_end([error])[:1]
        fix = told[0].remedy if told else ""
        yield _bad_image(nodes, f"`{box.image}` cannot be looked at: {error}", fix)
    if remote := [n for n, row in images.items() if row.kind == "remote"]:
        text = f"`{box.image}` is fetched by every rank when it starts"
        fix = f"pull it once, `{find_runtime(box.runtime).pull(box.image)}`, and name that file"
        yield make_finding(Level.WARN, "image", fold_nodes(remote), text, fix)
    yield from _missing(case, [n for n, row in images.items() if row.kind == "missing"])


def _one_kind(case: JobContext) -> str:
    """What to do about images that differ because the nodes have different kinds of CPU; "" if all
    have the same.
    """
    kinds = group_nodes((p.node.name, f.machine or None) for p, f in case.answered)
    if len(kinds) < 2:
        return ""
    parts = ", ".join(f"{kind} on {nodes}" for kind, nodes in kinds.items())
    return f"the nodes differ in their CPU ({parts}): name nodes of one kind with `on`"


def _missing(case: JobContext, nodes: list[str]) -> Iterable[Finding]:
    """Findings for nodes without the image, which is fine if it can be copied."""
    box = case.spec.container
    rows = [f.image for _, f in case.answered if f.image is not None and f.image.there]
    if not nodes or box is None:
        return
    total = rows[0].size if rows else case.image_here
    if how := find_runtime(box.runtime).create(box.image):
        yield _bad_image(fold_nodes(nodes), f"no container `{box.image}`", how)
    elif any(row.kind == "folder" for row in rows):
        build = f"{box.runtime} build {box.image.rstrip('/')}.sif {box.image}"
        text = f"no `{box.image}`: elsewhere it is a folder, and folders are not copied"
        yield _bad_image(fold_nodes(nodes), text, f"make it a file: `{build}`, and name that")
    elif total is None:
        missing = [row for node in nodes if (row := case.facts[node].image) is not None]
        push = push_command(box.runtime, box.image, nodes, missing)
        text = f"no image `{box.image}`, nor here or on another node to copy it from"
        yield _bad_image(fold_nodes(nodes), text, f"build or pull it here, then {push}")
    else:
        text = f"no `{box.image}` yet: the launch will copy {write_size(total)}"
        yield make_finding(Level.OK, "image", fold_nodes(nodes), text)
        yield from _no_room(case, nodes, total)


def _no_room(case: JobContext, nodes: list[str], total: int) -> Iterable[Finding]:
    for node in nodes:
        row = case.facts[node].image
        if row is not None and row.free is not None and row.free < total:
            text = f"no room for the image: {write_size(row.free)} left, {write_size(total)} needed"
            fix = "make room there, or name another path in `container.image`"
            yield _bad_image(node, text, fix)


def check_runtime(case: JobContext, settled: Collection[str]) -> Iterable[Finding]:
    """Report kernels that do not let ordinary users start containers, except on the nodes
    `settled`, where a trial has shown whether they can.
    """
    box = case.spec.container
    if box is None or not find_runtime(box.runtime).user_namespaces:
        return
    open_facts = {name: facts for name, facts in case.facts.items() if name not in settled}
    open_case = replace(case, facts=open_facts)
    yield from findings_for_each(
        open_case,
        Level.WARN,
        "runtime",
        lambda _, f: (
            None
            if f.userns
            else "user namespaces are not allowed: only a setuid installation can start containers"
        ),
        "`sysctl user.max_user_namespaces=15000`, and on Ubuntu `kernel.apparmor_restrict_unprivileged_userns=0`",
    )
    if box.image.endswith(".sif"):
        yield from findings_for_each(
            open_case,
            Level.WARN,
            "runtime",
            lambda _, f: (
                None
                if f.fuse
                else "/dev/fuse cannot be opened: an image file cannot be mounted without setuid"
            ),
            "`chmod 0666 /dev/fuse` there, or use an image folder",
        )


SKEW = 2.0
"""With a larger difference between clocks, in seconds, lines of
different nodes are out of order.
"""
_SHM_PER_RANK = 16 << 20
_RUN_LEAST, _RUN_FEW = 16 << 20, 256 << 20


def check_clock(case: JobContext) -> Iterable[Finding]:
    """Report clocks that certainly differ from the console's; the console's
    own if most nodes agree on another time.
    """
    skews = {p.node.name: f.skew for p, f in case.answered}
    behind = seconds_behind(skews.values())
    if behind:
        yield make_finding(Level.WARN, "clock", "", describe_head_clock(behind), REMEDY)
    whose = "the other nodes'" if behind else "the console's"
    off = {node: skew - behind for node, skew in skews.items() if abs(skew - behind) > SKEW}
    for node, skew in off.items():
        way = "ahead of" if skew > 0 else "behind"
        yield make_finding(
            Level.WARN,
            "clock",
            node,
            f"the clock is {write_duration(abs(skew))} {way} {whose}",
            "switch time synchronisation on there: `timedatectl set-ntp true`",
        )


def check_slots(case: JobContext) -> Iterable[Finding]:
    """Report nodes with more ranks than cores."""
    return findings_for_each(
        case,
        Level.WARN,
        "slots",
        lambda p, f: (
            f"{len(p.ranks)} ranks share {f.cores} core{'s' * (f.cores != 1)}"
            if f.cores and len(p.ranks) > f.cores
            else None
        ),
        "lower `ranks_per_node`, or `slots` in the cluster file",
    )


def check_memlock(case: JobContext) -> Iterable[Finding]:
    """Report nodes whose limit on locked memory is too low for RDMA."""
    return findings_for_each(
        case,
        Level.WARN,
        "memlock",
        lambda p, f: (
            f"only {write_size(f.memlock)} of memory may be locked: RDMA falls back or fails"
            if p.node.rdma and f.memlock is not None
            else None
        ),
        "put `* - memlock unlimited` into /etc/security/limits.d there, and for sshd `LimitMEMLOCK=infinity`",
    )


def check_logout(case: JobContext) -> Iterable[Finding]:
    """Report nodes on which the job would end with the login of the console."""
    return findings_for_each(
        case,
        Level.WARN,
        "logout",
        lambda _, f: (
            "processes end with the login (KillUserProcesses): the job ends when the console"
            " disconnects"
            if f.logout
            else None
        ),
        "`loginctl enable-linger` there (as root for a user: `loginctl enable-linger USER`), or"
        " `KillUserProcesses=no` in /etc/systemd/logind.conf",
    )


def shared_memory(case: JobContext) -> Iterable[Finding]:
    """Report nodes with too little /dev/shm for communication between their ranks."""

    def tell(ranks: int, facts: NodeFacts) -> str | None:
        shm = facts.spaces.get("shm")
        if shm is None or shm.free is None:
            return "/dev/shm cannot be read"
        needed = ranks * _SHM_PER_RANK
        if ranks < 2 or shm.free >= needed:
            return None
        return (
            f"/dev/shm has {write_size(shm.free)} free of {write_size(shm.total)}; {ranks} ranks"
            f" want {write_size(needed)}"
        )

    return findings_for_each(
        case,
        Level.WARN,
        "shm",
        lambda p, f: tell(len(p.ranks), f),
        "see what lies in /dev/shm there, or `mount -o remount,size=50% /dev/shm`",
    )


def check_space(case: JobContext) -> Iterable[Finding]:
    """Report full disks: no room for the ranks' output, or for temporary files."""

    def tell(facts: NodeFacts, which: str, least: int, below: int) -> str | None:
        at = facts.spaces.get(which)
        if at is None or at.free is None:
            return None if least else f"the space for {which} cannot be read"
        if not least and not at.writable:
            return f"{at.path} cannot be written"
        if not least and at.inodes == 0:
            return f"{at.path} has no inodes left"
        lacking = least <= at.free < below
        return f"{at.path} has {write_size(at.free)} left" if lacking else None

    fix = "make room there; old runs are under ~/.local/state/rankdeck/jobs"
    for which in ("run", "tmp"):
        yield from findings_for_each(
            case, Level.BAD, "space", lambda _, f, w=which: tell(f, w, 0, _RUN_LEAST), fix
        )
        yield from findings_for_each(
            case, Level.WARN, "space", lambda _, f, w=which: tell(f, w, _RUN_LEAST, _RUN_FEW), fix
        )


def check_folder(case: JobContext) -> Iterable[Finding]:
    """Report nodes without the job's working directory."""
    return findings_for_each(
        case,
        Level.BAD,
        "workdir",
        lambda _, f: None if f.base_there else f"no folder {f.base}",
        "make it there, or change `workdir`",
    )


def check_host_names(case: JobContext) -> Iterable[Finding]:
    """Report host names that do not resolve on some node."""
    if not needs_names(case.spec) or len(case.layout.places) < 2:
        return
    for place in case.layout.places:
        host = place.node.host
        if not is_address(host):
            yield from findings_for_each(
                case,
                Level.BAD,
                "names",
                lambda _, f, h=host: (
                    f"`{h}` does not resolve: {f.names[h].error}"
                    if h in f.names and f.names[h].error
                    else None
                ),
                "give the node an `address` in the cluster file, or add it to /etc/hosts there",
            )
    if case.spec.launch is Launch.TORCHRUN:
        yield from own_name(case)


def own_name(case: JobContext) -> Iterable[Finding]:
    """Report nodes whose own name resolves to loopback or not at all: Gloo
    would listen where others cannot connect.
    """

    def tell(node: Node, facts: NodeFacts) -> str | None:
        if node.interface or "GLOO_SOCKET_IFNAME" in case.spec.env:
            return None
        if facts.own.error:
            return f"its own name `{facts.own_name}` does not resolve: {facts.own.error}"
        loopback = all(a.startswith("127.") or a == "::1" for a in facts.own.addresses)
        return (
            f"its own name `{facts.own_name}` is {facts.own.addresses[0]}: Gloo will listen on loopback"
            if facts.own.addresses and loopback and not node.host.startswith("127.")
            else None
        )

    return findings_for_each(
        case,
        Level.WARN,
        "names",
        lambda p, f: tell(p.node, f),
        "name the `interface` of the job network in the cluster file",
    )


def check_gpus(case: JobContext) -> Iterable[Finding]:
    """Report GPUs that are missing, faulty or in use."""
    for place, facts in case.answered:
        node, reported = place.node, facts.gpus
        warn = partial(make_finding, Level.WARN, "gpu", node.name)
        if reported is None or (not node.gpus and reported.error):
            continue
        if reported.error or len(reported.names) < node.gpus:
            have = reported.error or f"the driver shows {len(reported.names)}"
            text = f"the cluster file says {node.gpus} GPUs: {have}"
            fix = "look at `nvidia-smi` and `dmesg` there, or correct `gpus`"
            yield make_finding(Level.BAD, "gpu", node.name, text, fix)
        for index, errors in enumerate(reported.uncorrected):
            if errors:
                yield warn(
                    f"GPU {index} has {errors} uncorrected memory errors since boot",
                    f"`nvidia-smi --gpu-reset -i {index}` there when nobody uses it ({LET_GO}), or"
                    " leave the node out with `on`",
                )
        if reported.users:
            users = ", ".join(reported.users[:3])
            yield warn(f"GPUs are in use: {users}", "wait, end it, or choose other nodes with `on`")


def check_health(case: JobContext) -> Iterable[Finding]:
    """Report problems of nodes that telemetry has found."""
    for place in case.layout.places:
        known = case.health.get(place.node.name)
        for reason in known.reasons if known else ():
            if reason.level in (Level.WARN, Level.BAD):
                # The job may still run well: the operator decides.
                yield make_finding(Level.WARN, "health", place.node.name, reason.text)
