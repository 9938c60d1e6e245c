"""Numbered lines as fast as they can be written; CHATTY_LINES: how many (0: for ever)."""

import itertools
import os
import sys

rank = os.environ.get("RANKDECK_RANK", os.environ.get("RANK", "?"))
count = int(os.environ.get("CHATTY_LINES", "200000"))
size = int(os.environ.get("CHATTY_WIDTH", "60"))
padding = "." * size

for number in range(count) if count else itertools.count():
    sys.stdout.write(f"{number:09d} rank {rank} {padding}\n")
sys.stdout.flush()
