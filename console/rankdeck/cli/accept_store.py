"""What `rankdeck accept` keeps besides runs: baselines declared and carried elsewhere, nodes excluded."""

import time
from collections.abc import Sequence
from pathlib import Path

from rankdeck.acceptance.normal import baselines_of
from rankdeck.acceptance.run import AcceptanceRun
from rankdeck.accepting.acceptance import Acceptance
from rankdeck.cli import output
from rankdeck.cli.output import UsageError
from rankdeck.config.safe_files import read_regular
from rankdeck.session import Session
from rankdeck.state.acceptance import Exclusion


def declare(port: Acceptance, run: AcceptanceRun) -> None:
    """Make the run the baseline of its cluster; raises UsageError where it is not accepted."""
    if not run.accepted:
        raise UsageError(f"{run.id} is not accepted: it is no baseline")
    rows = baselines_of(run, run.operator, time.time())
    port.store.declare(rows)
    output.progress(f"{run.id} is the baseline now: {len(rows)} values")


def baseline(port: Acceptance, cluster: str, what: str, words: Sequence[str]) -> int:
    """`show`, `declare RUN`, `export`, `import FILE`."""
    if what == "declare" and len(words) == 1:
        declare(port, port.open(words[0]))
    elif what == "export" and not words:
        output.say(port.store.exported(cluster))
    elif what == "import" and len(words) == 1:
        found = port.store.imported(cluster, words[0], _bytes(words[0]))
        output.progress(f"{len(found)} values are the baseline of {cluster} now")
    elif what == "show" and not words:
        for one in port.store.baselines(cluster):
            output.say(
                f"{one.recipe}  {one.subject}  {one.median:.4g} ± {one.mad:.2g} of {one.count}  run {one.run}, {one.accepted_by}"
            )
    else:
        raise UsageError("--baseline: this, show, declare RUN, export, or import FILE")
    return output.OK


def _bytes(name: str) -> bytes:
    try:
        return read_regular(Path(name))
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def keep_out(
    session: Session, out: Sequence[str], back: Sequence[str], why: str, until: float
) -> int:
    """Exclude nodes from jobs, or let them back in."""
    store, name, now = session.acceptance.store, session.cluster.name, time.time()
    if out and not why:
        raise UsageError("--exclude needs --why TEXT: the next one wants to know")
    store.exclude(Exclusion(cluster=name, node=node, why=why, at=now, until=until) for node in out)
    store.readmit(name, back)
    for one in store.exclusions(name, now):
        output.say(f"{one.node}: {one.sentence}")
    return output.OK
