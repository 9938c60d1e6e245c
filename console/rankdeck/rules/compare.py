"""Two plans side by side: what is another one, without what differs in every run. No I/O."""

import difflib


def plan_difference(old: str, old_job: str, new: str, new_job: str) -> tuple[str, ...]:
    """Lines as `diff -U2` gives them; empty where only the job's id differs."""
    before = old.replace(old_job, "JOB").splitlines()
    after = new.replace(new_job, "JOB").splitlines()
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))
