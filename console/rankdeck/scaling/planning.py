"""Plans a scaling study: ranks laid over nodes, values of the job file, one point for each
combination.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from rankdeck.config.jobs import change_value
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.scaling.values import ScalePoint, StudyPlan
from rankdeck.values import Value, replace

MOST_RUNS, MOST_POINTS, MOST_REPEATS = 1000, 200, 100
MOST_RANKS = 1_000_000
_GROWS = re.compile(r"\{(?:(\d{1,9})\s?\*\s?)?(ranks|nodes)\}")
"""`{ranks}`, `{24*ranks}`, `{nodes}` in a value: replaced by a number."""


class ScalingError(RankdeckError):
    """A scaling study that cannot be made as asked; the text says why."""


class ScaleRequest(Value, kw_only=True):
    """What the user asks for."""

    file: str
    on: str = ""
    """A node set: only these nodes; "": those of the job file, else all."""
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    """Numbers of nodes instead of ranks; each with the job's ranks per node."""
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(key, its values): every combination is a curve of its own."""
    weak: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(key, its values): one for each number of ranks, or one in which `{ranks}` is replaced."""
    repeats: int = 3
    number: str = ""
    limit: float = 1800.0


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """`1,2,4-6` as numbers in ascending order, each once; raises ScalingError."""
    found: set[int] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = word.partition("-")
        if not all(
            one.isascii() and one.isdecimal() for one in ((first, last) if dash else (first,))
        ):
            raise ScalingError(f"{option}: `{word[:40]}` is not a number; write 1,2,4,8")
        low, high = int(first), int(last) if dash else int(first)
        if not 1 <= low <= high <= MOST_RANKS:
            raise ScalingError(f"{option}: `{word[:40]}` is not within 1 to {MOST_RANKS}")
        if high - low >= MOST_POINTS:
            raise ScalingError(f"{option}: `{word[:40]}` has more than {MOST_POINTS} numbers")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def parse_values(change: str, option: str) -> tuple[str, tuple[str, ...]]:
    r"""(key, values) of `KEY=v1,v2`; `\,` is a comma within a value. Raises ScalingError."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise ScalingError(f"{option} {change[:60]}: write KEY=VALUE,VALUE")
    values = tuple(part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text))
    if len(set(values)) < len(values):
        raise ScalingError(f"{option} {change[:60]}: has a value twice")
    return key, values


def hash_job(spec: JobSpec) -> str:
    """A hash of all that the job file says, twelve characters."""
    return hashlib.sha256(repr(spec).encode()).hexdigest()[:12]


def _curve(
    request: ScaleRequest,
    cluster: Cluster,
    spec: JobSpec,
    names: Sequence[str],
    values: Sequence[str],
) -> Iterator[ScalePoint]:
    """The points with these values of `--set`."""
    chosen = dict(zip((key for key, _ in request.sets), values, strict=True))
    vary = {key for key, several in request.sets if len(several) > 1}
    changed = _changed(spec, chosen, (1, 1))
    for at, (nodes, each) in enumerate(_places(request, cluster, changed, names)):
        size = {key: several[at if len(several) > 1 else 0] for key, several in request.weak}
        point = ScalePoint(
            ranks=nodes * each,
            nodes=nodes,
            ranks_per_node=each,
            values={key: value for key, value in chosen.items() if key in vary},
            size=size,
            fixed={key: value for key, value in chosen.items() if key not in vary},
        )
        job_of(spec, point, names)  # every value is tried before anything runs
        yield point


def plan_study(
    request: ScaleRequest, cluster: Cluster, spec: JobSpec, names: Sequence[str]
) -> StudyPlan:
    """The plan of a study on these nodes (`names`, in order; empty: those that the
    scheduler chooses); raises ScalingError with one sentence.
    """
    _check_counts(request)
    _check_keys(request)
    points = [
        point
        for values in product(*(several for _, several in request.sets))
        for point in _curve(request, cluster, spec, names, values)
    ]
    _check_size(len(points), request.repeats)
    return StudyPlan(
        cluster=cluster.name,
        job=spec.name,
        file=request.file,
        points=tuple(points),
        repeats=request.repeats,
        weak=bool(request.weak),
        number=request.number,
        limit=request.limit,
        spec=hash_job(spec),
        nodes=tuple(names[: max(one.nodes for one in points)]),
        notes=tuple(_notes(request, spec, points)),
    )


def _check_counts(request: ScaleRequest) -> None:
    if request.ranks and request.nodes:
        raise ScalingError("--ranks and --nodes: give one of them")
    if not (request.ranks or request.nodes or request.sets):
        raise ScalingError("nothing to compare: give --ranks 1,2,4,8 or --set KEY=VALUE,VALUE")
    if not 1 <= request.repeats <= MOST_REPEATS:
        raise ScalingError(f"--repeat: from 1 to {MOST_REPEATS}")
    counts = len(request.ranks or request.nodes)
    for key, values in request.weak:
        if counts < 2:
            raise ScalingError("--weak needs at least two numbers of ranks")
        if len(values) == 1 and not _GROWS.search(values[0]):
            raise ScalingError(
                f"--weak {key}: write one value for each number of ranks, or {{ranks}} in it"
            )
        if len(values) not in (1, counts):
            raise ScalingError(
                f"--weak {key}: has {len(values)} values for {counts} numbers of ranks"
            )


def _check_keys(request: ScaleRequest) -> None:
    keys = [key for key, _ in (*request.sets, *request.weak)]
    for key in keys:
        if keys.count(key) > 1:
            raise ScalingError(f"`{key}` is given twice")
        if key == "nodes" or (key == "ranks_per_node" and key in dict(request.weak)):
            raise ScalingError(f"--set {key}: use --ranks or --nodes for that")


def _places(
    request: ScaleRequest, cluster: Cluster, spec: JobSpec, names: Sequence[str]
) -> list[tuple[int, int]]:
    """(nodes, ranks per node) of each number of ranks."""
    known = _known(cluster, spec, names)
    if request.nodes:
        return [(_fitting(count, known, cluster), _usual(spec, known)) for count in request.nodes]
    if not request.ranks:
        return [(spec.nodes, _usual(spec, known[: spec.nodes]))]
    wanted = _usual(spec, known)
    slots = min((node.slots for node in known), default=1)
    alone = (
        any(key == "ranks_per_node" for key, _ in request.sets) or spec.launch is Launch.TENSORFLOW
    )
    most = wanted if alone else max(slots, wanted)
    return [_spread(ranks, (wanted, most), known, cluster) for ranks in request.ranks]


def _known(cluster: Cluster, spec: JobSpec, names: Sequence[str]) -> Sequence[Node]:
    """The nodes that can be used; empty if only a scheduler knows how many there are."""
    if not cluster.nodes:
        return [Node(name=name, slots=spec.ranks_per_node or 1) for name in names]
    of_name = {node.name: node for node in cluster.nodes}
    for name in names:
        if name not in of_name:
            there = fold_nodes(of_name)
            raise ScalingError(f"no node `{name}` in cluster `{cluster.name}`; there are: {there}")
    return [of_name[name] for name in names] if names else cluster.nodes


def _usual(spec: JobSpec, known: Sequence[Node]) -> int:
    """The most ranks on a node: those of the job file, else the slots that all nodes have."""
    if spec.launch is Launch.TENSORFLOW:
        return 1
    return spec.ranks_per_node or min((node.slots for node in known), default=1)


def _fitting(count: int, known: Sequence[Node], cluster: Cluster) -> int:
    if known and count > len(known):
        raise ScalingError(f"--nodes {count}: {_have(known, cluster)}")
    return count


def _have(known: Sequence[Node], cluster: Cluster) -> str:
    names = f": {fold_nodes(node.name for node in known)}" if known else ""
    return f"`{cluster.name}` has {len(known)} node{'' if len(known) == 1 else 's'} for this job{names}"


def _spread(
    ranks: int, limits: tuple[int, int], known: Sequence[Node], cluster: Cluster
) -> tuple[int, int]:
    """(nodes, ranks per node): as few nodes as possible, with equally many ranks on each.

    `limits`: ranks per node that the job wants, and the most that fit; they are only exceeded and
    reached if the ranks do not fit otherwise.
    """
    wanted, most = limits
    count = len(known) or ranks
    if ranks > most * count:
        raise ScalingError(
            f"--ranks {ranks}: {_have(known, cluster)}, with {most} slot{'' if most == 1 else 's'}"
            f" on each, so {most * len(known)} in all"
        )
    for each in (*range(min(wanted, ranks), 0, -1), *range(wanted + 1, most + 1)):
        if ranks % each == 0 and ranks // each <= count:
            return ranks // each, each
    fits = {n * each for n in range(1, count + 1) for each in range(1, most + 1)}
    near = sorted(sorted(fits, key=lambda one: abs(one - ranks))[:2])
    raise ScalingError(
        f"--ranks {ranks}: cannot be spread evenly over {len(known)} nodes with at most {most} ranks"
        f" on each; near it are {' and '.join(map(str, near))}"
    )


def _check_size(points: int, repeats: int) -> None:
    if points > MOST_POINTS or points * repeats > MOST_RUNS:
        raise ScalingError(
            f"{points} points × {repeats} = {points * repeats} runs: at most {MOST_POINTS} points"
            f" and {MOST_RUNS} runs"
        )


def _notes(request: ScaleRequest, spec: JobSpec, points: Sequence[ScalePoint]) -> list[str]:
    """Sentences about what is unusual, and done all the same."""
    new = [
        key.removeprefix("env.")
        for key, _ in (*request.sets, *request.weak)
        if key.startswith("env.") and key.removeprefix("env.") not in spec.env
    ]
    notes = [f"the job file sets no {', '.join(new)}: the study adds it"] if new else []
    more = [one for one in points if one.ranks_per_node > spec.ranks_per_node > 0]
    if more and not any(key == "ranks_per_node" for key, _ in request.sets):
        notes.append(
            f"{more[-1].ranks} ranks need {more[-1].ranks_per_node} on each node; the job file says"
            f" {spec.ranks_per_node}"
        )
    if request.repeats == 1:
        notes.append(
            "one run of each point: no spread and no drift can be seen; --repeat 3 shows them"
        )
    return notes


def fill_counts(text: str, ranks: int, nodes: int) -> str:
    """The text with `{ranks}` and `{24*ranks}` (also of nodes) replaced."""
    counts: Mapping[str, int] = {"ranks": ranks, "nodes": nodes}
    return _GROWS.sub(lambda found: str(int(found[1] or 1) * counts[found[2]]), text)


def _changed(spec: JobSpec, values: Mapping[str, str], counts: tuple[int, int]) -> JobSpec:
    for key, value in values.items():
        try:
            spec = change_value(spec, key, fill_counts(value, *counts))
        except ValueError as error:
            raise ScalingError(f"--set {key}={value}: {error}") from error
    return spec


def job_of(spec: JobSpec, point: ScalePoint, names: Sequence[str], study: str = "") -> JobSpec:
    """The job of a point, on the first of these nodes (empty: those that the scheduler chooses);
    raises ScalingError for a value that cannot be.
    """
    values = {**point.fixed, **point.values, **point.size}
    changed = _changed(spec, values, (point.ranks, point.nodes))
    return replace(
        changed,
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        on=tuple(names[: point.nodes]),
        part_of=study,
    )
