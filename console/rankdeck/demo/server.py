"""The SSH server of one virtual node: `python -m rankdeck.demo.server ROOT NAME PORT READY`."""

import asyncio
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path

import asyncssh

from rankdeck.demo.cluster import DemoFolders, demo_environment

_BLOCK = 65536
_SHELL = "/bin/sh"
_STDERR = 1
"""The extended data type of stderr (RFC 4254)."""


class RemoteCommand(asyncssh.SSHServerSession[bytes]):
    """A session: at most one command, with pipes or a terminal."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._loop = asyncio.get_running_loop()
        self._argv: tuple[str, ...] = ()
        self._terminal: tuple[int, int] | None = None
        self._stdin: _Sink | None = None
        self._outputs: dict[int, int | None] = {}
        """Descriptor -> extended data type of the bytes read from it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    # ---- what the client asks for -----------------------------------------------------

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        self._environment["TERM"] = term_type
        self._terminal = os.openpty()
        _resize(self._terminal[0], term_size[0], term_size[1])
        return True

    def exec_requested(self, command: str) -> bool:
        self._argv = (_SHELL, "-c", command)
        return True

    def shell_requested(self) -> bool:
        self._argv = (_SHELL, "-l")
        return True

    def session_started(self) -> None:
        try:
            self._start_on_terminal() if self._terminal else self._start_on_pipes()
        except OSError as error:
            self._channel.write_stderr(f"{error}\n".encode())
            self._channel.exit(127)

    # ---- start ------------------------------------------------------------------------

    def _start_on_pipes(self) -> None:
        process = self._spawn(subprocess.PIPE, subprocess.PIPE, subprocess.PIPE, None)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._stdin = _Sink(self._loop, os.dup(process.stdin.fileno()), self._hold)
        process.stdin.close()
        self._listen(os.dup(process.stdout.fileno()), None)
        self._listen(os.dup(process.stderr.fileno()), _STDERR)
        process.stdout.close()
        process.stderr.close()

    def _start_on_terminal(self) -> None:
        assert self._terminal
        master, slave = self._terminal
        self._spawn(slave, slave, slave, _take_terminal)
        os.close(slave)
        self._stdin = _Sink(self._loop, os.dup(master), self._hold)
        self._listen(master, None)

    def _spawn(
        self, stdin: int, stdout: int, stderr: int, prepare: Callable[[], None] | None
    ) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            self._argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=self._environment,
            cwd=self._environment["HOME"],
            start_new_session=True,
            preexec_fn=prepare,  # one system call, safe beside the resolver's threads
        )
        watch = os.pidfd_open(self._process.pid)
        self._loop.add_reader(watch, self._exited, watch)
        return self._process

    # ---- while it runs ----------------------------------------------------------------

    def _listen(self, output: int, kind: int | None) -> None:
        os.set_blocking(output, False)
        self._outputs[output] = kind
        self._loop.add_reader(output, self._readable, output)

    def _readable(self, output: int) -> None:
        try:
            data = os.read(output, _BLOCK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose last user is gone says EIO
            data = b""
        if data and not self._channel.is_closing():
            self._channel.write(data, self._outputs[output])  # pyright: ignore[reportUnknownMemberType]
            return
        self._loop.remove_reader(output)
        del self._outputs[output]
        os.close(output)
        self._finish()

    def _exited(self, watch: int) -> None:
        self._loop.remove_reader(watch)
        os.close(watch)
        self._ended = True
        self._finish()

    def _finish(self) -> None:
        """Report the exit status when the command has ended and all its output was sent."""
        if not self._process or not self._ended or self._outputs:
            return
        status = self._process.wait()
        self._close_stdin()
        if self._channel.is_closing():
            return
        if status < 0:
            name = signal.Signals(-status).name.removeprefix("SIG")
            self._channel.exit_with_signal(name)
        else:
            self._channel.exit(status)

    def _hold(self, *, full: bool) -> None:
        self._channel.pause_reading() if full else self._channel.resume_reading()

    def _close_stdin(self) -> None:
        if self._stdin:
            self._stdin.end()
            self._stdin = None

    # ---- what the client sends --------------------------------------------------------

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self._stdin:
            self._stdin.write(data)

    def eof_received(self) -> bool:
        if not self._terminal:
            self._close_stdin()
        return True

    def signal_received(self, signal: str) -> None:
        self._send_signal(f"SIG{signal}")

    def break_received(self, msec: int) -> bool:
        self._send_signal("SIGINT")
        return True

    def _send_signal(self, name: str) -> None:
        number = getattr(signal, name, None)
        if self._process and not self._ended and isinstance(number, signal.Signals):
            os.killpg(self._process.pid, number)

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._terminal and not self._ended:
            _resize(self._terminal[0], width, height)

    def pause_writing(self) -> None:
        for output in self._outputs:
            self._loop.remove_reader(output)

    def resume_writing(self) -> None:
        for output in self._outputs:
            self._loop.add_reader(output, self._readable, output)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the pipes and the terminal, which is the only way in which the command notices."""
        self._close_stdin()
        for output in tuple(self._outputs):
            self._loop.remove_reader(output)
            del self._outputs[output]
            os.close(output)
        self._finish()


class _Sink:
    """Writes to a descriptor without blocking; calls `hold` when too many bytes wait."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, hold: Callable[..., None]
    ) -> None:
        self._loop, self._descriptor, self._hold = loop, descriptor, hold
        self._waiting = bytearray()
        self._ending = self._closed = False
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        """Write now, or as soon as there is room."""
        if self._closed or self._ending:
            return
        idle = not self._waiting
        self._waiting += data
        if idle:
            self._flush()
            if self._waiting:
                self._loop.add_writer(self._descriptor, self._flush)
                self._hold(full=True)

    def end(self) -> None:
        """Close the descriptor when everything is written."""
        self._ending = True
        if not self._waiting:
            self._close()

    def _flush(self) -> None:
        try:
            del self._waiting[: os.write(self._descriptor, self._waiting[:_BLOCK])]
        except BlockingIOError:
            return
        except OSError:  # nobody reads any more
            self._waiting.clear()
            self._ending = True
        if not self._waiting:
            self._loop.remove_writer(self._descriptor)
            # Reading continues at once, and may bring more bytes before this returns.
            self._hold(full=False)
            if self._ending and not self._waiting:
                self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _resize(terminal: int, width: int, height: int) -> None:
    size = struct.pack("HHHH", height or 24, width or 80, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = ("localhost", _LOOPBACK)


class NodeServer(asyncssh.SSHServer):
    """Runs commands for clients with the key; forwards only to and from loopback."""

    def __init__(self, layout: DemoFolders, name: str) -> None:
        self._environment = demo_environment(layout, name)

    def session_requested(self) -> RemoteCommand:
        return RemoteCommand(self._environment)

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return listen_host in _LOOPBACK_NAMES

    def unix_server_requested(self, listen_path: str) -> bool:
        return True

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        return dest_host in _LOOPBACK_NAMES

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


async def listen_ssh(layout: DemoFolders, name: str, port: int) -> asyncssh.SSHAcceptor:
    """Listen on loopback, on `port`, or on a free port if that is in use."""
    try:
        return await _listen(layout, name, port)
    except OSError:
        return await _listen(layout, name, 0)


async def _listen(layout: DemoFolders, name: str, port: int) -> asyncssh.SSHAcceptor:
    return await asyncssh.create_server(
        lambda: NodeServer(layout, name),
        _LOOPBACK,
        port,
        server_host_keys=[str(layout.host_key(name))],
        authorized_client_keys=str(layout.authorized),
        password_auth=False,
        kbdint_auth=False,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
    )


async def serve_ssh(layout: DemoFolders, name: str, port: int, ready: int) -> None:
    """Listen, report that as a line of JSON on the descriptor `ready`, and serve forever."""
    acceptor = await listen_ssh(layout, name, port)
    os.write(ready, json.dumps({"port": str(acceptor.get_port())}).encode() + b"\n")
    os.close(ready)
    await acceptor.wait_closed()


def main() -> None:
    """Serve until killed."""
    root, name, port, ready = sys.argv[1:]
    asyncio.run(serve_ssh(DemoFolders(Path(root)), name, int(port), int(ready)))


if __name__ == "__main__":
    main()
