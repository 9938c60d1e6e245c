"""Every reader of untrusted input, as a function of bytes: for the corpus and for fuzzing.

A target takes any bytes. It returns, or raises one of its `own` errors; any other error is a bug.
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, count
from pathlib import Path

from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from rankdeck import plugins
from rankdeck.acceptance.output_text import read_output
from rankdeck.acceptance.shapes import reading_shape
from rankdeck.backends.frames import FrameError
from rankdeck.backends.launchers import plan_job
from rankdeck.backends.node_stream import NodeStream
from rankdeck.backends.ssh import _concluded, found_jobs, left_there
from rankdeck.cli.check import look_at
from rankdeck.cli.shapes import clean_shape
from rankdeck.config import user
from rankdeck.errors import AgentError, ConfigError, LaunchError, MetricsError
from rankdeck.images.bring import image_rows
from rankdeck.logs.rank_choice import choose_ranks
from rankdeck.model.cluster import Cluster, Metrics, Node, Switch
from rankdeck.model.health import Times
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.json_tables import DEEPEST, parse_table
from rankdeck.model.leftovers import CleanOrder, CleanReport, total_leftovers
from rankdeck.model.nodeset import expand_nodes, expand_ranks
from rankdeck.model.patterns import BadPatternError, compile_pattern
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import clean_line, printable_line, strip_controls
from rankdeck.model.series import Choice, of_counter
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.mpi_trial import MARK, _rank_answers
from rankdeck.prometheus.exporter import Families, openmetrics_head, text_head
from rankdeck.prometheus.server import HttpServer, read_request
from rankdeck.prometheus.site_past import Response, data_of, read_head, read_matrix
from rankdeck.remote.clean import parse_cleaned
from rankdeck.remote.command import AgentRows
from rankdeck.remote.shell import ProgramResult
from rankdeck.rules.progress import ProgressReader
from rankdeck.rules.query import QueryError, Subject, parse_query
from rankdeck.schedulers.kubernetes import rows as kubernetes_rows
from rankdeck.schedulers.kubernetes.state import KubernetesState
from rankdeck.schedulers.slurm import rows as slurm_rows
from rankdeck.schedulers.slurm.state import SlurmCluster
from rankdeck.state.fleet import Fleet, Switches
from rankdeck.state.history import History
from rankdeck.state.jobs import Jobs
from rankdeck.state.node import NodeState
from rankdeck.telemetry import gnmi
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck.telemetry.mqtt_packets import (
    Framer,
    MalformedError,
    PacketKind,
    packet_id,
    read_connect,
    read_publish,
)
from rankdeck.ui import fleet_views, node_page, snapshots
from rankdeck.ui.themes import UNICODE, paint_line
from rankdeck_agent import config as agent_config
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.nvidia import Nvidia
from rankdeck_agent.collectors.nvidia_reader import NvmlReader, StatusPage
from rankdeck_agent.kernel_lines import TEXT_LIMIT, KernelLines
from rankdeck_agent.rules.mpi_daemon import daemon_of, in_place
from rankdeck_agent.schedulers.kubernetes import cluster as kubernetes_cluster
from rankdeck_agent.schedulers.kubernetes import job_snapshot, job_state
from rankdeck_agent.schedulers.kubernetes.chunked_encoding import Chunks
from rankdeck_agent.schedulers.kubernetes.objects import (
    EXIT,
    FORMATS,
    KINDS,
    START,
    LogPosition,
    Splitter,
    split_time_stamp,
)
from rankdeck_agent.schedulers.kubernetes.target import Target as KubernetesTarget
from rankdeck_agent.schedulers.slurm import answers as cluster_answers
from rankdeck_agent.schedulers.slurm import array, change, submit, verdict
from rankdeck_agent.schedulers.slurm.ask import job_efficiencies
from rankdeck_agent.schedulers.slurm.cluster import SlurmView
from rankdeck_agent.schedulers.slurm.ended_jobs import ended_rows
from rankdeck_agent.schedulers.slurm.job_reports import (
    account_rows,
    output_files,
    queue_rows,
    shown_jobs,
)
from rankdeck_agent.schedulers.slurm.marks import parse_run_mark as read_mark
from rankdeck_agent.schedulers.slurm.queue import job_rows
from rankdeck_agent.text import plain_line, shown_line
from rankdeck_agent.wire import NodePlan, WireError, decode_message, node_plan
from tests.support import hostile

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
Take = Callable[[bytes], object]
PLAN = Plan(
    job="j", name="t", cluster="c", backend="ssh",
    nodes=(NodePlan("j", "n1", (0, 1)), NodePlan("j", "n2", (2, 3))), grace=1.0,
)  # fmt: skip
CLUSTER = Cluster(name="c", nodes=(Node(name="n1", slots=2), Node(name="n2", slots=2)))
STEERING = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Target:
    """One reader, and generators of its input."""

    name: str
    begin: Callable[[], Take]
    """Makes a fresh reader; it gets a thousand inputs one after the
    other, and may keep state between them.
    """
    own: tuple[type[Exception], ...]
    """The errors that it may raise."""
    made: st.SearchStrategy[bytes]
    """Generates input like its real sender's."""
    words: tuple[bytes, ...]
    """Words with a meaning for the reader."""

    def seeds(self) -> dict[str, bytes]:
        """The corpus by file name: small files that we wrote, and
        inputs that once broke the reader.
        """
        return {path.name: path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())}


