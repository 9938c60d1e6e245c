"""Many regular expressions tried on one text, quickly: each only if a text
is there that all of its matches have. Only then is it compiled, too.
"""

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Callable

if sys.version_info >= (3, 11):
    from re import _parser  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownVariableType]

    _parse: Callable[[str], Any] = _parser.parse  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
else:
    from sre_parse import parse as _parse


def words_of(pattern: str) -> tuple[str, ...]:
    """Texts of which each match has at least one; () if there are none,
    so that the pattern is always tried.

    Looking for a text is much cheaper than trying a pattern. The
    texts follow from the pattern itself.
    """
    return _texts(_parse(pattern))


def _texts(parsed: Any) -> tuple[str, ...]:  # noqa: ANN401 - the parser has no types
    """Of the texts that this sequence cannot do without, the longest."""
    choices: list[tuple[str, ...]] = []
    run = ""
    for what, value in parsed:
        kind = what.name
        if kind == "LITERAL":
            run += chr(value)
            continue
        choices.append((run,))
        run = ""
        if kind in ("SUBPATTERN", "MAX_REPEAT") and (kind == "SUBPATTERN" or value[0]):
            choices.append(_texts(value[-1]))
        elif kind == "BRANCH":
            branches = [_texts(branch) for branch in value[1]]
            choices.append(tuple(text for texts in branches for text in texts or ("",)))
    choices.append((run,))
    best = max(choices, key=lambda texts: min(map(len, texts), default=0))
    return best if all(best) else ()


@lru_cache(maxsize=None)
def _tried(patterns: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each pattern with the texts that it needs; worked out at the first line."""
    return tuple((pattern, words_of(pattern)) for pattern in patterns)


_compiled = lru_cache(maxsize=None)(re.compile)


def match_patterns(
    patterns: tuple[str, ...], message: str
) -> "Iterator[tuple[int, re.Match[str]]]":
    """(place, match) of each pattern that matches; a pattern is only
    tried if a text that it needs is there.
    """
    # Loops and no `any`: this runs for each line and pattern.
    for place, (pattern, words) in enumerate(_tried(patterns)):
        for word in words:
            if word in message:
                break
        else:
            if words:
                continue
        found = _compiled(pattern).search(message)
        if found:
            yield place, found
