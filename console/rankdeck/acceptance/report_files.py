"""Files of an acceptance run for people and other programs: page, JSON,
JUnit, Prometheus, node lists, matrix.

All files are made from the same value, during the run or later. Secrets in sentences, commands and
outputs are masked as in reports of jobs. The content of the files is documented in
docs/acceptance.md.
"""

import csv
import io
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rankdeck_agent
from rankdeck.acceptance.heatmap import cell_words, outcome_headline, traits_of
from rankdeck.acceptance.report_page import acceptance_page, choose_excerpts
from rankdeck.acceptance.run import (
    PAIRWISE,
    AcceptanceRun,
    Cell,
    MeasurementSource,
    RunPlan,
    RunState,
    measured_cells,
    next_step,
)
from rankdeck.acceptance.values import Answer, Outcome, Result
from rankdeck.config.files import write_user_files
from rankdeck.model.json_values import read_value
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.model.series import labels_text
from rankdeck.model.text import csv_cell
from rankdeck.rules.secrets import Secrets
from rankdeck.values import replace, value_table

VERSION = 1
"""Version of the JSON; it changes if a field changes its meaning or is removed."""
_NONE = Secrets(())


def report_files(
    run: AcceptanceRun,
    source: MeasurementSource,
    secrets: Secrets = _NONE,
    now: float | None = None,
) -> dict[str, str]:
    """File name -> text; `now` is the time of creation in epoch seconds, which tests may set."""
    made = time.time() if now is None else now
    clean_run = mask_run(run, secrets)
    return {
        "report.html": acceptance_page(
            clean_run, made, choose_excerpts(clean_run, source, secrets)
        ),
        "report.json": json_text(clean_run, made),
        "junit.xml": junit_text(clean_run),
        "rankdeck_acceptance.prom": prometheus_text(clean_run),
        "matrix.csv": matrix_text(clean_run),
        **node_files(clean_run),
    }


def write_reports(
    run: AcceptanceRun, source: MeasurementSource, folder: Path, secrets: Secrets = _NONE
) -> tuple[Path, ...]:
    """Write all files into the folder, readable only by their owner; returns their paths.

    Raises RankdeckError.
    """
    return write_user_files(folder, report_files(run, source, secrets))


def mask_run(run: AcceptanceRun, secrets: Secrets) -> AcceptanceRun:
    """The run with secrets masked in all its texts."""
    say = secrets.in_text
    return replace(
        run,
        plan=read_value(secrets.in_tree(value_table(run.plan)), RunPlan),
        stages=tuple(
            replace(one, plan=read_value(secrets.in_tree(value_table(one.plan)), type(one.plan)))
            for one in run.stages
        ),
        results=tuple(replace(one, text=say(one.text)) for one in run.results),
        verdicts=tuple(replace(one, sentence=say(one.sentence)) for one in run.verdicts),
        drift=tuple(replace(one, sentence=say(one.sentence)) for one in run.drift),
        notes=tuple(map(say, run.notes)),
        identity=secrets.in_tree(run.identity),
        differing=secrets.in_tree(run.differing),
        excluded=secrets.in_tree(run.excluded),
        baseline=say(run.baseline),
        changed=say(run.changed),
    )


# ---- JSON