TARGETS: dict[str, Target] = {}
ANY = st.binary(max_size=300)
TEXTS = st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))


def target(name: str, *own: type[Exception], made=TEXTS, words: bytes = b""):
    """Add the decorated function, which makes the reader, to the table."""

    def add(begin: Callable[[], Take]) -> Callable[[], Take]:
        TARGETS[name] = Target(name, begin, own, made, tuple(words.split(b" ")))
        return begin

    return add


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def lines_of(strategy):
    """JSON values, one per line."""
    return st.lists(strategy.map(hostile.line), min_size=1, max_size=4).map(b"".join)


JSON = rb'{ } [ ] , : " null true NaN -1 1e999 1e308 18446744073709551616 "\ud800" {"a":[]} \u0000 '

# ---- what nodes, brokers and switches send


@target(
    "mqtt",
    MalformedError,
    made=ANY,
    words=b"\x00\x04MQTT \x04 \x00\x00 \xff\xff\xff\x7f \x30 \x82 rankdeck/1/c/n/sample # +",
)
def mqtt() -> Take:
    readers = {
        PacketKind.CONNECT: read_connect,
        PacketKind.PUBLISH: read_publish,
        PacketKind.PUBACK: lambda _, b: packet_id(b),
    }

    def take(raw: bytes) -> None:
        whole = list(Framer(1 << 10).feed(raw))
        framer, half = Framer(1 << 10), len(raw) // 2
        assert [*framer.feed(raw[:half]), *framer.feed(raw[half:])] == whole
        for first, body in whole:
            if reader := readers.get(first >> 4):
                reader(first, body)

    return take


@target(
    "frames",
    FrameError,
    made=lines_of(hostile.frames),
    words=JSON + b"kind seq at rank r s o n data tail exited host n1 code now from watch",
)
def frames() -> Take:
    def take(raw: bytes) -> None:
        jobs = Jobs()
        jobs.add(PLAN, 1000.0)
        stream = NodeStream(PLAN.nodes[0], -1, jobs.positions_of("j"), "ssh")
        stream.watch(range(2), None)
        for event in stream.feed(raw):
            jobs.apply(event)
        assert {rank.node for rank in jobs.job("j").ranks[2:]} == {"n2"}

    return take


def message_of(kind: str, body: object) -> bytes:
    return f"{kind} ".encode() + hostile.line(body)


MESSAGES = st.one_of(
    st.builds(message_of, st.just("sample"), hostile.samples),
    st.builds(message_of, st.just("health"), hostile.healths),
    st.builds(message_of, st.just("hello"), hostile.hellos),
    st.builds(message_of, st.just("event"), hostile.events),
)
TELEMETRY = JSON + (
    b"sample hello event health values absent failed gpu.temp up at period inventory level "
    b"reasons heartbeat numbers grown applies judged more limits report"
)


PAINTED = 20
"""Screens are painted for one of this many inputs: that takes as long as all the rest."""


def pages_of(fleet: Fleet, node: NodeState):
    """What the screens show about this node, now and in the past."""
    now = snapshots.PresentFleet({node.name: node})
    yield [now.cell(column, node.name, 20, UNICODE) for column in fleet_views.NUMBERS]
    yield node_page.reason_lines(node, 100, UNICODE)
    yield node_page.finding_lines(node, (100, 50), UNICODE)
    yield snapshots.past_node_page(fleet, node, fleet.wall(), 100, UNICODE)


