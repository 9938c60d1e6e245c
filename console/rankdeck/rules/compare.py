"""Two plans side by side: what is another one, without what differs in every run. No I/O."""

import difflib
import re

_FILE = re.compile(r" > \S+ <<'(EOF_*)'$")


def plan_difference(old: str, old_job: str, new: str, new_job: str) -> tuple[str, ...]:
    """Lines as `diff -U2` gives them; empty where only the job's id differs."""
    before = old.replace(old_job, "JOB").splitlines()
    after = new.replace(new_job, "JOB").splitlines()
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))


def without_files(text: str, most: int = 4) -> list[str]:
    """A plan's lines with the text of its files cut short, so that the commands stand out."""
    lines: list[str] = []
    inside: list[str] = []
    end = ""
    for line in text.splitlines():
        if not end:
            lines.append(line)
            end = match[1] if (match := _FILE.search(line)) else ""
        elif line != end:
            inside.append(line)
        else:
            more = len(inside) - most
            kept = inside if more <= 1 else [*inside[:most], f"# … {more} more lines"]
            lines += [*kept, line]
            inside, end = [], ""
    return [*lines, *inside]
