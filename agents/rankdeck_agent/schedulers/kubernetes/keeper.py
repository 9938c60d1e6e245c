"""`kubernetes keep`: creates one job, copies its ranks' output to disk,
reports its progress and how it ended.

On SIGTERM it deletes the job. `kubernetes try` only asks the server whether it would accept the
job. The supervisor on the control host runs it as the launcher of the job. The main thread owns the
state of the job; watches and followers run in threads of their own and send what they find through
a queue.
"""

import argparse
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Callable, Optional

from rankdeck_agent.agent_file import mark_agent_used
from rankdeck_agent.job.folder import FolderError, RunFolder, all_events, find_run_folder
from rankdeck_agent.job.orders import give_order
from rankdeck_agent.job.supervisor_state import COMPLETE, NOT_KNOWN
from rankdeck_agent.job.verdict import write_verdict
from rankdeck_agent.older_python import without_prefix
from rankdeck_agent.private_files import set_private_umask
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, VerdictKind
from rankdeck_agent.schedulers.kubernetes.container_log import (
    ContainerLog,
    LogFollower,
    LogReceiver,
    LogSource,
    Turns,
    forget_rank_moments,
    record_rank_moment,
)
from rankdeck_agent.schedulers.kubernetes.job_snapshot import (
    RankEnd,
    describe_progress,
    describe_running_pods,
    is_waiting,
    judge_ended_job,
)
from rankdeck_agent.schedulers.kubernetes.job_state import Clocks, JobState, Notice
from rankdeck_agent.schedulers.kubernetes.json_values import Object
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    ProxyError,
    describe_api_refusal,
)
from rankdeck_agent.schedulers.kubernetes.kubectl_proxy import Proxy, end_tidily
from rankdeck_agent.schedulers.kubernetes.objects import (
    LAUNCHER,
    START,
    TERMINATED,
    LogPiece,
    Pod,
    ask_version,
    find_kueue,
    too_old,
)
from rankdeck_agent.schedulers.kubernetes.target import (
    GONE,
    Ending,
    Target,
    UnsureError,
    create_objects,
    may_be_there,
    most_followed,
    not_kept,
    place_target,
    read_objects,
    read_target,
)
from rankdeck_agent.schedulers.kubernetes.volume_claim import (
    ClaimError,
    ClaimReader,
    MissingPiece,
    missing_of,
    seen_spec,
)
from rankdeck_agent.schedulers.kubernetes.watch import TROUBLE, Watch, start_watch_thread
from rankdeck_agent.text import failure_reason, parse_json_table, plain_line, print_json_line
from rankdeck_agent.wire.schedulers.job_files import CREATED, MANIFEST

_LONGEST = 64 << 20
"""Most bytes that `try` reads: the objects of one job."""
_TICK = 0.25
_SAY_PERIOD = 1.0
_RESTART_PERIOD = 5.0
_LEAVE_LIMIT = 5.0
"""Seconds for workers to end after the job is over."""
_SETTLE_SLACK = 30.0
_MUTE_LIMIT = 2.0
"""Seconds to wait for the log of a pod that is gone: the stream from a dead node does not end."""
_LAST_WORDS = 0.5
_ORDER_LIMIT = 5.0
"""Seconds that the supervisor has to take a message."""
_MARK_LIMIT = 3.0
"""Seconds to wait for the shim in a pod to report its ranks; pods of others have no shim."""
_MANY, _SLOW = 50, 1.0
"""With more pods than the first, their logs are read in pieces this many seconds apart, which takes
9 % of a core with 200 pods.
"""
_REOPENED = 40.0
"""So many silent streams are opened again each second at most."""
_EACH_SECOND = 250
"""With more pods, the pauses are longer, so that so many logs are read each
second: 1,000 pods take 17 % of a core.
"""
_MOST_NOTICES, _MOST_COMPLAINTS = 200, 40
ENDED_BY_TERM = 128 + signal.SIGTERM

Note = tuple[Any, ...]


