"""Messages to the supervisor of a job: from where each comes, and whether it may come from there.

Ranks and launchers write to a FIFO, which any process of the job can open: they are believed only
about themselves. Commands of the agent, and the keeper, use a socket: the kernel tells which
process is at its other end.
"""

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.older_python import delete_file
from rankdeck_agent.text import plain_line
from rankdeck_agent.wire.job_events import Part, may_say
from rankdeck_agent.wire.run_folder import CONTROL, ORDERS

COMMAND = "command"
"""Sender of a message: a command of the agent that is no process
of the job, such as `job cancel`.
"""
_COMMANDS = frozenset({"cancel", "daemon", "answer"})
_KEEPERS = frozenset({"again", "trouble", "waits"})
_LONGEST = 1 << 16
_MOST_WAITING = 64
_PATIENCE = 5.0
"""Seconds in which a process that has connected must have written its message."""
ANSWER_LIMIT = 15.0
"""Seconds that a command waits for the supervisor to take its message."""
_CANCEL_LIMIT = 1.0
_CREDENTIALS = struct.Struct("3i")
"""As the kernel gives SO_PEERCRED: pid, uid, gid; pid 0 is a
process that cannot be seen from here.
"""


class Message(NamedTuple):
    """A message, and who sent it: COMMAND, or the value of a Part."""

    sender: str
    verb: str
    words: "list[str]"


def is_allowed(message: Message) -> bool:
    """Whether a sender may send messages with this verb."""
    if message.sender == COMMAND:
        return message.verb in _COMMANDS
    if message.sender == Part.KEEPER.value:
        return message.verb in _KEEPERS
    return may_say(Part.RANK, "", message.verb)


class RankMessages:
    """The supervisor's end of the FIFO."""

    def __init__(self, folder: RunFolder) -> None:
        # Opened for reading and writing: then there is no end of file
        # when the last writer closes it.
        self.fd = os.open(folder / CONTROL, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def read(self) -> "list[Message]":
        """The messages that have arrived."""
        try:
            data = os.read(self.fd, _LONGEST)
        except BlockingIOError:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST]
        return [_message(Part.RANK.value, line) for line in lines if line.strip()]


class Orders:
    """The supervisor's end of the socket."""

    def __init__(
        self, folder: RunFolder, keepers: Collection[int], selector: selectors.BaseSelector
    ) -> None:
        """`keepers`: pids of the keepers that the supervisor has started, always up to date."""
        self._folder, self._keepers, self._selector = folder, keepers, selector
        self.cancellers: set[int] = set()
        """Pids of children of the supervisor that cancel the job on its behalf."""
        self._waiting: dict[socket.socket, float] = {}
        """Connection without a message yet -> when it was made, in monotonic seconds."""
        with _short(folder.path) as place:
            delete_file(folder / ORDERS)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(f"{place}/{ORDERS}")
        self._listener.listen(_MOST_WAITING)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ)

    def read(self) -> "list[Message]":
        """The messages that have arrived; each sender is told whether it may send what it sent."""
        self._accept()
        found: list[Message] = []
        now = time.monotonic()
        for connection, since in list(self._waiting.items()):
            try:
                data = connection.recv(_LONGEST)
            except BlockingIOError:
                if now - since <= _PATIENCE:
                    continue
                data = b""
            except OSError:
                data = b""
            if data:
                message = _message(self._sender(connection), data.partition(b"\n")[0])
                found.append(message)
                with contextlib.suppress(OSError):
                    connection.send(b"ok\n" if is_allowed(message) else b"no\n")
            self._selector.unregister(connection)
            del self._waiting[connection]
            connection.close()
        return found

    def _accept(self) -> None:
        while len(self._waiting) < _MOST_WAITING:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            self._waiting[connection] = time.monotonic()
            self._selector.register(connection, selectors.EVENT_READ)

    def _sender(self, connection: socket.socket) -> str:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if pid in self._keepers:
            return Part.KEEPER.value
        if pid in self.cancellers or pid == 0:
            return COMMAND if uid in (0, os.geteuid()) else Part.RANK.value
        return Part.RANK.value if self._is_of_job(pid) else COMMAND

    def _is_of_job(self, pid: int) -> bool:
        """Whether it is a process of the job: marked as one, or a descendant of
        the supervisor, which adopts orphans.
        """
        if processes.is_marked(pid, self._folder.job, self._folder.node):
            return True
        row, seen = processes.find_process(pid), set[int]()
        while row is not None and row.pid not in seen:
            if row.ppid == os.getpid():
                return True
            seen.add(row.pid)
            row = processes.find_process(row.ppid)
        # A sender that has ended cannot be looked at: those who may send wait for the answer.
        return row is None and not seen


def _message(sender: str, line: bytes) -> Message:
    verb, *words = line.decode("utf-8", "replace").split() or [""]
    return Message(sender, plain_line(verb, 20), words)


@contextmanager
def _short(folder: Path) -> Generator[str, None, None]:
    """A path of this folder that fits into the address of a socket, which has at most 107 bytes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def _sent(folder: RunFolder, line: str) -> Optional[socket.socket]:
    """The connection on which the message went to the supervisor; None if nobody reads it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder.path) as place:
            connection.connect(f"{place}/{ORDERS}")
        connection.sendall(line.encode()[:2000] + b"\n")
    except OSError:
        connection.close()
        return None
    return connection


def give_order(folder: RunFolder, line: str, limit: float = ANSWER_LIMIT) -> bool:
    """Send one line to the supervisor; False if none took it within
    `limit` seconds, or if it refused it.
    """
    connection = _sent(folder, line)
    if connection is None:
        return False
    with connection:
        connection.settimeout(limit)
        try:
            return connection.recv(16) == b"ok\n"
        except OSError:
            return False


_OPEN: "list[socket.socket]" = []
"""Connections on which nobody waits for an answer any more.

They stay open, and so their sender can be looked at.
"""


def tell_of_cancel(folder: RunFolder, grace: float, by: str) -> None:
    """Tell the supervisor, if there is one, that the job is being ended from now on;
    a supervisor that hangs is not awaited.
    """
    connection = _sent(folder, f"cancel {grace} {by}")
    if connection is None:
        return
    _OPEN.append(connection)
    connection.settimeout(_CANCEL_LIMIT)
    with contextlib.suppress(OSError):
        connection.recv(16)
