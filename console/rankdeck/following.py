"""Followers of running jobs: pass nodes' reports to `Jobs` and the history.

Judges stalls, carries out gang aborts.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rankdeck.backends.base import Backend, Follower
from rankdeck.backends.black_boxes import BOX_LIMIT, BoxReader
from rankdeck.backends.remote_log import Player
from rankdeck.backends.witnesses import WitnessWatch
from rankdeck.errors import RankdeckError
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Countdown, Job
from rankdeck.model.job_events import Lost, NodeEvent
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Followed
from rankdeck.model.safe_text import strip_controls
from rankdeck.model.stall import Stall
from rankdeck.remote.questions import WAITS
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.ends import FROM_OUTSIDE
from rankdeck.rules.gang_abort import abort_reason, countdown_for, is_anybody_left
from rankdeck.rules.price import low_clocks, price_stalls
from rankdeck.rules.rank_signs import KnownOfJob
from rankdeck.rules.stall import find_stalls, gpus_busy, is_idle
from rankdeck.rules.stall_evidence import weigh_stalls
from rankdeck.state.black_box import NodeBox, notes_with_boxes
from rankdeck.state.boxed_stalls import find_held_up
from rankdeck.state.fleet import Fleet
from rankdeck.state.history import WrittenJob
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.black_box import SILENCE
from rankdeck_agent.wire.run_folder import order_time

log = logging.getLogger(__name__)
POWER_BRAKE = 0x80
"""The bit of NVML's clock event reasons that says that the power brake holds a GPU."""
_LAST_LINES = 20


def notice_stalls(
    jobs: Jobs,
    fleet: Fleet,
    job_ids: Iterable[str],
    now: float,
    watch: WitnessWatch | None = None,
) -> None:
    """Judge which ranks of these jobs are stalled at `now` (epoch
    seconds); a new stall is also logged.
    """
    for job_id in job_ids:
        job = jobs.job(job_id)
        found = find_stalls(job, now, _known(jobs, fleet, job, watch))
        found = watch.judge(job, found, now) if watch else found
        if any(stall.kind == "slow" for stall in found):
            clocks = low_clocks(_gpu_clocks(fleet, job))
            found = price_stalls(job, found, jobs.looks(job_id), now, clocks)
        found = weigh_stalls(found, WEIGHTS)
        before = _kinds(job.stalled)
        for stall in found:
            if (stall.kind, stall.ranks) not in before:
                log.warning("%s", stall.text, extra={"source": job_id})
        jobs.set_stalled(job_id, found)


def _kinds(found: Iterable[Stall]) -> set[tuple[str, tuple[int, ...]]]:
    return {(stall.kind, stall.ranks) for stall in found}


def _known(jobs: Jobs, fleet: Fleet, job: Job, watch: WitnessWatch | None) -> KnownOfJob:
    def words_of(rank: int) -> Sequence[str]:
        # Where the output does not come, as in most commands, the nodes tell the end of it.
        said = watch.words_of(job.id, rank) if watch else ()
        return _last_lines_of(jobs, job, rank) or said

    return KnownOfJob(
        idle=lambda node: _idle(fleet, job, node),
        gpus=lambda node: gpus_busy(_gpus(fleet, node)),
        clock=lambda node: _clock(fleet, node),
        launcher=_last_lines_of(jobs, job, LAUNCHER),
        words=words_of,
        looks=jobs.looks(job.id),
        reported=jobs.reported(job.id),
        patience=watch.patience if watch else 1.0,
    )


def _last_lines_of(jobs: Jobs, job: Job, rank: int) -> list[str]:
    kept = jobs.log(job.id, rank)
    newest = sorted(
        kept.newest(_LAST_LINES), key=lambda one: order_time(one.at, terminal=one.stream == "out")
    )
    lines = [strip_controls(line.text) for line in newest]
    return [*lines, strip_controls(kept.partial.text)] if kept.partial else lines


def _is_heard(fleet: Fleet, name: str) -> bool:
    if not fleet.knows(name):
        return False
    node = fleet.node(name)
    return node.heard_s() is not None and not node.silent


def _gpus(fleet: Fleet, name: str) -> Sequence[float]:
    """How busy each GPU is in percent (or only their mean); empty if the
    node is silent or has simulated parts.
    """
    if not _is_heard(fleet, name) or any(fleet.node(name).simulated):
        return ()
    node = fleet.node(name)
    if node.detailed:
        return [float(value) for value in node.current("gpu.used").values()]
    mean = node.summary("gpu.used")
    return [] if mean is None else [mean]


