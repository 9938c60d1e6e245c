"""Where the main thread of a process is: the functions of C, C++ and Fortran, outermost last.

A process that sleeps in the kernel outside of MPI is read as it is. Another one is stopped for as
long as it takes to copy its registers and its stack (about a millisecond), and only then unwound.
"""

import ctypes
import os
import platform
import re
import signal
import struct
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rankdeck_agent.job.unwind import (
    MACHINES,
    Elf,
    Mapping,
    OutermostError,
    Registers,
    UnwindError,
    leave_function,
)
from rankdeck_agent.text import plain_line

_PROC = Path("/proc")
_SEIZE, _INTERRUPT, _GET_SET, _DETACH = 0x4206, 0x4207, 0x4204, 17
_STATUS = 1
"""The set of general registers (NT_PRSTATUS)."""
_ALL = 0x40000000
"""waitpid: children and traced processes of any kind (__WALL)."""
_STOP_LIMIT = 1.0
_TURN, _TURN_LIMIT = 0.002, 1.0
"""Seconds between two tries to trace a process that another one traces, and for all tries."""
_REFUSALS = 3
"""After more than so many refusals in a row while nobody traces the process, we may not."""
_ALL_LIMIT = 2.0
_MOST_STACK = 1 << 18
_MOST_DATA = 1 << 20
_MOST_FRAMES = 60
_MOST_FILES = 64
_X86_ORDER = (15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5, None, 16, None, None, 7)
"""DWARF numbers of the registers in the order in which the kernel gives them."""
_ENTERED = re.compile(r"(?:ompi_|p)?mpi_[a-z_0-9]+$", re.IGNORECASE)
"""A function of MPI. MPI_Finalize of Open MPI jumps to `ompi_mpi_finalize` and leaves no frame."""
_PYTHON = re.compile(r"/(?:lib)?python[\d.]*(?:m?\.so[\d.]*)?$")
_ADDRESS = (1 << 48) - 1
"""Above these bits an address may be signed on aarch64."""


class StackError(Exception):
    """Why there is no stack."""


class NativeStack(NamedTuple):
    """Where a process was at one moment."""

    frames: "list[tuple[str, str]]"
    """(function, file of the program or library), innermost first; a function without a name is
    `+0x1234`."""
    entered: str
    """The function of MPI in which the program waits or works; "" if it is in none."""
    mark: int
    """Changes whenever the program did anything of its own: its variables on the stack, its
    registers, its static data. Equal marks: it stood still."""