def json_text(run: AcceptanceRun, now: float) -> str:
    """The whole run as one JSON object; missing numbers are null."""
    return json.dumps(_shape(run, now), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _shape(run: AcceptanceRun, now: float) -> dict[str, Any]:
    return {
        "version": VERSION,
        "rankdeck": rankdeck_agent.__version__,
        "made": now,
        "run": run.id,
        "cluster": run.cluster,
        "operator": run.operator,
        "started": run.started,
        "ended": run.ended,
        "state": run.progress.value,
        "accepted": run.accepted,
        "text": outcome_headline(run),
        "nodes": {name: fold_nodes(names) for name, names in _node_sets(run).items()},
        "answers": {node: answer.value for node, answer in run.answers.items()},
        "left_out": dict(run.left_out),
        "verdicts": [value_table(one) | {"next": next_step(run, one)} for one in run.verdicts],
        "unconfirmed": {
            recipe: len(one.open.sides) + len(one.open.paths)
            for recipe, one in run.judgements.items()
        },
        "populations": {
            recipe: {name: value_table(each) for name, each in one.populations.items()}
            for recipe, one in run.judgements.items()
        },
        "leaves": {recipe: dict(one.leaves) for recipe, one in run.judgements.items()},
        "plan": value_table(run.plan),
        "stages": [
            {
                "stage": one.plan.stage.value,
                "recipe": one.plan.recipe,
                "state": one.progress.value,
                "measurements": one.done,
                "rounds": one.rounds_done,
            }
            for one in run.stages
        ],
        "results": [_result_shape(one) for one in run.results],
        "identity": {node: dict(facts) for node, facts in run.identity.items()},
        "differing": dict(run.differing),
        "baseline": run.baseline,
        "changed": run.changed,
        "drift": [value_table(one) for one in run.drift],
        "notes": list(run.notes),
    }


def _result_shape(one: Result) -> dict[str, Any]:
    """A result as JSON; of the output file only the name, because its
    path is valid only on this machine.
    """
    table = value_table(one)
    return {**table, "raw": Path(one.raw).name, "nodes": [*one.nodes]}


# ---- node lists


def _node_sets(run: AcceptanceRun) -> dict[str, tuple[str, ...]]:
    return {"good": run.good, "bad": run.bad, "not-measured": run.unknown}


def node_files(run: AcceptanceRun) -> dict[str, str]:
    """File name -> text: `good.txt` one node per line, `good.nodes` a node
    set; also for bad and not-measured.
    """
    files: dict[str, str] = {}
    for name, names in _node_sets(run).items():
        files[f"{name}.txt"] = "".join(f"{node}\n" for node in names)
        files[f"{name}.nodes"] = f"{fold_nodes(names)}\n" if names else ""
    return files


# ---- matrix


def matrix_text(run: AcceptanceRun) -> str:
    """CSV with one row for each directed pair and recipe."""
    table = io.StringIO()
    out = csv.writer(table, lineterminator="\n")
    out.writerow(("recipe", "sender", "receiver", "answer", "outcome", "value", "unit", "share"))
    for recipe in run.recipes:
        for (sender, receiver), cell in measured_cells(run, recipe).items():
            answer = cell.answer.value if cell.answer is not None else ""
            share = "" if cell.share is None else f"{cell.share:.4f}"
            value = "" if cell.value is None else repr(cell.value)
            row = (recipe, sender, receiver, answer, cell.outcome.value, value, cell.unit, share)
            out.writerow(map(csv_cell, row))
    return table.getvalue()


# ---- JUnit


def junit_text(run: AcceptanceRun) -> str:
    """JUnit XML: a suite per stage and test, a case per node, pair or group.

    Not measured: error; left out: skipped.
    """
    root = ET.Element("testsuites", name=_xml(f"acceptance of {run.cluster}"))
    suites: dict[str, list[Result]] = {}
    for one in run.results:
        if one.outcome.final:
            suites.setdefault(f"{one.stage.value}.{one.recipe}", []).append(one)
    for name, results in suites.items():
        _suite(root, name, run, results)
    _verdict_suite(root, run)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, name: str, run: AcceptanceRun, results: Sequence[Result]) -> None:
    """Add a suite.

    The repeats of one subject are one case, which counts as measured if any repeat was.
    """
    subjects: dict[str, list[Result]] = {}
    for one in results:
        subjects.setdefault(_subject(one), []).append(one)
    found = measured_cells(run, results[0].recipe)
    about = _about(run)
    cases = [
        _case(name, subject, several, _slow(several[0], found, about))
        for subject, several in subjects.items()
    ]
    _add_suite(root, name, run, cases)