def _gpu_clocks(fleet: Fleet, job: Job) -> dict[int, tuple[float, bool]]:
    """Rank -> clock of its GPU in Hz, and whether the power brake holds it; only of nodes that have
    as many GPUs as ranks, of which each takes the one with its number.
    """
    found: dict[int, tuple[float, bool]] = {}
    for name in job.nodes:
        ranks = sorted(rank.rank for rank in job.ranks if rank.node == name)
        if not _is_heard(fleet, name) or any(fleet.node(name).simulated):
            continue
        clocks = fleet.node(name).current("gpu.clock")
        if len(clocks) != len(ranks) or not all(device.isdecimal() for device in clocks):
            continue
        reasons = fleet.node(name).current("gpu.throttle_reasons")
        for rank, device in zip(ranks, sorted(clocks, key=int), strict=True):
            brake = bool(int(reasons.get(device, 0)) & POWER_BRAKE)
            found[rank] = (float(clocks[device]), brake)
    return found


def _clock(fleet: Fleet, name: str) -> float | None:
    return fleet.node(name).value("cpu.freq") if _is_heard(fleet, name) else None


def _idle(fleet: Fleet, job: Job, name: str) -> bool | None:
    if not _is_heard(fleet, name):
        return None
    node = fleet.node(name)
    here = sum(1 for rank in job.ranks if rank.node == name)
    used, cores = node.summary("cpu.used"), node.summary("cpu.cores")
    return is_idle(here, used, cores, _gpus(fleet, name))


def _came_after_silence(first: FirstFailure, job: Job) -> bool:
    """Whether in the last SILENCE seconds before it nobody wrote but the rank that failed first."""
    others = [one.heard for one in job.ranks if one.rank != first.rank and one.heard]
    return bool(others) and first.at - max(others) >= SILENCE


TICK = 0.25
LOOK_PERIOD = 0.02
ASLEEP, HEAR = 10.0, 3.0
"""A gap of ASLEEP seconds between two looks means that the console was
suspended; it needs HEAR seconds to catch up.
"""
START_LIMIT = 75.0
"""Seconds that `started` waits: longer than a launch agent waits for its daemon."""
CATCH_UP_LIMIT = 12.0
_SURE = 0.9
"""A verdict that is told with less is looked at again with the black boxes."""
LINGER = 20.0
"""Seconds that nodes have to report the end of a job that another console has recorded as ended."""
DISK_LIMIT, SHORT_DISK_LIMIT = 10.0, 1.0
"""Seconds for the history to be written and read; the short one is for what cannot wait."""
SETTLED = 5.0
"""A session reads the black boxes of earlier jobs when it has been open for so many seconds."""
BACKLOG = 1 << 20
"""Bytes of earlier output that are fetched when a rank comes on screen."""

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Cancel(Protocol):
    """Ends every process of a job; `by` is who wants that: "user",
    "abort" or "system" (wire.py).
    """

    def __call__(self, job_id: str, *, by: str) -> Awaitable[object]: ...


async def wait_for_condition(condition: Callable[[], bool], limit: float) -> None:
    """Wait until the condition holds, at most `limit` seconds; does
    not say which of the two happened.

    While the operator is asked something, the limit stands still.
    """
    with suppress(TimeoutError):
        async with WAITS.limited(limit):
            # State is plain data without listeners, so there is no Event to wait for.
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_PERIOD)


@dataclass(slots=True)
class PauseWatch:
    """Whether this console has caught up with what happened while it was suspended."""

    _looked: float = 0.0
    _since: float = 0.0

    def look(self, now: float) -> bool:
        """Whether it has caught up.

        Call it once a second; `now` is epoch seconds, which go on during a suspend.
        """
        if now - self._looked > ASLEEP:
            self._since = now
        self._looked = now
        return now - self._since >= HEAR


