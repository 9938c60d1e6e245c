"""Measurements as one job: its job spec, the script of its two ranks,
and the results in their output. Pure.

A launcher cannot start a server and a client separately: rank 0 and rank 1 take turns at being the
server. The client tries again while nobody listens. The server of a step ends with its client, so
both ranks reach the next step together. The script needs only a POSIX shell and `timeout`, also in
a container.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from shlex import join, quote

from msgspec import field

from rankdeck import plugins
from rankdeck.acceptance.output_text import Asked, read_output
from rankdeck.acceptance.recipe import (
    NEVER_BEGAN,
    Commands,
    Endpoints,
    HardwareFacts,
    OutputReading,
    Recipe,
    failed_reading,
    not_measured,
)
from rankdeck.acceptance.schedule import Run
from rankdeck.acceptance.values import GROUPED, Outcome, Result, Stage
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import Abort, JobSpec, Launch, MpiOptions
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value, replace
from rankdeck_agent.wire import RUN_TOKEN

MARK = "#rankdeck-step"
FILE = "steps.sh"
_WAITS = 10
"""Seconds in which a client tries again, every tenth of a second."""
_POD_WAITS = 90
"""The same between pods: one may still be pulling its image when the other has started."""
_UNRESOLVED = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "Name does not resolve",
)
"""Error messages of a client whose peer pod has no address yet (glibc, musl)."""
PEER = "rankdeck-peer"
"""Placeholder for the address of a pod, which is unknown until the pod runs."""
_HEAD = r"""# Made by Rankdeck: measurements between two nodes, one after the other.
case ${RANKDECK_NODE:-${SLURMD_NODENAME:-}} in
@FIRST@) rank=0 ;;
@SECOND@) rank=1 ;;
*) rank=${RANK:-${RANKDECK_RANK:-${SLURM_PROCID:-${JOB_COMPLETION_INDEX:-0}}}} ;;
esac
peer=${RANKDECK_SERVICE:-}-$((1 - ${JOB_COMPLETION_INDEX:-0})).${RANKDECK_SERVICE:-}
printf '%s side %s\n' "$mark" "$rank"
now() { read -r up _ </proc/uptime; }
begin() { now; began=$up; printf '%s begin %s\n' "$mark" "$1"; }
end() { now; printf '\n%s end %s %s %s %s\n' "$mark" "$1" "$2" "$began" "$up"; }
waits() { case $1 in *'timed out'*) return 1 ;; @WAITS@) return 0 ;; esac; return 1; }
serve() {
    step=$1 limit=$2; shift 2; began=0; now; began=$up
    out=$(timeout -k 1 "$limit" "$@" 2>&1 </dev/null) || { code=$?; begin "$step"; printf %s "$out"; end "$step" "$code"; }
}
ask() {
    step=$1 limit=$2; shift 2; begin "$step"; first=${up%.*}
    while now; began=$up; out=$(timeout -k 1 "$limit" "$@" 2>&1 </dev/null); code=$?; [ $((${up%.*} - first)) -lt @WAIT@ ] && waits "$out"; do
        sleep 0.1
    done
    printf %s "$out"; end "$step" "$code"
}
"""


class Step(Value):
    """One measurement from `sender` (0 or 1) to the other rank."""

    number: int
    sender: int
    client: tuple[str, ...]
    server: tuple[str, ...]
    limit: float
    """Seconds after which both programs are ended."""


def pair_script(
    steps: Sequence[Step],
    waits: Sequence[str],
    nodes: Sequence[str] = ("", ""),
    *,
    pods: bool = False,
    patience: float = 1.0,
) -> str:
    """The shell script of both ranks; `waits`: parts of a client's
    error message when nobody listens; it tries `patience` times as long as usual then.

    Each rank takes the part of its node in `nodes`: a scheduler may number the ranks in any order.
    """
    words = (*waits, *_UNRESOLVED) if pods else waits
    values = {
        "WAITS": "|".join(f"*{quote(word)}*" for word in words) or "''",
        "WAIT": str(round((_POD_WAITS if pods else _WAITS) * patience)),
        "FIRST": quote(nodes[0] or "-"),
        "SECOND": quote(nodes[1] or "-"),
    }
    head = _HEAD
    for name, value in values.items():
        head = head.replace(f"@{name}@", value)
    sides = [
        f"{rank})\n" + "".join(_line(step, rank) for step in steps) + "    ;;\n" for rank in (0, 1)
    ]
    return f"mark='{MARK}'\n{head}case $rank in\n{''.join(sides)}esac\n"


def _line(step: Step, rank: int) -> str:
    verb, argv = ("ask", step.client) if step.sender == rank else ("serve", step.server)
    line = join(argv).replace(PEER, '"$peer"')
    return f"    {verb} {step.number} {step.limit:.0f} {line}\n"


class StepOutput(Value):
    """The output of one rank in one step."""

    number: int
    output: bytes
    exit_code: int | None
    """None if the step had not ended."""
    seconds: float


_SIDE = re.compile(rb"^" + MARK.encode() + rb" side ([01])\r?$", re.MULTILINE)
_BEGIN = re.compile(rb"^" + MARK.encode() + rb" begin (\d{1,6})\r?\n", re.MULTILINE)
_END = re.compile(
    rb"^"
    + MARK.encode()
    + rb" end (\d{1,6}) (\d{1,3}) (\d{1,10}\.?\d{0,4}) (\d{1,10}\.?\d{0,4})\r?$",
    re.MULTILINE,
)


def step_outputs(output: bytes) -> Iterator[StepOutput]:
    """Each step in the output of a rank, in order; the last one may have no end."""
    begins = list(_BEGIN.finditer(output))
    ends = [one.start() for one in begins[1:]] + [len(output)]
    for begin, until in zip(begins, ends[: len(begins)], strict=True):
        part = output[begin.end() : until]
        end = next((one for one in _END.finditer(part) if one[1] == begin[1]), None)
        if end is None:
            yield StepOutput(int(begin[1]), part, None, 0.0)
        else:
            seconds = max(0.0, float(end[4]) - float(end[3]))
            yield StepOutput(int(begin[1]), part[: end.start()], int(end[2]), seconds)


def by_side(output: Mapping[int, bytes]) -> dict[int, bytes]:
    """0 (first node) and 1 -> the output there; a rank whose output does not
    name its side counts by its number.
    """
    sides_of = {
        rank: int(found[1]) for rank, text in output.items() if (found := _SIDE.search(text))
    }
    sides = {one: output[rank] for rank, one in sides_of.items()}
    silent = {rank: output[rank] for rank in output if rank not in sides_of and rank not in sides}
    return silent | sides


def first_step_output(parts: Iterable[StepOutput], number: int) -> StepOutput | None:
    """The step of that number, None if it is missing; of several with the same number the first."""
    return next((one for one in parts if one.number == number), None)


NAME = "accept"
"""The name of acceptance jobs."""
PORTS = 18515
_OTHER = 4096
"""Distance of the port numbers of two attempts, and of a suspect pair's usual and other port."""
_LIMIT = 300.0
"""Seconds beyond the usual time after which a node ends a program by
itself, in case the console is gone.
"""
SHORTEST = 30.0
_POD_START = 90.0
"""Seconds that one pod of a job may start later than the other."""
PATIENCE = 3.0
"""A measurement that takes this many times as long as usual counts as hung."""
_ENDED = (124, 137)
"""Exit codes of `timeout` when it ended the program."""
Output = Mapping[int, bytes]
"""Rank -> its output."""


