"""Where the panes of a wall are, and which ranks are on which page."""

from dataclasses import dataclass

MOST = 16
LEAST_WIDTH, LEAST_HEIGHT = 36, 4
SIZES = (1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 25, 30, 36, 49, 64)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


def grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Columns and rows for `count` panes, so that lines stay as long as they can."""
    best, best_score = (1, count), -100.0
    for columns in range(1, count + 1):
        rows = -(-count // columns)
        w, h = width // columns, height // rows
        waste = columns * rows - count
        tight = w < LEAST_WIDTH or h < LEAST_HEIGHT
        score = (0.0 if not tight else -10.0) + min(w / 76, 1.2) * min(h / 8, 1.6) - 0.15 * waste
        if score > best_score:
            best, best_score = (columns, rows), score
    return best


def boxes(count: int, width: int, height: int) -> tuple[Box, ...]:
    """A box per pane, filling the wall."""
    if not count or width < 1 or height < 1:
        return ()
    columns, rows = grid(count, width, height)
    made: list[Box] = []
    for index in range(count):
        row, column = divmod(index, columns)
        in_row = min(columns, count - row * columns)
        x, right = width * column // in_row, width * (column + 1) // in_row
        y, below = height * row // rows, height * (row + 1) // rows
        made.append(Box(x, y, right - x, below - y))
    return tuple(made)


def fitting(ranks: int, width: int, height: int) -> int:
    """Panes a page should have here."""
    room = max(width // LEAST_WIDTH, 1) * max(height // LEAST_HEIGHT, 1)
    return max(min(ranks, MOST, room), 1)
