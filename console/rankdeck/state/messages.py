"""The newest log records of Rankdeck itself, for the messages screen."""

import logging
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message. `at` is epoch seconds; `source` a node, a job or a part of Rankdeck."""

    at: float
    level: str
    source: str
    text: str


class Messages(logging.Handler):
    """A log handler that keeps the last messages of the `rankdeck` loggers."""

    def __init__(self, keep: int = 2000) -> None:
        super().__init__(logging.INFO)
        self.records: deque[LogMessage] = deque(maxlen=keep)
        self.total = 0
        """Messages ever received: changes exactly when there is something new."""

    def emit(self, record: logging.LogRecord) -> None:
        source = getattr(record, "source", record.name.rpartition(".")[2])
        text = record.getMessage().replace("\n", " · ")
        self.records.append(LogMessage(record.created, record.levelname.lower(), source, text))
        self.total += 1
