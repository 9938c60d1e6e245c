"""Log text as the screens show it."""

from rankdeck.model.text import printable as clean

__all__ = ["clean"]