def _about(run: AcceptanceRun) -> dict[str, str]:
    """Node -> the sentence of the first (gravest) verdict about it."""
    return {node: one.sentence for one in reversed(run.verdicts) for node in one.nodes}


def _slow(one: Result, found: Mapping[tuple[str, str], Cell], about: Mapping[str, str]) -> str:
    """Why a measured pair is not good, and the verdicts about its nodes; "" if it is good."""
    cell = found.get((one.sender, one.receiver)) if one.stage in PAIRWISE else None
    if cell is None or cell.answer is None or cell.answer.accepted:
        return ""
    because = dict.fromkeys(about[node] for node in (one.sender, one.receiver) if node in about)
    return "; ".join((cell_words(cell), *because))


def _subject(one: Result) -> str:
    rail = f" rail {one.rail}" if one.rail else ""
    port = f" port {one.port}" if one.port else ""
    return (fold_nodes(one.group) if one.group else " → ".join(one.nodes)) + rail + port


_TROUBLES: Mapping[Outcome, str] = {
    Outcome.FAILED: "failure",
    Outcome.REFUSED: "error",
    Outcome.NOT_MEASURED: "error",
    Outcome.EXCLUDED: "skipped",
}
"""Outcome -> element of JUnit, the worst first."""


def _case(suite: str, subject: str, several: list[Result], slow: str) -> ET.Element:
    took = sum(one.seconds for one in several)
    case = _new_case(suite, subject, max(took, 0.0))
    if not any(one.outcome is Outcome.MEASURED for one in several):
        worst = min(several, key=lambda one: [*_TROUBLES].index(one.outcome))
        _trouble(case, _TROUBLES[worst.outcome], worst.outcome.value, worst.text)
    elif slow:
        _trouble(case, "failure", Answer.SLOW.value, slow)
    texts = "\n".join(filter(None, (one.text for one in several)))
    ET.SubElement(case, "system-out").text = _xml(texts)
    return case


def _new_case(suite: str, subject: str, seconds: float = 0.0) -> ET.Element:
    attributes = {"classname": _xml(suite), "name": _xml(subject), "time": f"{seconds:.3f}"}
    return ET.Element("testcase", attributes)


def _verdict_suite(root: ET.Element, run: AcceptanceRun) -> None:
    """Add a suite with one case per node, with its answer and verdict, and
    one per faulty path, leaf or rail.
    """
    about = _about(run)
    cases: list[ET.Element] = []
    for node, answer in run.answers.items():
        case = _new_case("verdict", node)
        why = about.get(node) or run.left_out.get(node, answer.value)
        if not answer.accepted:
            _trouble(case, _kind_of(answer), answer.value, why)
        cases.append(case)
    for one in run.verdicts:
        if not one.nodes:
            case = _new_case("verdict", one.subject)
            if not one.answer.accepted:
                _trouble(case, _kind_of(one.answer), one.kind.value, one.sentence)
            cases.append(case)
    _add_suite(root, "verdict", run, cases)


def _kind_of(answer: Answer) -> str:
    if answer is Answer.LEFT_OUT:
        return "skipped"
    return "error" if answer in (Answer.NOT_MEASURED, Answer.REFUSED) else "failure"


def _trouble(case: ET.Element, kind: str, name: str, why: str) -> None:
    element = ET.SubElement(case, kind, message=_xml(why))
    if kind != "skipped":
        element.set("type", _xml(name))
        element.text = _xml(why)


def _add_suite(root: ET.Element, name: str, run: AcceptanceRun, cases: list[ET.Element]) -> None:
    counts = {
        f"{kind}s" if kind != "skipped" else kind: str(
            sum(1 for case in cases if case.find(kind) is not None)
        )
        for kind in ("failure", "error", "skipped")
    }
    times = sum(float(case.get("time", "0")) for case in cases)
    started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(run.started))
    about = {
        "name": _xml(name),
        "tests": str(len(cases)),
        "time": f"{times:.3f}",
        "timestamp": started,
        "hostname": _xml(run.cluster),
    }
    ET.SubElement(root, "testsuite", {**about, **counts}).extend(cases)