class Work(Value, kw_only=True):
    """What one job measures: several runs between two nodes, or one run on a node or a group."""

    stage: Stage
    recipe: str
    nodes: tuple[str, ...]
    runs: tuple[Run, ...]
    """All runs use the same rail.

    For a single node or a group there is one: (first node, "", repeat, 0).
    """
    round: int = 0
    port: int = 0
    place: int = 0
    """Index among the jobs of its round; selects the ports, because
    virtual nodes share those of one machine.
    """
    attempt: int = 0

    def pending(self) -> Iterator[Result]:
        """One result for each run, without an outcome."""
        group = self.nodes if self.stage in GROUPED else ()
        for sender, receiver, repeat, rail in self.runs:
            yield Result(
                stage=self.stage,
                recipe=self.recipe,
                sender=sender,
                receiver=receiver,
                group=group,
                rail=rail,
                port=self.port,
                round=self.round,
                repeat=repeat,
                unit=find_recipe(self.recipe).traits.unit,
            )


def one_run(
    stage: Stage, recipe: str, nodes: tuple[str, ...], repeat: int = 0, place: int = 0
) -> Work:
    """The work of one run on a single node or a group."""
    runs = ((nodes[0], "", repeat, 0),)
    return Work(stage=stage, recipe=recipe, nodes=nodes, runs=runs, place=place)