class JobKeeper:
    """Keeps one job, from its creation (or from the state in which it is found) to its end."""

    def __init__(self, folder: RunFolder, target: Target, proxy: Proxy) -> None:
        self._folder, self._target, self._proxy = folder, target, proxy
        self._api = proxy.api
        self._state = JobState(target, most_followed(target, open_files()))
        self._notes: queue.Queue[Note] = queue.Queue()
        self._takes: Mapping[str, Callable[..., list[Notice]]] = {
            "job": self._state.take_job,
            "pod": self._state.take_pod,
            "event": self._state.take_event,
            "workload": self._state.take_workload,
            "piece": self._state.take_piece,
            "trouble": self._take_trouble,
            "complaint": self._take_complaint,
            "term": self._take_term,
        }
        self._followers: dict[tuple[str, str], LogFollower] = {}
        """By (uid of the pod, id of the container)."""
        self._turns = Turns(_REOPENED)
        self._gone_at: dict[str, float] = {}
        self._runs_since: dict[tuple[str, str], float] = {}
        self._watches: list[Watch] = []
        self._asked = self._queued = False
        """Whether SIGTERM asked to end the job; whether Kueue was asked about it."""
        self._taken_up = False
        """Whether the job existed before this keeper: lines may have been missed."""
        self._claim_reader: Optional[ClaimReader] = None
        self._recording = threading.Lock()
        self._clocks = Clocks()
        self._over_at = self._restarted = self._shown_at = 0.0
        self._shown = ""
        self._waits: Optional[str] = ""
        """Why the job waits, as last reported; None: an earlier
        keeper may have reported something.
        """
        self._waits_told = self._complaints = 0
        self._written: set[str] = set()

    # ---- beginning

    def run(self) -> int:
        """Keep the job to its end; returns its exit code."""
        signal.signal(signal.SIGTERM, self._term)
        # Before anything is created: nobody should find out when the output is gone.
        unkept = not_kept(self._target, open_files())
        if unkept:
            self._say(Notice(unkept))
        try:
            self._create()
        except ApiError as error:
            self._say(Notice(f"Kubernetes does not take the job: {describe_api_refusal(error)}"))
            if isinstance(error, UnsureError):
                self._say(Notice(may_be_there(self._target)))
            self._judge(VerdictKind.REFUSED, describe_api_refusal(error))
            self._stop()
            return 1
        self._look()
        while not self._asked and not self._settled():
            self._turn()
            self._show()
            mark_agent_used()
        code = self._end() if self._asked else self._finish()
        self._stop()
        return code

    def _term(self, _number: int, _frame: object) -> None:
        self._notes.put(("term",))
        if self._claim_reader is not None:
            self._claim_reader.stop()

    def _take_term(self) -> list[Notice]:
        self._asked = True
        return []

    def _create(self) -> None:
        created = self._folder / CREATED
        if not self._target.ours or created.exists():
            self._taken_up = self._clocks.late = True
            self._waits = None
            self._remember()
            return
        # Before the request: if its answer is lost, it may have created something.
        created.touch(mode=0o600)
        made = read_objects(self._folder / MANIFEST)
        try:
            create_objects(self._api, self._target, made)
        except UnsureError:
            raise
        except ApiError:
            (self._folder / GONE).touch(mode=0o600)
            raise
        self._tell("created")

    def _remember(self) -> None:
        """Read what an earlier keeper recorded: the ranks that began or ended."""
        for rank in range(self._target.ranks):
            place = self._folder.place(rank)
            if (place / "started").exists():
                self._state.began[rank] = (place / "started").read_text().strip()
            word = (place / "exit").read_text().strip() if (place / "exit").exists() else ""
            if word.isdecimal():
                at = (place / "exit").stat().st_mtime
                self._state.ends[rank] = RankEnd(int(word), at, self._state.began.get(rank, ""))

    def _look(self) -> None:
        target = self._target
        events = f"/api/v1/namespaces/{target.namespace}/events"
        self._watch("job", target.path, target.field)
        self._watch("pod", target.collection("Pod"), {"labelSelector": target.selector})
        self._watch("event", events, {"fieldSelector": "type=Warning"})

    def _look_at_queue(self) -> None:
        """If the job is suspended, watch Kueue's Workload, which says why; asks only once."""
        if self._queued or self._state.outcome.state != "suspended" or not self._state.uid:
            return
        self._queued = True
        try:
            kind = find_kueue(self._api)
        except ApiError as error:
            self._say(Notice(f"the queue cannot be asked: {describe_api_refusal(error)}"))
            return
        if kind is not None:
            selector = {"labelSelector": f"kueue.x-k8s.io/job-uid={self._state.uid}"}
            self._watch("workload", kind.path(self._target.namespace), selector)

    def _watch(self, what: str, path: str, params: dict[str, str]) -> None:
        watch = Watch(self._api, path, params)
        self._watches.append(watch)

        def heard(kind: str, found: Object) -> None:
            trouble = ("trouble", what, found, watch)
            self._notes.put(trouble if kind == TROUBLE else (what, kind, found))

        start_watch_thread(watch, heard)

    # ---- one turn

    def _turn(self) -> None:
        """Handle what arrives within _TICK seconds; then do what is due."""
        deadline = time.monotonic() + _TICK
        for note in iter(lambda: self._next(deadline - time.monotonic()), None):
            self._take(note)
        if not self._proxy.alive:
            self._restart_proxy()
        self._look_at_queue()
        if self._state.put_aside and not self._state.ending:
            self._begin_again()
        self._keep_followers()

    def _begin_again(self) -> None:
        """The queue took the pods away: forget what their ranks did."""
        with self._recording:
            self._state.begin_again()
            for rank in range(self._target.ranks):
                forget_rank_moments(self._folder, rank)
        text = f"run {self._state.runs_before} was put aside by its queue: the ranks begin anew"
        self._say(Notice(f"Kubernetes job {self._state.name}: {text}", alarm=False))
        give_order(self._folder, f"again {text}", _ORDER_LIMIT)

    def _next(self, limit: float) -> Optional[Note]:
        """The next note; None if none comes within `limit` seconds."""
        try:
            return self._notes.get(timeout=max(0.0, limit))
        except queue.Empty:
            return None

    def _take(self, note: Note) -> None:
        what, *rest = note
        for notice in self._takes[what](*rest):
            # Limited, since a server may send them without end; how
            # the job ended is always written.
            if len(self._written) < _MOST_NOTICES:
                self._say(notice)

    def _take_trouble(self, what: str, found: Object, watch: Watch) -> list[Notice]:
        error = ApiError(**found)
        if what == "workload" and error.status in (403, 404):
            watch.close()  # there is no Kueue, or we may not ask it
            return []
        if what == "event" and error.status == 403:
            watch.close()
            return [Notice("events may not be read here: why something waits may not be told")]
        if error.status == 401:
            # kubectl reads its configuration only when it starts: the
            # user may have logged in again.
            self._restart_proxy()
        return [Notice(f"the {what}s cannot be watched: {describe_api_refusal(error)}")]

    def _restart_proxy(self) -> None:
        now = time.monotonic()
        if self._restarted and now - self._restarted < _RESTART_PERIOD:
            return
        self._restarted = now
        try:
            self._proxy.start()
        except ProxyError as error:
            self._say(Notice(str(error)))

    # ---- followers

    def _keep_followers(self) -> None:
        for pod in list(self._state.followed()):
            self._keep_follower(pod)
        now = time.monotonic()
        for (uid, _), follower in self._followers.items():
            if uid not in self._state.pods:
                follower.gone()
                if now - self._gone_at.setdefault(uid, now) > _MUTE_LIMIT:
                    follower.close()

    def _keep_follower(self, pod: Pod) -> None:
        box = pod.container
        follower = self._followers.get((pod.uid, box.id))
        if follower is None:
            for (uid, _), older in self._followers.items():
                if uid == pod.uid:
                    older.ended(previous=True)
            follower = self._follow(pod)
        if box.state == TERMINATED:
            follower.ended()
        self._begin_without_mark(pod)

    def _begin_without_mark(self, pod: Pod) -> None:
        """Record that the ranks of a container have begun once it has run for
        _MARK_LIMIT seconds without a report of a shim.
        """
        now = time.monotonic()
        since = self._runs_since.setdefault((pod.uid, pod.container.id), now)
        if now - since > _MARK_LIMIT and not self._followers[pod.uid, pod.container.id].marked:
            for rank in self._state.unmarked(pod):
                record_rank_moment(self._folder, rank, "started", pod.node, pod.container.started)

    def _follow(self, pod: Pod) -> LogFollower:
        box = pod.container
        log = partial(
            ContainerLog,
            self._folder,
            f"{pod.uid}.{box.id}",
            self._state.ranks_of(pod),
            LogReceiver(partial(self._pass_on, self._name_in_log(pod)), partial(self._heard, pod)),
            self._target.form,
        )
        wanted = self._target.wanted
        pause = max(_SLOW, wanted / _EACH_SECOND) if wanted > _MANY else 0.0
        source = LogSource(self._target.namespace, pod.name, box.name, box.id, pause)
        follower = LogFollower(self._api, source, log, self._complain, self._turns)
        self._followers[pod.uid, box.id] = follower
        if not self._target.ours:
            self._note_start(pod)
        follower.start()
        return follower

    def _note_start(self, pod: Pod) -> None:
        """Record that ranks of a job that is not ours have begun: they have no shim,
        so the start of their container counts.
        """
        at = pod.container.started or time.time()
        for rank in self._state.ranks_of(pod):
            if rank not in self._state.began:
                self._state.began[rank] = pod.node
                record_rank_moment(self._folder, rank, "started", pod.node, at)

    def _take_complaint(self, text: str) -> list[Notice]:
        # Of a thousand pods on nodes that refuse all, a few will do.
        self._complaints += 1
        return [Notice(text)] if self._complaints <= _MOST_COMPLAINTS else []

    def _complain(self, text: str) -> None:
        """Report that a log cannot be read or written; called in the thread of a follower."""
        self._notes.put(("complaint", text))

    def _heard(self, pod: Pod, piece: LogPiece, at: float) -> None:
        """A rank began or ended; called in the thread of a follower."""
        assert piece.rank is not None
        text = plain_line(piece.text.decode("utf-8", "replace"), 64)
        node = self._state.node_of(text, pod) if piece.what == START else pod.node
        with self._recording:
            at, odd = self._clocks.ours(pod.node, at, time.time())
            if odd:
                self._complain(odd)
            if pod.uid in self._state.earlier:
                return
            if piece.what == START:
                record_rank_moment(self._folder, piece.rank, "started", node or text, at)
            else:
                record_rank_moment(self._folder, piece.rank, "exit", text, at)
        self._notes.put(("piece", piece, at, node, pod.uid))

    # ---- the end

    def _settled(self) -> bool:
        """Whether the job is over and all its output has arrived."""
        state = self._state
        if not state.over:
            self._over_at = 0.0
            return False
        now = time.monotonic()
        self._over_at = self._over_at or now
        late = now - self._over_at
        if late > self._target.grace + _SETTLE_SLACK:
            return True
        aside = {pod.uid for pod in state.aside()}
        reading = any(
            not follower.over.is_set()
            for (uid, _), follower in self._followers.items()
            if uid not in aside
        )
        unread = any((p.uid, p.container.id) not in self._followers for p in state.followed())
        if reading or unread or state.runs:
            return False
        # Workers of an MPIJob run a moment longer.
        return late > _LEAVE_LIMIT or not describe_running_pods(state.pods.values())

    def _finish(self) -> int:
        self._drain()
        self._read_claim()
        self._drain()
        if self._asked:
            return self._end()
        self._record_silent()
        made = judge_ended_job(self._state.view())
        self._keep(made.found)
        self._say(Notice(made.text, alarm=False))
        still = describe_running_pods(self._state.pods.values())
        more = (f"{self._state.outcome.state or 'over'}, {still}",) if still else ()
        for doubt in (*made.doubts, *more):
            self._say(Notice(f"Kubernetes job {self._state.name}: {doubt}"))
        return made.code

    def _drain(self) -> None:
        for note in iter(lambda: self._next(0.0), None):
            self._take(note)

    def _read_claim(self) -> None:
        """Copy from the volume claim of `logs` the output that was
        lost before the API gave it to us.
        """
        state, target = self._state, self._target
        spec = seen_spec(self._folder, state.spec)
        uid = "" if state.deleted else state.uid
        reader = ClaimReader(self._api, self._folder, target, spec, uid)
        if not reader.claim or not (self._taken_up or len(state.ends) < target.ranks):
            return
        self._claim_reader = reader
        self._tell(f"reading what the ranks wrote from volume claim {reader.claim}")
        missing = missing_of(self._folder, target.ranks, [*state.began], [*state.ends])
        try:
            reader.read(missing, self._take_missing)
        except (ClaimError, OSError) as error:
            text = f"volume claim {reader.claim} cannot be read, lines may be missing here: {error}"
            self._say(Notice(text))

    def _take_missing(self, report: MissingPiece) -> None:
        """Handle what the claim says: that a rank began, or how it ended."""
        rank, what, text, at = report
        piece = LogPiece(rank, what, text)
        pod = Pod("", "", node=self._folder_host(rank))
        self._heard(pod, piece, time.time() if at is None else at)

    def _folder_host(self, rank: int) -> str:
        return self._state.nodes.get(self._state.began.get(rank, ""), "")

    def _record_silent(self) -> None:
        for one in self._state.close_records():
            record_rank_moment(self._folder, one.rank, "started", one.node, one.started)
            status = NOT_KNOWN if one.status is None else str(one.status)
            record_rank_moment(self._folder, one.rank, "exit", status, one.ended)

    def _end(self) -> int:
        """Delete the job, and wait until nothing of it is left or the
        time is over; returns the exit code.
        """
        self._tell("being deleted")
        self._judge(VerdictKind.CANCELLED, "it was deleted, as Rankdeck was asked to end it")
        self._state.ending = True
        ending = Ending(self._api, self._target)
        while not ending.step(self._grace(), quiet=not self._state.pods):
            self._turn()
        if ending.left:
            self._say(Notice("not gone: " + "; ".join(ending.left[:20])))
        else:
            (self._folder / GONE).touch(mode=0o600)
            self._tell("nothing of it is left")
        self._hear_last_words()
        self._record_silent()
        return 1 if ending.left else ENDED_BY_TERM

    def _hear_last_words(self) -> None:
        """Wait a moment for the last lines of the pods, which are gone."""
        deadline = time.monotonic() + _LAST_WORDS
        for follower in self._followers.values():
            follower.gone()
        for follower in self._followers.values():
            follower.over.wait(max(0.0, deadline - time.monotonic()))
        self._drain()

    def _grace(self) -> float:
        """The grace period in seconds: of the last `cancel` event, else the job's."""
        asked = [event for event in all_events(self._folder.events) if event["kind"] == "cancel"]
        grace = asked[-1].get("grace") if asked else None
        return float(grace) if isinstance(grace, (int, float)) else self._target.grace

    def _stop(self) -> None:
        for watch in self._watches:
            watch.close()
        for follower in self._followers.values():
            follower.close()
        for follower in self._followers.values():
            follower.over.wait(_LAST_WORDS)
        (self._folder / COMPLETE).touch(mode=0o600)

    def _judge(self, kind: VerdictKind, text: str) -> None:
        self._keep(SchedulerVerdict(kind, plain_line(text, 1000), ours=self._target.ours))

    def _keep(self, found: SchedulerVerdict) -> None:
        """Leave the verdict for the supervisor, which reads it when this process has ended."""
        try:
            write_verdict(self._folder, found)
        except OSError as error:
            self._say(Notice(f"how the job ended could not be noted: {failure_reason(error)}"))

    # ---- saying

    def _show(self) -> None:
        """Write what the job waits for, or that it runs, when that has changed."""
        if self._over_at or time.monotonic() - self._shown_at < _SAY_PERIOD:
            return
        view = self._state.view()
        text, self._shown_at = describe_progress(view), time.monotonic()
        if text != self._shown:
            self._shown = text
            self._tell(text)
        self._tell_supervisor(text if is_waiting(view) else "")

    def _tell_supervisor(self, waits: str) -> None:
        """Report why the job waits, "" if it does not, when that has changed."""
        # Limited, since a server may find new words without end; that it runs is always reported.
        if waits == self._waits or (waits and self._waits_told >= _MOST_NOTICES):
            return
        if give_order(self._folder, f"waits {waits[:400]}", _ORDER_LIMIT):
            self._waits = waits
            self._waits_told += 1

    def _tell(self, text: str) -> None:
        """Write a line about the job to the launcher's output."""
        self._write(1, f"Kubernetes job {self._state.name}: {plain_line(text, 1000)}\n".encode())

    def _say(self, notice: Notice) -> None:
        """Write a notice to the launcher's output, each only once; an alarm goes to
        its stderr and becomes a `trouble` event.
        """
        text = plain_line(notice.text, 1000)
        if text in self._written:
            return
        self._written.add(text)
        self._write(2 if notice.alarm else 1, f"{text}\n".encode())
        if notice.alarm:
            give_order(self._folder, f"trouble {text[:400]}", _ORDER_LIMIT)

    def _name_in_log(self, pod: Pod) -> bytes:
        """The prefix for lines of this pod that no rank wrote; empty for
        the launcher and pods with ranks.
        """
        alone = pod.role == LAUNCHER or self._state.ranks_of(pod)
        short = without_prefix(pod.name, f"{self._target.name}-")
        return b"" if alone else f"{short}: ".encode()

    def _pass_on(self, name: bytes, text: bytes) -> None:
        """Pass on a line that no rank wrote (of mpirun, or a worker's sshd);
        called in the threads of followers.
        """
        self._write(1, name + text)

    def _write(self, fd: int, data: bytes) -> None:
        try:
            os.write(fd, data)
        except OSError:
            return  # the supervisor is gone; output of ranks still goes to their files


