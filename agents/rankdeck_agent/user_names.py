"""The names of users, by their number."""

import pwd
from functools import lru_cache


def user_name(number: int) -> str:
    """The name of the user with this id, or the id as text if there is no such user."""
    try:
        return _known_name(number)
    except KeyError:
        return str(number)


@lru_cache(256)
def _known_name(number: int) -> str:
    # A KeyError is not cached: a process that lives for weeks must not keep
    # the answer of a directory that was down.
    return pwd.getpwuid(number).pw_name