class Setup(Value, kw_only=True):
    """What all jobs of a run have in common."""

    cluster: Cluster
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    hostnames: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> its own host name; empty if host names change from job to job."""
    known: HardwareFacts = field(default_factory=HardwareFacts)
    rdma_gbps: float = 0.0
    """Gb/s of the RDMA ports; 0 if there are none or the rate is unknown."""
    rails: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, ...]]]
    )
    """Recipe -> node -> its device for each rail."""
    interfaces: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    """Node -> interface -> its address; empty if addresses change from job to job."""
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    like: JobSpec | None = None
    """The jobs take container, environment, MPI and options from this one."""
    seconds: float = 0.0
    run: str = ""
    """The acceptance run; "" while it is only planned."""
    exclusive: bool = False
    """Ask the scheduler for whole nodes, if it can give them."""

    @property
    def pods(self) -> bool:
        """Whether jobs run in pods: each job then has new names and addresses."""
        return self.cluster.can.pods


def find_recipe(recipe: str) -> Recipe:
    """The recipe of that name; raises UnknownPluginError."""
    return plugins.find_plugin("recipes", recipe)()


def takes_turns(recipe: str) -> bool:
    """Whether the recipe has a client and a server; one job then measures a
    pair several times, in both directions.
    """
    return bool(find_recipe(recipe).commands(Endpoints(nodes=("a", "b"))).server)


def known_of(recipe: Recipe, link_gbps: float, rdma_gbps: float) -> HardwareFacts:
    """The link that a recipe measures: TCP recipes the network, all
    others RDMA where there is any.
    """
    tcp = recipe.traits.fabric == "network"
    return HardwareFacts(link_gbps=link_gbps if tcp else rdma_gbps or link_gbps)


def measurement_seconds(recipe: Recipe, setup: Setup) -> float:
    """Seconds of one measurement on healthy nodes."""
    return (
        setup.seconds + 0.3 if setup.seconds and recipe.traits.directed else recipe.traits.seconds
    )


def spec_of(work: Work, setup: Setup) -> JobSpec:
    """The job that does this work."""
    recipe = find_recipe(work.recipe)
    commands = recipe.commands(_where(work, setup, 0))
    if commands.server:
        steps = _steps(work, recipe, setup)
        body = pair_script(
            steps,
            commands.waits,
            work.nodes,
            pods=setup.pods,
            patience=setup.cluster.access.patience,
        )
        commands = replace(
            commands, launch=Launch.PLAIN, argv=("sh", f"{RUN_TOKEN}/{FILE}"), files={FILE: body}
        )
    return job_spec(commands, work.nodes, setup, recipe_ranks_per_node(recipe, work, setup))


def job_spec(commands: Commands, nodes: Sequence[str], setup: Setup, each: int) -> JobSpec:
    """A job of these commands on these nodes, like the one that the operator gave."""
    base = setup.like or JobSpec(
        name=NAME, launch=commands.launch, command=commands.argv, mpi=MpiOptions(detect=True)
    )
    options = {
        **base.options,
        **dict.fromkeys(setup.cluster.can.whole_nodes if setup.exclusive else (), ""),
        **setup.cluster.can.soon_removed,
    }
    return replace(
        base,
        name=NAME,
        launch=commands.launch,
        command=commands.argv,
        nodes=len(nodes),
        on=tuple(nodes),
        ranks_per_node=each,
        env={**base.env, **commands.env},
        files=dict(commands.files),
        tty=False,
        grace=2.0,
        abort=Abort(enabled=False),
        options=options,
        progress={},
        file="",
        part_of=setup.run or NAME,
    )


def recipe_ranks_per_node(recipe: Recipe, work: Work, setup: Setup) -> int:
    """One; for a GPU recipe one per GPU, at most the slots of the node.

    A single-node test in an MPI job has as many as the job that the operator gave (`Setup.like`).
    """
    if recipe.traits.gpus:
        return max(1, gpu_ranks(work.nodes, setup))
    if setup.like and work.stage is Stage.SINGLE and setup.like.launch is Launch.MPI:
        return setup.like.ranks_per_node or 1
    return 1


def gpu_ranks(nodes: Iterable[str], setup: Setup) -> int:
    """GPU ranks on each of these nodes: the smallest number of any node; 0 if one has no GPU."""
    cluster = setup.cluster
    return min(
        (min(setup.gpus.get(node, 0), cluster.node(node).slots) for node in nodes), default=0
    )


def command_lines(work: Work, setup: Setup) -> tuple[str, ...]:
    """The commands of this work, quoted for a shell, as `node:
    command`; each once, the sender's first.
    """
    recipe = find_recipe(work.recipe)
    lines: list[str] = []
    for number in range(len(work.runs)):
        commands = recipe.commands(_where(work, setup, number))
        lines += [f"{work.runs[number][0]}: {join(commands.argv)}"]
        lines += [f"{work.runs[number][1]}: {join(commands.server)}"] if commands.server else []
    return tuple(dict.fromkeys(lines))


def _where(work: Work, setup: Setup, number: int) -> Endpoints:
    """Nodes, addresses, devices and port of one of the runs."""
    sender, receiver, _, rail = work.runs[number]
    nodes = (sender, receiver) if receiver else work.nodes
    rails = setup.rails.get(work.recipe, {})
    devices = {node: rails[node][rail] for node in nodes if node in rails}
    own = {
        node: address
        for node, device in devices.items()
        if (address := setup.interfaces.get(node, {}).get(device))
    }
    # Each step has a port of its own: a client never meets the server of another step.
    other = work.attempt + work.port
    port = PORTS + other * _OTHER + (work.place % 64) * 32 + number % 32
    return Endpoints(
        nodes=nodes,
        addresses={**setup.addresses, **own},
        devices=devices,
        port=port,
        seconds=ceil(setup.seconds),
        patience=setup.cluster.access.patience,
        ranks_per_node=recipe_ranks_per_node(find_recipe(work.recipe), work, setup),
    )


def _steps(work: Work, recipe: Recipe, setup: Setup) -> list[Step]:
    usual = PATIENCE * measurement_seconds(recipe, setup) + _LIMIT
    limit = usual * setup.cluster.access.patience
    steps: list[Step] = []
    for number, (sender, *_) in enumerate(work.runs):
        commands = recipe.commands(_where(work, setup, number))
        steps.append(Step(number, work.nodes.index(sender), commands.argv, commands.server, limit))
    return steps


def limit_of(work: Work, setup: Setup, ended: Sequence[float]) -> float:
    """Seconds after which the work counts as hung; `ended`: how long jobs of its
    round took, [] until half have ended.
    """
    # The median of half a round shows what is usual on this cluster. Never less than a start takes.
    healthy = len(work.runs) * measurement_seconds(find_recipe(work.recipe), setup)
    usual = sorted(ended)[len(ended) // 2] if ended else healthy
    longest = max(SHORTEST, PATIENCE * usual) + (_POD_START if setup.pods else 0.0)
    return longest * setup.cluster.access.patience


# ---- results


def results_of(
    work: Work, setup: Setup, output: Output, exit_code: int | None, cut: str = ""
) -> Iterator[tuple[Result, bytes]]:
    """Each run's result with its raw output; `cut` says why the job was
    cut short, "" if it ended by itself.
    """
    recipe = find_recipe(work.recipe)
    if recipe.commands(_where(work, setup, 0)).server:
        yield from _of_steps(work, recipe, setup, output, cut)
        return
    raw = b"".join(output[rank] for rank in sorted(output))
    ranks = len(work.nodes) * recipe_ranks_per_node(recipe, work, setup)
    asked = Asked(hosts=_hosts(work, setup), ranks=ranks, exit_code=exit_code)
    reading = (
        failed_reading(cut)
        if cut
        else _worst(read_output(recipe, raw, asked, _known(recipe, setup)))
    )
    for one in work.pending():
        yield _with(one, reading, 0.0), raw


def _known(recipe: Recipe, setup: Setup) -> HardwareFacts:
    return known_of(recipe, setup.known.link_gbps, setup.rdma_gbps)


def _of_steps(
    work: Work, recipe: Recipe, setup: Setup, output: Output, cut: str
) -> Iterator[tuple[Result, bytes]]:
    parts = {place: tuple(step_outputs(text)) for place, text in by_side(output).items()}
    begun = True
    for number, one in enumerate(work.pending()):
        rank = work.nodes.index(one.sender)
        part = first_step_output(parts.get(rank, ()), number)
        other = _last_words(parts.get(1 - rank, ()), number)
        if part is None:
            # The one before it took too long, or lost its node: that says nothing about this one.
            reading = (
                not_measured(f"its turn did not come: {cut}")
                if cut and not other
                else not_measured(f"{NEVER_BEGAN}: {other or 'the script ended before it'}")
            )
            yield _with(one, reading, 0.0), b""
            continue
        reading = _of_step(recipe, part, setup, cut if begun else "")
        if other and _is_never_begun(reading.status, reading.text):
            # The client only knows that nobody answered.
            reading = replace(reading, text=f"{reading.text}; {one.receiver} says `{other}`")
        begun = begun and part.exit_code is not None
        yield _with(one, reading, part.seconds), part.output


def _last_words(parts: Iterable[StepOutput], number: int) -> str:
    """The first error line of a failed server, or else its last line; "" if it was
    ended by `timeout` or printed nothing.
    """
    server = first_step_output(parts, number)
    lines = [] if server is None or server.exit_code in _ENDED else server.output.split(b"\n")
    words = [
        text for one in lines if (text := clean_line(one.decode("utf-8", "replace"), 120).strip())
    ]
    return next((one for one in words if "error" in one), words[-1] if words else "")


def _of_step(recipe: Recipe, part: StepOutput, setup: Setup, cut: str) -> OutputReading:
    if part.exit_code is None:
        return failed_reading(cut) if cut else not_measured("its job ended before it did")
    if part.exit_code in _ENDED:
        return failed_reading("it hung: it did not end by itself")
    return _worst(
        read_output(
            recipe, part.output, Asked(ranks=2, exit_code=part.exit_code), _known(recipe, setup)
        )
    )


def _worst(readings: Sequence[OutputReading]) -> OutputReading:
    """Of several results of one output the first without a value; else the first."""
    return next((one for one in readings if one.status is not Outcome.MEASURED), readings[0])


def _hosts(work: Work, setup: Setup) -> tuple[str, ...]:
    names = [setup.hostnames.get(node, "") for node in work.nodes]
    return tuple(dict.fromkeys(names)) if all(names) else ()


def _with(one: Result, reading: OutputReading, seconds: float) -> Result:
    return replace(
        one,
        outcome=reading.status,
        value=reading.value,
        unit=reading.unit or one.unit,
        text=reading.text,
        seconds=round(seconds, 3),
    )


def perhaps_slow(result: Result) -> Result:
    """The result of a hung measurement, as "not measured": there is
    nothing here to compare its time with.
    """
    text = f"{result.text}; no {result.recipe} of this run has ended: it may be slow here, or hang"
    return replace(result, outcome=Outcome.NOT_MEASURED, text=text)


def resting_text(node: str, why: str) -> str:
    """The text of a measurement that was not started, because something may still run on `node`."""
    return f"{node} rests: {why}"


def never_began(result: Result) -> bool:
    """Whether the measurement gave nothing because no traffic flowed: another port may work."""
    return _is_never_begun(result.outcome, result.text)


def _is_never_begun(outcome: Outcome, text: str) -> bool:
    return outcome is Outcome.NOT_MEASURED and text.startswith(NEVER_BEGAN)
