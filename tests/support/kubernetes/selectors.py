"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable

Json = dict
_SET = re.compile(r"\s*(!?)([\w./-]+)\s*(?:\s(in|notin)\s*\(([^)]*)\)|(==|=|!=)\s*([^,]*))?\s*")


def chosen(labels: str, fields: str) -> Callable[[Json], bool]:
    """Whether an object matches both selectors; an empty selector matches all."""
    tests = [_label_test(part) for part in _parts(labels)]
    tests += [_field_test(part) for part in _parts(fields)]
    return lambda found: all(test(found) for test in tests)


def _parts(selector: str) -> list[str]:
    return [part for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _label_test(part: str) -> Callable[[Json], bool]:
    match = _SET.fullmatch(part)
    if match is None:
        return lambda found: False
    negated, key, word, values, sign, value = match.groups()
    wanted = {v.strip() for v in (values or "").split(",")} if word else {(value or "").strip()}

    def test(found: Json) -> bool:
        has = (found["metadata"].get("labels") or {}).get(key)
        if not word and not sign:
            return (has is None) if negated else (has is not None)
        return (has in wanted) != (word == "notin" or sign == "!=")

    return test


def _field_test(part: str) -> Callable[[Json], bool]:
    path, sign, value = re.split(r"(==|!=|=)", part, maxsplit=1)

    def test(found: Json) -> bool:
        at: object = found
        for name in path.strip().split("."):
            at = at.get(name) if isinstance(at, dict) else None
        return (str(at or "") == value.strip()) != (sign == "!=")

    return test
