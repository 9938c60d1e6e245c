"""Which tests `make test` leaves to `make thorough`: CI runs both.

`make test` is for developers: every capability once, with real programs, in about ten minutes. Long
tests that go further are left out: another runtime, launcher or version, another fault or accident,
the matrix. The test itself says so by a mark, `left_out`; where a whole file is left out, `kept`
names what stays. A mark with names means only those cases of a test; a name that ends with `*`
means all cases that begin with it.
"""

import pytest


def is_thorough(item: pytest.Item) -> bool:
    """Whether this test is left to `make thorough`."""
    kept, left_out = item.get_closest_marker("kept"), item.get_closest_marker("left_out")
    if kept is not None and names_case(kept.args, case_of(item)):
        return False
    return left_out is not None and names_case(left_out.args, case_of(item))


def case_of(item: pytest.Item) -> str:
    """The name of its case, as pytest writes it in brackets; "" if it has none."""
    return item.name.partition("[")[2].removesuffix("]")


def names_case(names: tuple[str, ...], case: str) -> bool:
    """Whether a mark with these names means this case."""
    alike = (one == case or (one.endswith("*") and case.startswith(one[:-1])) for one in names)
    return not names or any(alike)
