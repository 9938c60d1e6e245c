"""What node and console agree on about black boxes (`job/black_box.py`)."""

BOX_VERSION = 1
PERIOD = 5.0
"""Seconds between two readings."""
FAILED, CANCELLED, SILENT, ENDED, GONE = "failed", "cancelled", "silent", "ended", "gone"
"""Why a black box was frozen: a rank or launcher failed; the job was cancelled; no rank of the node
wrote for so long (see SILENCE); the job ended here; its supervisor was killed.
"""
SILENCE, LONGEST_SILENCE = 15.0, 60.0
"""Seconds without output of any rank of a node after which its ring is frozen: twice the longest
pause that they have made before, within these limits; once more when they reach the second.
"""
MOST_BOX_BYTES = 32 << 20
"""Most bytes of the rows of one black box."""