class NativeReader:
    """Reads stacks; keeps the tables of programs and libraries for the next rank."""

    def __init__(self) -> None:
        self._machine = MACHINES.get(platform.machine())
        self._files: dict[tuple[str, int, int], Optional[Elf]] = {}

    def read(self, pid: int) -> NativeStack:
        """The stack of the main thread of this process; raises StackError."""
        if self._machine is None:
            raise StackError(f"stacks of {platform.machine()} are not read")
        try:
            return self._read(pid)
        except PermissionError:
            raise StackError("ptrace is not permitted") from None
        except (OSError, UnwindError, IndexError, ValueError, struct.error) as error:
            raise StackError(f"not readable: {error}") from error

    def _read(self, pid: int) -> NativeStack:
        assert self._machine is not None
        with (_PROC / str(pid) / "mem").open("rb", 0) as memory:
            maps = _read_maps(pid)
            asleep = _registers_asleep(pid, self._machine.stack, self._machine.back)
            if asleep:
                found = self._walk(
                    pid, maps, asleep, _Copy(memory.fileno(), maps, asleep[self._machine.stack])
                )
                again = _registers_asleep(pid, self._machine.stack, self._machine.back)
                if found.whole and again == asleep:
                    told = found.told(memory.fileno(), maps)
                    # Within MPI it may sleep now and poll at the next look: always all registers.
                    if not told.entered:
                        return told
            with _stopped(pid):
                registers = _read_registers(pid)
                copy = _Copy(memory.fileno(), maps, registers[self._machine.stack])
            return self._walk(pid, maps, registers, copy).told(memory.fileno(), maps)

    def _walk(
        self, pid: int, maps: "list[Mapping]", registers: Registers, copy: "_Copy"
    ) -> "_Walk":
        assert self._machine is not None
        walk = _Walk(copy, registers, self._machine.stack)
        asked = registers[self._machine.back] & _ADDRESS
        interrupted = True  # the innermost address is that of the next instruction itself
        for _ in range(_MOST_FRAMES):
            within = asked if interrupted else asked - 1
            mapping = next((one for one in maps if one.start <= within < one.end), None)
            if mapping is None or "x" not in mapping.flags:
                walk.whole = False
                break
            elf = self._file(pid, mapping)
            address = within - elf.bias_of(mapping) if elf else within
            name = elf.name_of(address) if elf else ""
            walk.add(
                name or f"+{within - mapping.start + mapping.offset:#x}",
                mapping.path,
                asked,
                registers,
            )
            if elf is None:
                walk.whole = False
                break
            try:
                registers, interrupted = leave_function(
                    self._machine, elf, address, registers, copy.word
                )
            except UnwindError as error:
                walk.whole = isinstance(error, OutermostError)
                break
            asked = registers[self._machine.back] & _ADDRESS
        return walk

    def _file(self, pid: int, mapping: Mapping) -> Optional[Elf]:
        path = f"{_PROC}/{pid}/root{mapping.path}"
        if mapping.path == "[vdso]":
            return self._vdso(pid, mapping)
        if not mapping.path.startswith("/"):
            return None
        try:
            about = Path(path).stat()
            key = (mapping.path, about.st_ino, about.st_mtime_ns)
            if key not in self._files and len(self._files) < _MOST_FILES:
                self._files[key] = Elf.open_file(path)
            return self._files.get(key)
        except (OSError, UnwindError, struct.error):
            return None

    def _vdso(self, pid: int, mapping: Mapping) -> Optional[Elf]:
        with (_PROC / str(pid) / "mem").open("rb", 0) as memory:
            try:
                return Elf(
                    os.pread(
                        memory.fileno(), min(mapping.end - mapping.start, 1 << 16), mapping.start
                    )
                )
            except (OSError, UnwindError, struct.error):
                return None


def read_native_stacks(mains: "dict[int, int]") -> "dict[int, dict[str, Any]]":
    """Rank -> `frames` and `entered` of its process, of those that can be read in time."""
    reader, deadline = NativeReader(), time.monotonic() + _ALL_LIMIT
    found: dict[int, dict[str, Any]] = {}
    for rank, pid in sorted(mains.items()):
        if time.monotonic() > deadline:
            break
        with suppress(StackError):
            stack = reader.read(pid)
            frames = [[name, file] for name, file in stack.frames]
            found[rank] = {"frames": frames, "entered": stack.entered}
    return found


class _Copy:
    """The part of the stack that is in use."""

    def __init__(self, memory: int, maps: "list[Mapping]", begin: int) -> None:
        mapping = next((one for one in maps if one.start <= begin < one.end), None)
        if mapping is None:
            raise UnwindError("the stack is not mapped")
        self.begin = begin
        self.data = os.pread(memory, min(mapping.end - begin, _MOST_STACK), begin)

    def word(self, address: int) -> int:
        at = address - self.begin
        if not 0 <= at <= len(self.data) - 8:
            raise UnwindError("outside the copied stack")
        return int.from_bytes(self.data[at : at + 8], "little")


class _Walk:
    """The frames of one stack as they are found, innermost first."""

    def __init__(self, copy: _Copy, registers: Registers, stack: int) -> None:
        self._copy, self._stack = copy, stack
        self._frames: list[tuple[str, str]] = []
        self._own = [registers]
        """The registers in each frame."""
        self._asked: list[int] = []
        self.whole = True
        """Whether it could be followed to its end."""
        self._registers: list[Registers] = []

    def add(self, name: str, path: str, asked: int, registers: Registers) -> None:
        self._frames.append((plain_line(name, 200), plain_line(path.rpartition("/")[2], 100)))
        self._asked.append(asked)
        self._registers.append(registers)

    def told(self, memory: int, maps: "list[Mapping]") -> NativeStack:
        entries = [at for at, (name, _) in enumerate(self._frames) if _ENTERED.match(name)]
        entered = self._frames[entries[-1]][0] if entries else ""
        if not entered and not self.whole:
            raise UnwindError("not followed to its end")  # it may be in MPI further out
        # What MPI itself does while it waits is no work of the program.
        first = entries[-1] + 1 if entries else 0
        mark = self._mark(first)
        inside = {self._frames[at][1] for at in entries}
        for data in _own_data(memory, maps, inside):
            mark = zlib.crc32(data, mark)
        return NativeStack(self._frames, entered, mark)

    def _mark(self, first: int) -> int:
        if first >= len(self._registers):
            return zlib.crc32(repr(self._asked).encode())
        registers = self._registers[first]
        known = repr([sorted(registers.items()), self._asked[first:]])
        used = self._copy.data[max(0, registers[self._stack] - self._copy.begin) :]
        return zlib.crc32(used, zlib.crc32(known.encode()))