class Following:
    """The owner of all followers of one session; `start` starts a task that
    ends with the session at the latest.
    """

    def __init__(
        self, jobs: Jobs, fleet: Fleet, recorder: JobRecorder, backend: Backend, start: Start
    ) -> None:
        self.jobs = jobs
        self._fleet = fleet
        self._recorder = recorder
        self._backend = backend
        self._start = start
        self._followers: dict[str, Follower] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._players: dict[str, Player] = {}
        self._listeners: dict[str, Callable[[Followed], None]] = {}
        self._held: set[str] = set()
        self._ended_elsewhere: dict[str, float] = {}
        """Job -> epoch seconds since when its end is known only from another console."""
        self._unseen: set[str] = set()
        """Jobs that ran before this console was open, and have not ended yet as far as it knows."""
        self._readings: dict[str, asyncio.Task[None]] = {}
        """Job that has ended -> reads its black boxes, to tell who failed, or has read them."""
        self._pause = PauseWatch()
        self._witnesses: WitnessWatch | None = None
        self._boxes: BoxReader | None = None
        self.patience = 1.0

    def allow(self, patience: float, witnesses: WitnessWatch, boxes: BoxReader) -> None:
        """Multiply limits for nodes to answer by `patience` (see `Access.patience`), and have the
        ranks of silent jobs asked by `witnesses` and black boxes read by `boxes`; without them
        nobody asks.
        """
        self.patience, self._witnesses, self._boxes = patience, witnesses, boxes

    def begin(self, cancel: Cancel) -> None:
        """Start judging jobs for gang aborts; `cancel` is called to end a
        job after a part of it has failed.
        """
        self._start(self._judge(cancel))

    def play(self, job_id: str, player: Player) -> str:
        """Play this replay, from its position; if it is playing already,
        restart it. `finished` waits for its end.

        Returns its id.
        """
        self._stop_playing(job_id)
        self._players[job_id] = player
        self._pumps[job_id] = self._start(player.run())
        return job_id

    def _stop_playing(self, job_id: str) -> None:
        if self._players.pop(job_id, None):
            self._pumps.pop(job_id).cancel()

    def forget(self, job_id: str) -> None:
        """Remove this replay, here and from the history; the job itself stays.

        Raises UnknownJobError.
        """
        if self.jobs.job(job_id).plan.replay_of:
            self._stop_playing(job_id)
            self.jobs.forget(job_id)
            self._recorder.forget(job_id)

    def wind(self, job_id: str, seconds: float) -> bool:
        """Move this replay forward, or back, by `seconds` of the job's
        time; 0 pauses it or lets it go on.

        Returns whether it is paused now; False, without any effect, for a job that is no replay.
        """
        player = self._players.get(job_id)
        if player is None:
            return False
        over = player.over
        if seconds:
            player.wind(seconds)
        else:
            player.held = not player.held
        if over and not player.over:
            self.play(job_id, player)
        return player.held

    def hold(self, job_id: str) -> None:
        """Keep the other ranks running after a failure: no console of this user stops them."""
        self.jobs.keep(job_id)
        self._recorder.save(self.jobs.job(job_id), time.time())

    def stop_counting(self, job_id: str) -> None:
        """Stop the countdown of a gang abort and begin no other: the job is being cancelled."""
        self._held.add(job_id)
        self.jobs.set_countdown(job_id, None)

    def watch(self, job_id: str, ranks: Iterable[int], backlog: int | None = BACKLOG) -> None:
        """Fetch the full output of these ranks from now on, and only the last
        line of others; no effect on a replay.

        `backlog` is how many bytes of earlier output are fetched; None fetches all of it.
        """
        job = self.jobs.job(job_id)
        if job.clock is not None:
            return
        if job_id not in self._followers:
            self.follow(job)
        self._followers[job_id].watch(tuple(ranks), backlog)

    def listen(self, job_id: str, hear: Callable[[Followed], None]) -> None:
        """Call `hear` with each item of this job, after `Jobs` has applied
        it and without what arrived before.
        """
        self._listeners[job_id] = hear

    async def finished(self, job_id: str) -> Job:
        """Wait until the nodes have reported everything about the job; returns the job."""
        if pump := self._pumps.get(job_id):
            await asyncio.wait((pump,))
        return self.jobs.job(job_id)

    async def started(self, job_id: str, limit: float = START_LIMIT) -> None:
        """Wait until every rank has begun or the job is over, at most `limit` seconds.

        Until then an MPI job needs this console, which starts the daemons. A job of Slurm or
        Kubernetes needs none once the scheduler has reported anything about it.
        """
        await wait_for_condition(lambda: self._has_started(job_id), limit * self.patience)

    def _has_started(self, job_id: str) -> bool:
        job = self.jobs.job(job_id)
        pending = any(rank.state is State.PENDING for rank in job.ranks)
        reported = (
            bool(job.troubles)
            or job.in_scheduler is not None
            or self.jobs.log(job_id, LAUNCHER).total > 0
        )
        queued = reported and all(node.elsewhere for node in job.plan.nodes)
        return not pending or queued or job_id not in self._followers

    async def caught_up(
        self, limit: float = CATCH_UP_LIMIT, silent: Collection[str] = ()
    ) -> set[str]:
        """Wait until the nodes have sent everything that they know about
        their jobs, at most `limit` seconds, and then for black boxes that they were asked for.

        Returns the nodes that have not. Does not wait for nodes that are known to be `silent`.
        """

        def behind() -> set[str]:
            return {name for f in self._followers.values() for name in f.behind.difference(silent)}

        await wait_for_condition(lambda: not behind(), limit * self.patience)
        read = self._readings.values()
        await wait_for_condition(lambda: all(one.done() for one in read), BOX_LIMIT * self.patience)
        return behind()

    def follow(self, job: Job) -> None:
        """Follow this job from now on."""
        seen, positions = self.jobs.seen(job.id), self.jobs.positions_of(job.id)
        follower = self._backend.follow(job.plan, seen, positions)
        self._followers[job.id] = follower
        self._pumps[job.id] = self._start(self._pump(job.id, follower))

    async def stop(self, job_id: str) -> None:
        """Follow this job no longer."""
        if pump := self._pumps.pop(job_id, None):
            pump.cancel()
            await asyncio.wait((pump,))

    def take_up(self, job: Job, seen: Mapping[str, int]) -> None:
        """Restore a job from the history, and follow it unless it has ended;
        `seen` is `History.last_seen` of it.
        """
        self.jobs.restore(job, seen=seen)
        if not job.state.final:
            self._unseen.add(job.id)
            self.follow(job)
            self._start(self._catch_up(job.id))

    async def _catch_up(self, job_id: str) -> None:
        """Learn what the nodes have kept from before, unless the session is that of a command."""
        await asyncio.sleep(SETTLED)
        while self.jobs.knows(job_id) and job_id not in self._readings:
            pump = self._pumps.get(job_id)
            await self.learn_boxes(job_id)
            if pump is None or pump.done():
                return
            await asyncio.wait((pump,))

    async def learn_boxes(self, job_id: str) -> dict[str, NodeBox]:
        """Read the black boxes of a job, and give the history what no console has heard.

        Returns node -> its black box; {} for a replay. Raises UnknownJobError.
        """
        job = self.jobs.job(job_id)
        if self._boxes is None or job.plan.replay_of:
            return {}
        boxes = await self._boxes.read(job)
        if not self.jobs.knows(job_id):
            return boxes
        await self._recorder.fill_numbers(job, boxes.values())
        job = self.jobs.job(job_id)
        self.jobs.set_node_notes(job_id, notes_with_boxes(job, boxes.values()))
        self.jobs.learn_held_up(job_id, find_held_up(job, boxes.values()))
        if (now := self.jobs.job(job_id)) != job:
            self._recorder.save(now, time.time())
        return boxes

    async def _learn(self, turn: WrittenJob) -> None:
        """Apply what another console wrote about a job."""
        known, job = self.jobs.knows(turn.id), turn.job
        if turn.gone and known and turn.id not in self._followers | self._players.keys():
            self.jobs.forget(turn.id)
        elif job is not None and not known:
            seen = await self._recorder.last_seen(job.id)
            if not self.jobs.knows(job.id):
                self.take_up(job, seen)
        elif job is not None:
            self.jobs.tell(job)

    async def _pump(self, job_id: str, follower: Follower) -> None:
        try:
            async for event in follower:
                new = self.jobs.apply(event)
                self._recorder.take(event)
                if new is not None and (hear := self._listeners.get(job_id)):
                    hear(new)
                if self._is_missed(event):
                    follower.give_up_lost()
                if job_id in self._unseen and self.jobs.job(job_id).state.final:
                    self._unseen.remove(job_id)
                    self._learn_who_held_up(job_id)
        except RankdeckError as error:
            self.jobs.note(job_id, str(error))
        finally:
            self._followers.pop(job_id, None)
            self.jobs.output_over(job_id)
            self._recorder.save(self.jobs.job(job_id), time.time())
        # If two consoles saw the end, both now take the one that was written first.
        await self._exchange(DISK_LIMIT)

    def _learn_who_held_up(self, job_id: str) -> None:
        """Begin to read the black boxes of a job that has failed, if it is not quite sure why, if
        by a rank that was only told to end, or after a silence: others may have waited for a rank
        while nobody looked.
        """
        job = self.jobs.job(job_id)
        first = job.first_failure
        open_ = (
            first is None
            or (first.sure or 0.0) < _SURE
            or first.signal in FROM_OUTSIDE
            or _came_after_silence(first, job)
        )
        if job.state is State.FAILED and open_:
            self._readings[job_id] = self._start(self._read_boxes(job_id))

    async def _read_boxes(self, job_id: str) -> None:
        await self.learn_boxes(job_id)

    def _is_missed(self, event: Followed) -> bool:
        """Whether a node was lost after the job had ended: do not wait for this node.

        If the end is known only from another console, the nodes have
        LINGER seconds to report it here.
        """
        if not isinstance(event, NodeEvent) or not isinstance(event.body, Lost):
            return False
        return self.jobs.job(event.job).state.final and not self.jobs.only_recorded(event.job)

    async def _judge(self, cancel: Cancel) -> None:
        """Begin, correct and carry out the countdowns of gang aborts."""
        while True:
            await asyncio.sleep(TICK)
            now = time.time()
            for job in self.jobs.all():
                if job.id not in self._followers or job.id in self._held or job.kept:
                    continue
                if job.countdown is not None and not is_anybody_left(job):
                    self.jobs.set_countdown(job.id, None)
                elif job.countdown is None:
                    self._begin_countdown(job, now)
                elif now >= job.countdown.deadline:
                    await self._stop_others(job.id, cancel)
                elif (why := abort_reason(job)) != job.countdown.why:
                    self._correct_countdown(job, job.countdown, why)

    async def _stop_others(self, job_id: str, cancel: Cancel) -> None:
        """Carry out a gang abort, unless another console keeps the others running."""
        await self._exchange(SHORT_DISK_LIMIT)
        if not self.jobs.job(job_id).kept:
            self._held.add(job_id)
            self._start(self._abort(job_id, cancel))

    def _begin_countdown(self, job: Job, now: float) -> None:
        if countdown := countdown_for(job, now):
            log.warning("%s; stopping the others", countdown.why, extra={"source": job.id})
            self.jobs.set_countdown(job.id, countdown)

    def _correct_countdown(self, job: Job, countdown: Countdown, why: str) -> None:
        """Update who failed first; stop the countdown if nobody has failed after all."""
        changed = replace(countdown, why=why) if why else None
        log.warning(
            "%s",
            why or "the node answers again: the job goes on",
            extra={"source": job.id},
        )
        self.jobs.set_countdown(job.id, changed)

    async def _abort(self, job_id: str, cancel: Cancel) -> None:
        try:
            await cancel(job_id, by="abort")
        except RankdeckError as error:
            self.jobs.note(job_id, f"could not stop the others: {error}")

    async def save(self, now: float) -> None:
        """Judge stalls, save every followed job, apply what other consoles wrote.

        Call it once a second.
        """
        if self._pause.look(now):
            if self._due_jobs(now):
                self._start(self.ask_ranks())
            self.notice_stalls()
        for job_id in tuple(self._followers):
            self._recorder.save(self.jobs.job(job_id), now)
        await self._exchange(DISK_LIMIT)
        for job_id, follower in tuple(self._followers.items()):
            if not self.jobs.only_recorded(job_id):
                self._ended_elsewhere.pop(job_id, None)
            elif (
                now - self._ended_elsewhere.setdefault(job_id, now) > LINGER and not follower.behind
            ):
                # Another console has given up its lost nodes; do not wait for them forever.
                self._start(follower.close())

    async def _exchange(self, limit: float) -> None:
        """Write what is due and apply what other consoles wrote; waits at most
        `limit` seconds for a disk that hangs.
        """
        # Not cancelled after the limit: what was read would be lost.
        await asyncio.wait((self._start(self._exchange_with_consoles()),), timeout=limit)

    async def _exchange_with_consoles(self) -> None:
        await self._recorder.write()
        for turn in await self._recorder.news():
            await self._learn(turn)

    def notice_stalls(self) -> None:
        """Judge now which ranks are stalled, in every job that is followed."""
        followed = tuple(self._followers)
        notice_stalls(self.jobs, self._fleet, followed, time.time(), self._witnesses)

    async def ask_ranks(self) -> None:
        """Ask the ranks of silent jobs which operations they have entered; see `WitnessWatch`."""
        now = time.time()
        for job in self._due_jobs(now):
            if self._witnesses is not None:
                await self._witnesses.ask(job, now)
                if self._pause.look(time.time()):
                    self.notice_stalls()

    async def ask_ranks_enough(self) -> None:
        """The same, as often as it takes to tell a deadlock; for a command that looks once."""
        if self._witnesses is not None:
            for job_id in tuple(self._followers):
                await self._witnesses.ask_enough(self.jobs.job(job_id))

    def _due_jobs(self, now: float) -> list[Job]:
        """The silent jobs whose ranks are to be asked now."""
        watch = self._witnesses
        jobs = (self.jobs.job(job_id) for job_id in self._followers)
        return [job for job in jobs if watch is not None and watch.due(job, now)]