@target("telemetry", made=MESSAGES, words=TELEMETRY)
def telemetry() -> Take:
    now = 1000.0
    fleet = Fleet(
        Cluster(name="c", nodes=(Node(name="n"),), expect={"gpu_model": "H100", "gpu_count": 8}),
        clock=lambda: now,
        wall=lambda: 1.7e9 + now,
    )
    intake = FleetUpdater("c", fleet)

    def take(raw: bytes) -> None:
        nonlocal now
        kind, _, body = raw.partition(b" ")
        intake.take(f"rankdeck/1/c/n/{text_of(kind)}", body)
        now += 1.3
        fleet.take_changes()
        node = fleet.node("n")
        for reason in node.health.reasons:
            assert not STEERING.search(reason.text + reason.device + reason.check), reason
        for lines in pages_of(fleet, node) if not int(now) % PAINTED else ():
            assert not STEERING.search("".join(text for line in lines for text, _ in line)), lines

    return take


@target("wire", WireError, made=MESSAGES, words=TELEMETRY)
def wire() -> Take:
    def take(raw: bytes) -> None:
        kind, _, body = raw.partition(b" ")
        decode_message(text_of(kind), body)

    return take


def depth(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


@target("border", made=lines_of(hostile.anything), words=JSON)
def border() -> Take:
    def take(raw: bytes) -> None:
        found = parse_table(raw)
        assert found is None or depth(found) <= DEEPEST
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()

    return take


@target(
    "answers",
    AgentError,
    made=lines_of(hostile.answers),
    words=JSON + b"left ranks rows pid command ok error size rank state stacks",
)
def answers() -> Take:
    jobs = Jobs()
    jobs.add(PLAN, 1000.0)

    def take(raw: bytes) -> None:
        answer = ProgramResult(0, raw, b"")
        found = answer.row
        image_rows(found.get("rows"))
        if isinstance(found.get("ranks"), list):
            _concluded(jobs.job("j"), {"n1": found}, {})
        left_there("n1", answer)

    return take


@target(
    "facts",
    made=lines_of(hostile.facts),
    words=JSON + b"base programs gpus interfaces images ports own mtu listen rank",
)
def facts() -> Take:
    def take(raw: bytes) -> None:
        assert node_facts(parse_table(raw) or {}, 1.0, 2.0).listen >= 0
        _rank_answers({(0, "out"): MARK + text_of(raw)})

    return take


CLEANED = hostile.table_with(
    "failed",
    "clock",
    ok=st.just(True),
    rows=st.lists(
        hostile.table_with(
            "names", "place", "count", "bytes",
            kind=st.sampled_from(("runs", "agents", "databases", [], None)),
            ground=st.sampled_from(("old", "recent", "because", {}, 1)),
        ),
        max_size=4,
    ),
)  # fmt: skip


@target(
    "cleaned",
    AgentError,
    made=lines_of(CLEANED),
    words=JSON
    + b"ok rows failed clock kind runs ground old count bytes names place trusted newest ahead",
)
def cleaned_nodes() -> Take:
    def take(raw: bytes) -> None:
        found = parse_cleaned("n1", ProgramResult(0, raw, b""))
        count, size = total_leftovers((found,), dry=True)
        assert count >= 0 <= size
        report = CleanReport(found, {"n1": found}, {})
        assert not STEERING.search(json.dumps(clean_shape("c", CleanOrder(dry=True), report)))

    return take


ROWS_OF_LIST = hostile.table_with(
    job=st.just("t-1122-101010-abcd"),
    node=st.just("n1"),
    closed=st.just(False),
    alive=st.just(True),
    created=hostile.numbers,
    plan=hostile.table_with(
        "processes", "grace", "elsewhere", ranks=st.lists(st.integers(-1, 9), max_size=4)
    ),
)


@target(
    "found",
    made=lines_of(ROWS_OF_LIST),
    words=JSON + b"job node closed alive plan created ranks processes argv grace rank",
)
def found() -> Take:
    def take(raw: bytes) -> None:
        for plan, at in found_jobs("c", {"n1": ProgramResult(0, raw, b"").rows}, 1e9).values():
            Jobs().add(plan, at)

    return take


@target(
    "kernel",
    words=b"NVRM: Xid (PCI:0000:3b:00.0): 79, 0000:3b:00.0 fallen off the bus 6,1,2,-; kernel: "
    b"EDAC MC0: UE CE process Killed oom-kill:constraint= I/O error, dev sda nvme0n1 nfs: server "
    b"not responding mlx5_core link down AER: severity=Corrected blocked for more than CPU#3 \x1b[",
)
def kernel() -> Take:
    lines = KernelLines()

    def take(raw: bytes) -> None:
        _, event = lines.take(text_of(raw))
        if event is not None:
            assert event.level in ("ok", "info", "warn", "bad")
            assert len(event.text) <= TEXT_LIMIT
            assert not STEERING.search(event.text + event.device)

    return take


@target(
    "daemons",
    words=b"prted orted PATH= LD_LIBRARY_PATH=/a:$LD_LIBRARY_PATH ; export $( ` && | > \" ' \\ \n "
    b"--prtemca plm_ssh_agent hydra_pmi_proxy ${PATH:-} /usr/bin/ *",
)
def daemons() -> Take:
    outside = re.compile(r"[`\\\n]|\$\(|&&|\|\|")

    def take(raw: bytes) -> None:
        command = text_of(raw)
        if daemon_of(command) is not None:
            bare = re.sub(r'"[^"$`\\]*"', "", in_place(command))
            assert not outside.search(bare), command

    return take


@target(
    "screen",
    words=b"\x1b[ \x1b]0; \x07 \x1bP \x1b\\ \xc2\x9b m 38;5;1 48;2;1;2;3 \xe2\x80\xae \t \r \n ;;;; "
    b"\xe2\x81\xa6 \x1b[999999999999m 31",
)
def screen() -> Take:
    makers = (
        clean_line,
        printable_line,
        strip_controls,
        plain_line,
        lambda text: shown_line(text, 200),
        lambda text: "".join(piece for piece, _ in paint_line(text, "text")),
    )

    def take(raw: bytes) -> None:
        text = text_of(raw)
        for make in makers:
            assert not STEERING.search(make(text)), make

    return take


# ---- what schedulers answer


def shown_fleet(*, kubernetes: bool) -> Callable[[bytes], None]:
    """The console's end of `cluster watch` or `slurm watch`: takes rows of
    the agent, and shows what came of them.
    """
    fleet = Fleet(Cluster(name="c", nodes=(Node(name="n1"), Node(name="n2"))), wall=lambda: 1.7e9)
    state = KubernetesState() if kubernetes else SlurmCluster()
    takes = (
        kubernetes_rows.kubernetes_takes(fleet, state)
        if isinstance(state, KubernetesState)
        else slurm_rows.slurm_takes(fleet, state)
    )
    reader, looks = AgentRows(takes), count()

    def take(raw: bytes) -> None:
        reader.take(raw)
        fleet.take_changes()
        if next(looks) % PAINTED:
            return
        shown = [state.trouble, *(f"{job}" for job in state.jobs())]
        assert not STEERING.search("".join(shown)), shown
        for lines in pages_of(fleet, fleet.node("n1")):
            assert not STEERING.search("".join(text for line in lines for text, _ in line)), lines

    return take


SCHEDULED = hostile.table_with(
    "about", "ready", "trouble", "node_gone", "job_gone", "partition_gone", "partition",
    node=hostile.table_with(*hostile.NODE_FIELDS, name=st.just("n1")),
    job=hostile.table_with(*hostile.JOB_FIELDS, id=st.just("1"), name=st.just("j"), namespace=st.just("s")),
)  # fmt: skip


@target("scheduler-rows", made=lines_of(SCHEDULED), words=JSON + b"node job name partition about")
def scheduler_rows() -> Take:
    readers = [shown_fleet(kubernetes=kubernetes) for kubernetes in (False, True)]

    def take(raw: bytes) -> None:
        for read in readers:
            read(raw + b"\n")

    return take


@target(
    "slurm",
    made=hostile.slurm_answers,
    words=b"JobId= 4711 4711_[0-9:2%4] _[1-3,7] RUNNING PENDING NODE_FAIL COMPLETED idle* 3/1/0/4 gpu:a100:4(S:0-1) "
    b"1795371818 UNLIMITED 1-02:03:04 7:0 n[1-2,07] | , \n (null) ReqNodeNotAvail, DUE TO slurmstepd-n1: error: "
    b"\xc2\xb2 \xd9\xa3 \xe2\x91\xa0 99999999999999999999 :0 -1",
)
def slurm_answers() -> Take:
    view, tell, at = SlurmView(), shown_fleet(kubernetes=False), 0.0

    def take(raw: bytes) -> None:
        nonlocal at
        text, at = text_of(raw), at + 1.0
        said = verdict.read_slurm_words(text.splitlines())
        seen = [*queue_rows(text), *shown_jobs(text), *account_rows(text)]
        for one in seen:
            verdict.slurm_wait_reason(one), verdict.judge_slurm_job(one, said)
        tasks = array.Tasks(range(4))
        tasks.take_rows(seen), tasks.settle(seen, patient=False), array.join_array_rows(seen, "1")
        output_files(text), verdict.queue_places(text), submit.job_numbers(text), read_mark(text)
        [*ended_rows(text)], job_efficiencies(text)
        rows = [*job_rows(text)]
        for name in ("4711", "4711_3", "4711_[0-9]"):
            change.rows_of_job(name, rows)
        for name in cluster_answers.QUESTIONS:
            view.take(name, cluster_answers.SlurmAnswer(at, text, told=at))
        for row in view.news():
            tell(json.dumps(row).encode() + b"\n")

    return take


@target(
    "kubernetes",
    made=lines_of(hostile.objects),
    words=JSON
    + b"metadata name j uid spec status conditions type Failed True containerStatuses state terminated "
    b"exitCode labels batch.kubernetes.io/job-completion-index nvidia.com/gpu 4Gi \xc2\xb2 2026-11-23T19:00:00Z "
    b"0000-00-00T99:99:99+99:99 ownerReferences nodeName n1",
)
def kubernetes() -> Take:
    state = job_state.JobState(KubernetesTarget("j", namespace="s", wanted=3, ranks=3))
    view, tell = kubernetes_cluster.KubernetesView(all_pods=True), shown_fleet(kubernetes=True)
    what = (kubernetes_cluster.NODES, kubernetes_cluster.PODS, kubernetes_cluster.EVENTS, *KINDS)

    def take(raw: bytes) -> None:
        event = parse_table(raw) or {}
        kind, found = (
            text_of(str(event.get("type")).encode("utf-8", "replace")),
            event.get("object"),
        )
        found = found if isinstance(found, dict) else event
        for kind_of_object in what:
            view.take(kind_of_object, kind, found)
        for hear in (state.take_job, state.take_workload, state.take_pod, state.take_event):
            hear(kind, found)
        told = state.view()
        (
            job_snapshot.describe_progress(told),
            job_snapshot.judge_ended_job(told),
            job_snapshot.describe_running_pods(told.pods),
        )
        [*state.unrecorded(), *state.followed(), *state.aside(), state.runs, state.over]
        for row in view.take_changes():
            tell(json.dumps(row).encode() + b"\n")

    return take


@target(
    "container-log",
    ValueError,
    made=ANY,
    words=b"[rank 0 out] [rank 1 err+] [rank 2 start] [rank 3 exit] 7 137 [1,2]<stdout>: [default0]: \n "
    b"2026-11-23T19:00:00.123456789Z 2026-99-99T25:61:61+99:99 5\r\n 0\r\n\r\n ffffffff;x\r\n",
)
def container_log() -> Take:
    splitters = [(form, Splitter(form)) for form in FORMATS]
    state, place = job_state.JobState(KubernetesTarget("j", ranks=4)), LogPosition()

    def take(raw: bytes) -> None:
        for line in raw.split(b"\n"):
            moment, text = split_time_stamp(line)
            if moment is not None:
                place.fresh(moment)
            for form, splitter in splitters:
                for piece in splitter.feed(text):
                    if form == FORMATS[0] and piece.what in (START, EXIT):
                        state.take_piece(piece, 1.0, "n1")
                splitter.parts = splitter.parts[-8:]
        assert not place.since or len(place.since) >= len("1-1-1T00:00:00Z")
        job_snapshot.describe_progress(state.view())
        # The only error of a reader here; of all else nothing comes out.
        Chunks().feed(raw)

    return take


@target(
    "accept",
    made=st.builds(
        lambda name, lines: f"{name}\n{lines}".encode("utf-8", "replace"),
        st.sampled_from(plugins.plugin_names("recipes")),
        st.text(max_size=200),
    ),
    words=JSON
    + b"\n # size busbw #wrong #bytes #iterations #repetitions Size_[B] NaN inf 1e999 0x1 "
    b"FAILED Rank 0 Pid 1 on n1 device [0x14] error end results | Pass Triad: Gosa : 9999999999999999999999999",
)
def accept() -> Take:
    recipes = {
        name: plugins.find_plugin("recipes", name)() for name in plugins.plugin_names("recipes")
    }

    def take(raw: bytes) -> None:
        first, _, rest = raw.partition(b"\n")
        named = recipes.get(text_of(first))
        for recipe in (named,) if named else recipes.values():
            readings = read_output(recipe, rest)
            assert readings
            for one in readings:
                assert (one.value is None) == (one.status != "measured"), one
                assert not STEERING.search(one.text + "".join(one.hosts)), one
                json.dumps(reading_shape(recipe.name, one), allow_nan=False).encode()

    return take


@target(
    "progress",
    words=b"loss: 0.5 step 12/100 10%|## | 3/30 iteration 5/ 1e999 1,2,3 tokens/s MFLOPS -.5e-3 it/s",
)
def progress() -> Take:
    reader, at = ProgressReader({}, None), 0.0

    def take(raw: bytes) -> None:
        nonlocal at
        at += 1
        reader.take(text_of(raw), 0, at)
        assert reader.now is None or len(reader.now.values) <= 12

    return take


@target(
    "metrics",
    MetricsError,
    made=TEXTS,
    words=JSON
    + b"status success error data resultType matrix result metric values rankdeck_number instance n1 HTTP/1.1 200 \r\n Location:",
)
def prometheus_answers() -> Take:
    site, times = Metrics(host="prom", port=9090), Times(0.0, 1.0, 4)

    def take(raw: bytes) -> None:
        # The head ends at an empty line.
        head, _, body = raw.partition(b"\r\n\r\n")
        with suppress(ValueError):
            read_head(head)
        data = data_of(Response(200, {}, body or head))
        found = read_matrix(data, site, CLUSTER.nodes, times)
        for one in found.series.values():
            assert len(one.values) == times.count
            assert not STEERING.search(one.source)
        assert not STEERING.search(found.warning)

    return take


@target(
    "gnmi",
    made=ANY,
    words=b"interface name state oper-status counters in-octets UP eth0 \x1a \x0a \x12 { } [ "
    b"18446744073709551616 NaN",
)
def gnmi_answers() -> Take:
    switch = Switch(name="s", ports={"eth0": "n1:mlx5_0/1"})
    cluster = Cluster(name="c", nodes=(Node(name="n1"),), switches=(switch,))
    switches, stream = Switches(cluster), gnmi.SwitchStream(switch)

    def take(raw: bytes) -> None:
        # The library of the protocol parses it first and refuses invalid messages.
        with suppress(DecodeError):
            answer = stream._gnmi.SubscribeResponse.FromString(raw)
            for port, leaf, value in stream._read(answer):
                gnmi.take_leaf(switches, "s", port, leaf, value)

    return take


class Driver:
    """NVML as pynvml offers it, with whatever answers the bytes
    hold: errors, huge numbers, odd text.
    """

    class NVMLError(Exception):
        """An error of NVML: its number is `value`."""

        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, raw: bytes) -> None:
        self._rest = iter(raw)

    def byref(self, thing: object) -> object:
        return thing

    def __getattr__(self, name: str):
        return self._number if name.startswith("c_") else lambda *_: self._answer(name)

    def _answer(self, name: str) -> object:
        if (number := next(self._rest, 0)) >= 224:
            raise self.NVMLError(number - 224)
        if name.endswith(("Name", "UUID", "Version", "Serial")):
            return bytes(next(self._rest, 65) for _ in range(number % 24))
        if name.endswith("Rows"):
            return [self._number() for _ in range(4)]
        if name.endswith(("Processes", "Processes_v2", "Pages", "Values", "MigMode")):
            return [self._number() for _ in range(2 + number % 3)]
        return number if name.endswith(("Count", "State")) else self._number()

    def _number(self) -> "Number":
        size = next(self._rest, 0) % 9
        return Number.from_bytes(bytes(next(self._rest, 0) for _ in range(size)), "big")