def _own_data(memory: int, maps: "list[Mapping]", inside: "set[str]") -> Iterator[bytes]:
    """The static data of the program itself, unless MPI or Python are part of it."""
    program = maps[0].path if maps else ""
    if (
        not program.startswith("/")
        or _PYTHON.search(program)
        or program.rpartition("/")[2] in inside
    ):
        return
    end = 0
    for one in maps:
        is_own = one.path == program or (not one.path and one.start == end)
        if is_own:
            end = one.end
            if "w" in one.flags:
                yield os.pread(memory, min(one.end - one.start, _MOST_DATA), one.start)


def _read_maps(pid: int) -> "list[Mapping]":
    found: list[Mapping] = []
    for line in (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()[:20000]:
        place, flags, offset, _, _, path = [*line.split(None, 5), ""][:6]
        start, _, end = place.partition("-")
        found.append(Mapping(int(start, 16), int(end, 16), flags, int(offset, 16), path))
    return found


def _registers_asleep(pid: int, stack: int, back: int) -> Optional[Registers]:
    """The two registers that /proc shows of a process that sleeps in a system call, else None."""
    words = (_PROC / str(pid) / "syscall").read_bytes()[:300].split()
    if len(words) != 9:
        return None
    return {stack: int(words[7], 16), back: int(words[8], 16)}


# ---- ptrace


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.restype = ctypes.c_long
    library.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return library


def _trace(request: int, pid: int, address: int = 0, data: Optional[int] = None) -> None:
    if _library().ptrace(request, pid, address, data) == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextmanager
def _stopped(pid: int) -> Generator[None, None, None]:
    """Stop the process for a moment; if we die, the kernel lets it go on."""
    _seize(pid)
    held = 0
    try:
        _trace(_INTERRUPT, pid)
        held = _wait_for_stop(pid)
        yield
    finally:
        _trace(_DETACH, pid, 0, held)


def _seize(pid: int) -> None:
    """Begin to trace it; if another one reads its stack just now, after that one."""
    deadline = time.monotonic() + _TURN_LIMIT
    alone = 0
    while True:
        try:
            _trace(_SEIZE, pid)
        except PermissionError:
            # The other one may have let it go between the two calls.
            alone = 0 if _is_traced(pid) else alone + 1
            if alone > _REFUSALS or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_TURN)


def _is_traced(pid: int) -> bool:
    lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    return any(
        line.split() != ["TracerPid:", "0"] for line in lines if line.startswith("TracerPid")
    )


def _wait_for_stop(pid: int) -> int:
    """The signal that stopped it instead, to be passed on; 0 if it was we. Raises UnwindError."""
    deadline = time.monotonic() + _STOP_LIMIT
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG | _ALL)
        if found and os.WIFSTOPPED(status):
            number = os.WSTOPSIG(status)
            return 0 if status >> 16 or number == signal.SIGTRAP else number
        if found:
            raise UnwindError("it has ended")
        time.sleep(0.0005)
    raise UnwindError("it does not stop")


def _read_registers(pid: int) -> Registers:
    buffer = ctypes.create_string_buffer(1024)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), len(buffer))
    _trace(_GET_SET, pid, _STATUS, ctypes.addressof(vector))
    words = struct.unpack_from(f"<{vector[1] // 8}Q", buffer)
    if platform.machine() == "x86_64":
        return {name: word for name, word in zip(_X86_ORDER, words) if name is not None}
    registers = dict(enumerate(words[:32]))
    registers[_COUNTER] = words[32]
    return registers


_COUNTER = -2
"""Where the program counter of aarch64 stands among the registers."""
