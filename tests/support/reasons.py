"""Problems of a node that shares this machine with others, without those of
the machine itself or from other tests.
"""

from collections.abc import Mapping
from typing import Any

_OF_THE_MACHINE = ("disk.", "cpu.", "mem.", "psi.", "net.", "kernel.oom", "kernel.hung")
"""It may be busy or full, and its kernel log has what other tests did."""


def reasons(node: Mapping[str, Any]) -> dict[str, str]:
    """Check -> level of a node in the JSON of `status` or `health`;
    empty: it is heard and healthy.
    """
    return {
        reason["check"]: reason["level"]
        for reason in node["reasons"]
        if not reason["check"].startswith(_OF_THE_MACHINE)
    }