class Number(int):
    """A number, or a structure of numbers, as NVML's are."""

    def __getattr__(self, name: str) -> object:
        if name == "busId":
            return str(int(self)).encode()
        if name in ("nvmlReturn", "valueType"):
            return int(self) % 9
        return self

    def __len__(self) -> int:
        """Of it as an array: NVML's have a fixed length."""
        return 16

    def __getitem__(self, place: int | slice) -> object:
        """A part of it, where it stands for several."""
        if isinstance(place, slice):
            return [self] * len(range(*place.indices(len(self))))
        if place >= len(self):
            raise IndexError(place)
        return self


@target("nvml", Driver.NVMLError, made=ANY)
def nvml() -> Take:
    with tempfile.TemporaryFile() as page:
        board = StatusPage(os.dup(page.fileno()))

    def take(raw: bytes) -> None:
        reader = NvmlReader(Driver(raw), board, {})
        for now in (0.0, 60.0):
            json.dumps(reader.round(now).values)

    return take


@target(
    "nvml-lines",
    made=lines_of(hostile.table_with("values", "failed", "pending", "inventory")),
    words=JSON + b"values failed pending inventory gpu.used gpu.0.uuid",
)
def lines_of_nvml() -> Take:
    def take(raw: bytes) -> None:
        driver = Nvidia()
        for line in raw.splitlines():
            driver._take(Reading(), line)

    return take


