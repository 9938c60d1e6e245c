"""`verdict.json` in a run folder: what a launcher that asks a
scheduler knows about the end of its job.

The keeper of a Kubernetes job writes it before it ends; the supervisor,
whose launcher it is, reads it then.
"""

import json
from typing import Optional

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.private_files import read_json_table, replace_private
from rankdeck_agent.rules.scheduler_verdict import (
    SchedulerVerdict,
    parse_scheduler_verdict,
    verdict_row,
)
from rankdeck_agent.wire.run_folder import VERDICT


def write_verdict(folder: RunFolder, verdict: SchedulerVerdict) -> None:
    """Write the verdict, or replace that of an earlier run; raises OSError."""
    replace_private(folder / VERDICT, f"{json.dumps(verdict_row(verdict))}\n".encode())


def read_verdict(folder: RunFolder) -> Optional[SchedulerVerdict]:
    """The verdict in the run folder; None if there is none or it cannot be read."""
    return parse_scheduler_verdict(read_json_table(folder / VERDICT))