def raise_open_files() -> None:
    """Let this process and kubectl open as many files as the host allows:
    each log that is followed needs a few.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):
        return  # some systems allow less than they say; `open_files` has what it is now


def open_files() -> int:
    """How many files this process may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def keep_kubernetes_job(folder: RunFolder) -> int:
    """Keep the job whose settings are in this run folder; returns the job's exit code."""
    target = read_target(folder)
    raise_open_files()
    proxy = Proxy(target.context)
    try:
        proxy.start()
        return JobKeeper(folder, place_target(target, proxy), proxy).run()
    except ProxyError as error:
        print(error, file=sys.stderr)
        give_order(folder, f"trouble {error}", _ORDER_LIMIT)
        (folder / COMPLETE).touch(mode=0o600)
        return 1
    finally:
        proxy.stop()


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    asked = _parser().parse_args(argv)
    set_private_umask()
    try:
        if asked.verb == "try":
            return _try()
        return keep_kubernetes_job(find_run_folder(asked.job, asked.node))
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _try() -> int:
    """Have the server check a job without creating it; prints {"ok": …, "error": …,
    "remark": what of its output could not be kept, or ""}.
    """
    row = parse_json_table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")) or {}
    raise_open_files()
    why = _refused(row)
    remark = "" if why else not_kept(Target(**row["target"]), open_files())
    return print_json_line({"ok": not why, "error": why, "remark": remark})


def _refused(row: Mapping[str, Any]) -> str:
    """Why the server would not accept {"target": …, "objects": […]}; "" if it would."""
    end_tidily()
    try:
        target = Target(**row["target"])
        with Proxy(target.context) as proxy:
            old = too_old(ask_version(proxy.api))
            if old:
                return old
            create_objects(proxy.api, place_target(target, proxy), row["objects"], dry=True)
    except (KeyError, TypeError, ValueError) as error:
        return f"bad request: {error}"
    except (ProxyError, ApiError) as error:
        return describe_api_refusal(error)
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubernetes", description="Jobs on Kubernetes.")
    verbs = parser.add_subparsers(dest="verb")
    verbs.required = True
    verbs.add_parser("try", help="have the server check the job on stdin, and create nothing")
    keeper = verbs.add_parser(
        "keep", help="create the job of a run folder, and follow it to its end"
    )
    keeper.add_argument("job")
    keeper.add_argument("node")
    return parser