# ---- what people write


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for files that are read back; removed with this process."""
    return tempfile.TemporaryDirectory(prefix="targets.")


SPOILT = (
    "1",
    "[a]",
    "{a: 1}",
    "~",
    "*x",
    "&x [*x]",
    "'a'",
    "|\n  x",
    "-1",
    "1e9",
    "yes",
    "é",
    "!!a b",
)


def documents(*lines: str):
    """YAML made of these lines, some of them damaged."""
    known = st.sampled_from(lines)
    wrong = st.builds(
        lambda one, new: f"{one.partition(':')[0]}: {new}", known, st.sampled_from(SPOILT)
    )
    return st.lists(known | wrong, max_size=12).map(lambda many: "\n".join(many).encode())


def read_file(raw: bytes) -> object:
    path = Path(folder().name) / "f.yaml"
    path.write_bytes(raw)
    return look_at(path)[0]


YAML = (
    b"- : {} [] & * ! | > ' \" # ~ %YAML --- ... &a *a <<: ? \t 0x1 1e3 2020-01-01 \xef\xbb\xbf \xff\xfe "
    b"n[1-9] ${RANKDECK_RUN} ../x /dev/zero "
)


@target(
    "job",
    ConfigError,
    LaunchError,
    made=documents(
        *("job: x", "launch: mpi", "launch: torchrun", "launch: plain", "launch: tensorflow"),
        *("nodes: 2", "ranks_per_node: 2", "command: [a, 'b c', '$(x)']", "on: n[1-2]"),
        *(
            "env: {A: b}",
            "files: {a: text}",
            "grace: 5",
            "abort: {enabled: false}",
            "workdir: /tmp",
        ),
        *("container: {image: i, runtime: docker, mounts: ['/a:/b:ro']}", "torch: {port: 29500}"),
        *("progress: {loss: 'loss ([0-9.]+)'}", "mpi: {flavour: mpich, args: [-v]}"),
    ),
    words=YAML + b"job launch command env files from mounts on progress",
)
def job() -> Take:
    def take(raw: bytes) -> None:
        spec = read_file(raw)
        if isinstance(spec, JobSpec):
            plan_job(CLUSTER, spec, "t-1")

    return take


@target(
    "cluster",
    ConfigError,
    made=documents(
        *("cluster: c", "nodes: [n1, 'n[2-4]']", "backend: slurm", "network: 10.0.0.0/8"),
        "nodes: [{name: 'n[1-4]', address: '10.0.0.[1-4]', slots: 2, gpus: 8, rdma: 8}]",
        "ssh: {user: u, config: none, python: python3, identity: id}",
        "broker: {url: 'mqtts://h:8883', username: u, password_env: RANKDECK_P}",
        *("expect: {gpu_model: A100}", "environment: {A: b}", "simulate: [gpu]"),
        "switches: [{name: s, ports: {e: 'n1:mlx5_0/1'}}]",
    ),
    words=YAML + b"cluster nodes name address @all n[0-999999999] broker url",
)
def cluster() -> Take:
    return lambda raw: read_file(raw)


@target(
    "agent-config",
    agent_config.AgentConfigError,
    words=JSON + b"cluster = c host node port 1883 simulate gpu:hot,rdma tls yes [agent] % \n ;",
)
def agent_configuration() -> Take:
    path = Path(folder().name) / "agent.conf"

    def take(raw: bytes) -> None:
        path.write_bytes(raw)
        agent_config.from_file(str(path))

    return take


@target(
    "plan",
    WireError,
    made=lines_of(
        hostile.table_with("job", "node", "ranks", "processes", "files", "env", "tty", "grace")
    ),
    words=JSON + b"job node ranks processes argv files path text env",
)
def plan() -> Take:
    def take(raw: bytes) -> None:
        if (read := parse_table(raw)) is not None:
            node_plan(read)

    return take


@target("trust", words=b"0123456789abcdef \xff \x00 \n \r")
def trusted() -> Take:
    store = Path(folder().name) / "trusted"

    def take(raw: bytes) -> None:
        store.write_bytes(raw)
        before, user._store = user._store, lambda: store
        try:
            assert all(user._known())
        finally:
            user._store = before

    return take


@target(
    "history",
    made=lines_of(hostile.anything),
    words=JSON + b"id plan record nodes ranks state done name cluster job processes events at \n",
)
def history() -> Take:
    kept = History(Path(":memory:"))
    database = kept._store.database

    def take(raw: bytes) -> None:
        plan_text, _, record = map(text_of, raw.partition(b"\n"))
        for table_name, *row in (
            ("job", "j", "c", 1.0, "done", plan_text, record),
            ("event", "j", "n1", 1, 1.0, "ready", plan_text),
            ("health", "j", 1.0, record),
        ):
            places = ", ".join("?" * len(row))
            database.execute(f"INSERT OR REPLACE INTO {table_name} VALUES ({places})", row)
        for one in kept.load("c"):
            Jobs().add(one.plan, one.created)
        kept.events("j", PLAN)
        kept.health("j")
        database.execute("DELETE FROM health")

    return take


EXPOSITION = re.compile(
    r'# (?:HELP|TYPE) \w+ .*|# EOF|\w+(?:\{\w+="(?:[^"\\\n]|\\[\\n"])*"\})? \S+|', re.DOTALL
)


@target(
    "prometheus",
    words=b'rdma.hw_counters. rdma.counters. port_xmit_wait lifespan " \\ \n { } VL15_dropped',
)
def prometheus() -> Take:
    def take(raw: bytes) -> None:
        series, families = of_counter(clean_line(text_of(raw), 64)), Families(Choice())
        if series is None:
            return
        labels = {"device": text_of(raw)}
        families.put("rdma", (series.name, series.kind, series.help), labels, 7)
        (family,) = families.in_order()
        lines = "".join(chain.from_iterable(family.lines()))
        for text in (f"{head(family)}{lines}" for head in (text_head, openmetrics_head)):
            assert all(EXPOSITION.fullmatch(row) for row in text.split("\n")), text

    return take


@target(
    "http",
    asyncio.IncompleteReadError,
    words=b"GET /metrics HTTP/1.1 \r\n\r\n \r\n Accept: application/openmetrics-text ? POST / \x00",
)
def http() -> Take:
    async def nothing(_choice: Choice, *, openmetrics: bool) -> AsyncGenerator[str]:
        yield "# EOF\n" if openmetrics else ""

    loop, server = asyncio.new_event_loop(), HttpServer(nothing)

    async def ask(raw: bytes) -> None:
        reader = asyncio.StreamReader(limit=1 << 13)
        reader.feed_data(raw)
        reader.feed_eof()
        request = await read_request(reader)
        assert [piece async for piece in server.answer(request)]

    return lambda raw: loop.run_until_complete(ask(raw))


@target(
    "patterns",
    BadPatternError,
    words=rb"( ) (?: (?P<n> * + ? {1,9} {1000} [ ] \d \w \1 (?= | ^ $ . (a+)+$ [[:alpha:]] \pL (?i)",
)
def patterns() -> Take:
    line = "loss 0.5 " + "a" * 500

    return lambda raw: compile_pattern(text_of(raw)).first_group(line)


@target(
    "node-sets",
    words=b"n [ 1-9 ] , ! & ^ - / @all @* 00-99 999999999 %s node= state=failed 0-7 * .. [1-4]",
)
def node_sets() -> Take:
    jobs = Jobs()
    jobs.add(PLAN, 1000.0)
    ranks = jobs.job("j").ranks
    readers = (expand_nodes, expand_ranks, lambda text: choose_ranks(text, ranks))

    def take(raw: bytes) -> None:
        for read in readers:
            with suppress(ValueError):
                read(text_of(raw))

    return take


@target(
    "filters", QueryError, words=b"! ( ) & | < > = != state= node= n[1-9] gpu.temp>80 check=gpu"
)
def filters() -> Take:
    subject = Subject("n1 gpu", "ok", lambda _: 1.0, "n1")

    return lambda raw: parse_query(text_of(raw))(subject)
