"""Many cases of one rule in one test: a separate test for each
would cost more than the case itself.
"""

from collections.abc import Callable, Iterable
from typing import Any


def each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call the test with each case; tuples are its arguments. A failure names its case."""
    every = [*cases]
    assert every

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def all_of_them() -> None:
            for case in every:
                try:
                    test(*case) if isinstance(case, tuple) else test(case)
                except BaseException as error:
                    error.add_note(f"the case: {case!r}")
                    raise

        all_of_them.__name__, all_of_them.__doc__ = test.__name__, test.__doc__
        return all_of_them

    return decorate
