"""Keys that move, the same in every list, log and page."""

FAR = 1 << 40
"""Further than anything is long."""


def steps(key: str, page: int) -> int | None:
    """How many lines down this key goes; None where it is no such key."""
    return {
        "down": 1, "j": 1, "up": -1, "k": -1, "pagedown": page, "space": page, "pageup": -page, "b": -page,
        "home": -FAR, "g": -FAR, "end": FAR, "G": FAR, "upper_g": FAR,
    }.get(key)  # fmt: skip


def aside(key: str, step: int) -> int | None:
    """How many cells to the right this key goes; None where it is no such key."""
    return {"right": step, "left": -step}.get(key)


def beside(key: str) -> tuple[int, int] | None:
    """To which neighbour in a grid this key goes: columns, rows."""
    return {
        "left": (-1, 0), "right": (1, 0), "down": (0, 1), "j": (0, 1), "up": (0, -1), "k": (0, -1),
    }.get(key)  # fmt: skip
