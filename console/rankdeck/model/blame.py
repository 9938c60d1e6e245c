"""Who made a job fail, in words; the same on every screen and in every command."""

from rankdeck.model.ending import how_it_ended
from rankdeck.model.job import FirstFailure, Suspect
from rankdeck.model.nodeset import fold_ranks


def who(one: FirstFailure | Suspect) -> str:
    """`rank 5 on n2`, `mpirun on n1`, `node n2`, `the job`."""
    if one.what == "node":
        return f"node {one.node}"
    if one.what == "job":
        return "the job"
    name = one.name or "the launcher" if one.rank is None else f"rank {one.rank}"
    return f"{name} on {one.node}"


def how(first: FirstFailure) -> str:
    """`exit 3`, `signal 9 (SIGKILL)`, `stopped answering`."""
    if first.what == "node":
        return "stopped answering"
    if first.what == "job":
        return "ended well and did nothing"
    return how_it_ended(first.exit_code, first.signal)


def failure(first: FirstFailure) -> str:
    """Who failed first and how, in one line."""
    so_far = "" if first.settled else "so far: "
    tied = f"; too close to tell from {fold_ranks(first.tied)}" if first.tied else ""
    after = (
        f"; {len(first.victims)} pulled down by it: {fold_ranks(first.victims)}"
        if first.victims
        else ""
    )
    return f"{so_far}{who(first)}, {how(first)}{tied}{after}"
