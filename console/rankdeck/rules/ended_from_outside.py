"""Finds what ended a job from outside of its ranks: a scheduler, somebody on a node, or the loss of
a node that only a launcher has noticed. No I/O.
"""

from rankdeck.model.first_failure import EMPTIED
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import tell_who_held_up
from rankdeck.rules.ends import LONGEST_QUOTE, End, Meaning, Role, raised_and_waited
from rankdeck.rules.failed_job import (
    WINDOW,
    CauseChoice,
    View,
    end_time,
    failure_start,
    was_killed,
    was_told_to_end,
)
from rankdeck.rules.messages import (
    node_lost_by_launcher,
    tells_end_by_scheduler,
    tells_kill_for_memory,
)
from rankdeck_agent.rules.scheduler_verdict import OUTSIDE

_MANY = 2
"""So many ranks that are killed in one moment were not killed one by one."""
_OF_EACH_NODE = 10.0
"""Seconds; a launcher that lets ranks go on so long is one of many, each of its own node."""


def find_end_by_scheduler(view: View) -> CauseChoice | None:
    """The cause if something outside the job ended it: the scheduler's
    word, not the signals that it sent.
    """
    verdict = view.job.scheduler
    if verdict is None:  # who held up the others is why the time was up
        return None if view.job.held_up else _scheduler_in_lines(view)
    if verdict.kind not in OUTSIDE:
        return None
    ended = [m for m in view.ranks if m.end.failed_unstopped]
    there = [m for m in ended if verdict.node and m.end.node == verdict.node]
    named = [m for m in there if m.end.rank == verdict.rank]
    chosen = min(named or there or list(view.launchers), key=end_time, default=None)
    if chosen is None and view.first:  # a part of it can never start, and ranks waited for it
        chosen = Meaning(_scheduler_end(verdict.text, verdict.node, view.first), Role.CAUSE, "")
    evidence = (verdict.text, *tell_who_held_up(view.job.held_up))
    return CauseChoice(chosen, evidence) if chosen else None


def _scheduler_end(words: str, node: str, at: float) -> End:
    return End(what="scheduler", name="the scheduler", node=node, at=at, lines=(words,))


def _scheduler_in_lines(view: View) -> CauseChoice | None:
    """The scheduler if a launcher prints that it ended the job, and nobody failed before it did:
    what ranks do from then on (an exit code of their own, a crash in a handler) is no cause.
    """
    said = [(one, line) for one in view.job.launchers for line in one.lines]
    if over := [(one, line.strip()) for one, line in said if tells_kill_for_memory(line)]:
        return _killed_for_memory(view, *over[0])
    told = [(one, line.strip()) for one, line in said if tells_end_by_scheduler(line)]
    asked = [end_time(m) for m in view.ranks if was_told_to_end(m) and not m.end.stopped]
    if not told or not asked or view.lost:
        return None
    first = min(asked)
    able = [m for m in view.ranks if m.role <= Role.KILLED and not m.told]
    if any(failure_start(m) < first - WINDOW or m.end.kernel for m in able):
        return None
    if any(raised_and_waited(m.end, first) for m in view.ranks):
        return None
    return _scheduler_choice(*told[0], first)


def _killed_for_memory(view: View, launcher: End, line: str) -> CauseChoice | None:
    """The scheduler if it killed all ranks of the job because they used too much memory together,
    and nobody failed before.
    """
    ended = [m for m in view.ranks if m.end.failed_unstopped]
    if not ended or not all(was_killed(m) or was_told_to_end(m) for m in ended):
        return None
    return _scheduler_choice(launcher, line, min(map(end_time, ended)))


def _scheduler_choice(launcher: End, line: str, at: float) -> CauseChoice:
    why = f"it ended the job: {clean_line(line, LONGEST_QUOTE)}"
    chosen = Meaning(_scheduler_end(line, launcher.node, at), Role.CAUSE, why)
    return CauseChoice(chosen, (why,))


def find_emptied_node(view: View) -> CauseChoice | None:
    """The node whose ranks were all killed, or told to end, in one moment, where those of other
    nodes only lost them: what ended them is to be found there. No launcher ends ranks so.
    """
    failed = [m for m in view.ranks if m.end.failed_unstopped]
    killed = [m for m in failed if was_killed(m) and m.role <= Role.KILLED]
    # A launcher of all nodes tells ranks to end on any of them.
    if not killed and view.job.ending.kill_after >= _OF_EACH_NODE and not view.of(Role.WELL):
        killed = [m for m in failed if m.told]
    nodes = {m.end.node for m in killed}
    others = [m for m in failed if m.end.node not in nodes]
    # A launcher that is killed takes its ranks along.
    others_to_blame = view.lost or any(m.end.killed for m in view.launchers)
    if len(killed) < _MANY or len(nodes) != 1 or not others or others_to_blame:
        return None
    here = [m for m in view.ranks if m.end.node in nodes]
    lasted = max(map(end_time, killed)) - min(map(end_time, killed))
    at_once = lasted < min(view.job.ending.kill_after, WINDOW)
    if here != killed or not at_once or any(m.role < Role.PEER for m in others):
        return None
    (node,) = nodes
    ranks = fold_ranks(m.end.rank for m in here if m.end.rank is not None)
    how = "told to end (SIGTERM)" if all(m.told for m in here) else "killed"
    why = f"all its ranks ({ranks}) were {how} in one moment, by whom is not known"
    gone = End(what="node", name=EMPTIED, node=node, at=min(map(end_time, killed)))
    return CauseChoice(Meaning(gone, Role.CAUSE, why), (why,))


def find_lost_node(view: View) -> CauseChoice | None:
    """The node that a launcher says it has lost, if nobody saw how its ranks ended, or they were
    ended from outside, and no other rank failed by itself.
    """
    said = [(one, line) for one in view.job.launchers if not one.stopped for line in one.lines]
    told = [(view.job.names.get(node_lost_by_launcher(line)), one, line) for one, line in said]
    node, launcher, line = next((one for one in told if one[0]), (None, None, ""))
    there = [m for m in view.ranks if m.end.node == node]
    own = [m for m in view.ranks if m.role <= Role.LIKELY and not m.told]
    own = [m for m in own if m not in there or not was_killed(m)]
    if not node or launcher is None or own or view.lost:
        return None
    if any(m.role is Role.WELL or (m.role is Role.PEER and m.end.code) for m in there):
        return None
    failed = [end_time(m) for m in view.ranks if m.end.failed_unstopped]
    at = min([*failed, launcher.at or view.first])
    gone = End(what="node", node=node, at=at, slack=launcher.slack, lines=(line,))
    why = f"{launcher.name} has lost it: {clean_line(line.strip(), LONGEST_QUOTE)}"
    return CauseChoice(Meaning(gone, Role.CAUSE, why), (why,))