def _xml(text: str) -> str:
    """Text for XML: line breaks are kept, other unprintable characters are replaced."""
    return "\n".join(clean_line(line, 4000) for line in text.split("\n"))


# ---- Prometheus

Samples = list[tuple[dict[str, str], float]]


def prometheus_text(run: AcceptanceRun) -> str:
    """Metrics for node_exporter's textfile collector: bandwidths in
    bytes per second, answers as 0 or 1.
    """
    families: tuple[tuple[str, str, Samples], ...] = (
        ("bandwidth_bytes_per_second", "Best repeat of a directed pair.", _bandwidths(run)),
        ("value", "Best repeat of a measurement in another unit.", _values(run)),
        ("verdict", "1 for the answer that the node has.", _answers(run)),
        ("accepted", "1 if every node and path is good or fair.", [({}, float(run.accepted))]),
        ("done", "1 if the run went to its end.", [({}, float(run.progress is RunState.DONE))]),
        ("nodes", "Nodes by outcome.", [({"outcome": k}, float(len(v))) for k, v in _node_sets(run).items()]),
        ("info", "Which run this is.", [({"run": run.id, "version": rankdeck_agent.__version__}, 1.0)]),
        ("timestamp_seconds", "When the run ended, else when it started.", [({}, run.ended or run.started)]),
    )  # fmt: skip
    lines: list[str] = []
    for name, help_, samples in families:
        full = f"rankdeck_acceptance_{name}"
        rows = [f"{full}{_labels(run, labels)} {value:.10g}" for labels, value in samples]
        if rows:
            lines += [f"# HELP {full} {help_}", f"# TYPE {full} gauge", *rows]
    return "".join(f"{line}\n" for line in lines)


_BYTES: Mapping[str, float] = {
    "Gb/s": 1e9 / 8,
    "Gbit/s": 1e9 / 8,
    "Mb/s": 1e6 / 8,
    "Mbit/s": 1e6 / 8,
    "GB/s": 1e9,
    "GiB/s": float(1 << 30),
    "MB/s": 1e6,
    "MiB/s": float(1 << 20),
}
"""Unit of a recipe -> its size in bytes per second."""


def _best(run: AcceptanceRun) -> dict[tuple[str, str, str, str], Result]:
    """(stage, recipe, sender or group, receiver) -> the best repeat."""
    found: dict[tuple[str, str, str, str], list[Result]] = {}
    for one in run.results:
        if one.value is not None and not one.port:
            a = fold_nodes(one.group) if one.group else one.sender
            found.setdefault((one.stage.value, one.recipe, a, one.receiver), []).append(one)
    return {at: _best_of(several) for at, several in found.items()}


def _best_of(several: list[Result]) -> Result:
    traits = traits_of(several[0].recipe)
    choose = min if traits is not None and traits.lower_is_better else max
    return choose(several, key=lambda one: one.value or 0.0)


def _bandwidths(run: AcceptanceRun) -> Samples:
    return [
        ({"stage": stage, "recipe": recipe, "a": a, "b": b}, (one.value or 0.0) * _BYTES[one.unit])
        for (stage, recipe, a, b), one in _best(run).items()
        if one.unit in _BYTES
    ]


def _values(run: AcceptanceRun) -> Samples:
    return [
        ({"stage": stage, "recipe": recipe, "a": a, "b": b, "unit": one.unit}, one.value or 0.0)
        for (stage, recipe, a, b), one in _best(run).items()
        if one.unit not in _BYTES
    ]


def _answers(run: AcceptanceRun) -> Samples:
    return [
        ({"node": node, "verdict": one.value.replace(" ", "_")}, float(one is answer))
        for node, answer in run.answers.items()
        for one in Answer
    ]


def _labels(run: AcceptanceRun, labels: Mapping[str, str]) -> str:
    both = {"cluster": run.cluster, **labels}
    return labels_text({name: clean_line(value) for name, value in both.items()})
