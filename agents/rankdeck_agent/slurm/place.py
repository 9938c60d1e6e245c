"""The place of a job among those that wait in its partition. No I/O."""

from collections import Counter

PLACES = (
    "squeue", "--local", "--noheader", "--all", "--states=PENDING", "--sort=-p,i",
    "--Format=JobID:20,Partition:60",
)  # fmt: skip
"""All that wait, those with the highest priority first."""


def places(text: str) -> dict[str, dict[str, int]]:
    """Id -> `position` from 1, and how many wait in that partition (`waiting`), from the answer to `PLACES`."""
    rows = [(line[:20].strip(), line[20:].strip()) for line in text.splitlines()]
    rows = [row for row in rows if row[0].isdigit()]
    total = Counter(partition for _, partition in rows)
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, int]] = {}
    for number, partition in rows:
        seen[partition] += 1
        found[number] = {"position": seen[partition], "waiting": total[partition]}
    return found
