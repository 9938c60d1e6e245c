"""Walks up a call stack by the tables for exceptions (`.eh_frame`) of the programs and libraries,
as C++ does, and finds the names of functions. It reads files and copied memory only.

x86_64 and aarch64, 64-bit little-endian ELF.
"""

import mmap
import struct
from bisect import bisect_right
from typing import Any, Callable, NamedTuple, Optional

Registers = dict[int, int]
"""DWARF number of a register -> value; only those that are known."""
_Rule = tuple[str, Any]
_MOST_INSTRUCTIONS = 2000
_MOST_SYMBOLS = 400_000
_MASK = (1 << 64) - 1


class Machine(NamedTuple):
    """Which registers mean what, by their DWARF numbers."""

    stack: int
    back: int
    """Where the address lies to which the function returns."""
    frame: int
    saved: tuple[int, ...]
    """Registers that a function leaves as they were."""


MACHINES = {
    "x86_64": Machine(7, 16, 6, (3, 6, 12, 13, 14, 15)),
    "aarch64": Machine(31, 30, 29, tuple(range(19, 30))),
}


class UnwindError(Exception):
    """The stack cannot be followed further."""


class OutermostError(UnwindError):
    """This function was called by nobody: the stack is whole."""


class Mapping(NamedTuple):
    """One line of /proc/PID/maps."""

    start: int
    end: int
    flags: str
    offset: int
    path: str


class Elf:
    """A program or library: the names of its functions and how to leave them."""

    def __init__(self, data: Any) -> None:  # noqa: ANN401 - bytes or a map of a file
        self._data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise UnwindError("no 64-bit ELF")
        head = struct.unpack_from("<QQQ", data, 24)
        sizes = struct.unpack_from("<HHHHHH", data, 52)
        count = min(sizes[2], 256)
        rows = [struct.unpack_from("<IIQQQQQQ", data, head[1] + i * sizes[1]) for i in range(count)]
        self.loads = [(row[2], row[3], row[5]) for row in rows if row[0] == 1]
        """(offset in the file, address, size) of each part that is loaded."""
        self._table = next((row[3] for row in rows if row[0] == 0x6474E550), 0)
        self._sections = head[2], sizes[3], min(sizes[4], 1000)
        self._symbols: Optional[tuple[list[int], list[tuple[int, int]]]] = None

    @classmethod
    def open_file(cls, path: str) -> "Elf":
        """The same of a file; raises UnwindError, OSError."""
        with open(path, "rb") as file:  # noqa: PTH123 - a file of the rank, below its root
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError as error:  # an empty file
                raise UnwindError(str(error)) from error

    def bias_of(self, mapping: Mapping) -> int:
        """What is added to its addresses where this part of it is mapped."""
        for offset, address, size in self.loads:
            if offset - offset % 4096 <= mapping.offset < offset + size:
                return mapping.start - mapping.offset - (address - offset)
        raise UnwindError("not mapped as its headers say")

    def _at(self, address: int) -> int:
        """The place in the file of an address."""
        for offset, start, size in self.loads:
            if start <= address < start + size:
                return address - start + offset
        raise UnwindError("an address outside the file")

    # ---- names

    def name_of(self, address: int) -> str:
        """The function at this address; "" if the file names none."""
        if self._symbols is None:
            found = sorted(self._read_symbols())
            self._symbols = [row[0] for row in found], [(row[1], row[2]) for row in found]
        at = bisect_right(self._symbols[0], address) - 1
        if at < 0:
            return ""
        size, name = self._symbols[1][at]
        if size and address >= self._symbols[0][at] + size:
            return ""
        end = self._data.find(b"\0", name, name + 300)
        return bytes(self._data[name:end]).decode("utf-8", "replace")

    def _read_symbols(self) -> "list[tuple[int, int, int]]":
        """(address, size, place of the name) of each function."""
        place, size, count = self._sections
        rows = [
            struct.unpack_from("<IIQQQQIIQQ", self._data, place + i * size)
            for i in range(count if size >= 64 else 0)
        ]
        found: list[tuple[int, int, int]] = []
        for row in rows:
            if row[1] not in (2, 11) or row[6] >= len(rows) or row[9] != 24:  # tables of symbols
                continue
            names, most = rows[row[6]][4], min(row[5] // 24, _MOST_SYMBOLS)
            part = self._data[row[4] : row[4] + most * 24]
            found += [
                (value, length, names + name)
                for name, info, _, section, value, length in struct.iter_unpack("<IBBHQQ", part)
                if info & 15 in (2, 10) and section
            ]
        return found

    # ---- how to leave a function

    def entry_of(self, address: int) -> "Optional[_Entry]":
        """The entry of `.eh_frame` for this address; None if there is none."""
        if not self._table:
            return None
        place = self._at(self._table)
        data = self._data
        if data[place] != 1 or data[place + 3] != 0x3B or data[place + 2] not in (3, 0x0B):
            return None  # linkers write no other table
        (count,) = struct.unpack_from("<I", data, place + 8)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            (begins,) = struct.unpack_from("<i", data, place + 12 + 8 * middle)
            low, high = (middle + 1, high) if self._table + begins <= address else (low, middle)
        if not low:
            return None
        (entry,) = struct.unpack_from("<i", data, place + 12 + 8 * (low - 1) + 4)
        found = _Entry(data, self._at(self._table + entry), self._table + entry)
        return found if found.begins <= address < found.ends else None


class _Reader:
    """Reads numbers one after the other."""

    def __init__(self, data: Any, at: int) -> None:  # noqa: ANN401
        self.data, self.at = data, at

    def fixed(self, form: str) -> int:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return int(value)

    def unsigned(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 70:
                return value

    def signed(self) -> int:
        begin = self.at
        value = self.unsigned()
        bits = 7 * (self.at - begin)
        return value - (1 << bits) if value >> (bits - 1) else value

    def pointer(self, how: int, address: int) -> int:
        """A pointer in the encoding `how`; `address` is that of byte 0 of the data."""
        if how == 0xFF:
            return 0
        here = address + self.at
        forms = {0: "Q", 2: "H", 3: "I", 4: "Q", 0x0A: "h", 0x0B: "i", 0x0C: "q"}
        kind = how & 15
        if kind in (1, 9):
            value = self.unsigned() if kind == 1 else self.signed()
        elif kind in forms:
            value = self.fixed(forms[kind])
        else:
            raise UnwindError("a pointer of unknown form")
        return value + (here if how & 0x70 == 0x10 else 0)

    def block(self) -> bytes:
        size = self.unsigned()
        self.at += size
        return bytes(self.data[self.at - size : self.at])


class _Entry:
    """The entry of one function (FDE) with what it shares with others (CIE)."""

    def __init__(self, data: Any, place: int, address: int) -> None:  # noqa: ANN401
        self._data = data
        shift = address - place
        reader = _Reader(data, place)
        size = reader.fixed("I")
        self._end = reader.at + size
        common = reader.at
        common -= reader.fixed("I")
        self._read_common(_Reader(data, common), shift)
        self.begins = reader.pointer(self._how, shift)
        self.ends = self.begins + reader.pointer(self._how & 15, shift)
        if self._augmented:
            reader.block()
        self._program = reader.at

    def _read_common(self, reader: _Reader, shift: int) -> None:
        size = reader.fixed("I")
        end = reader.at + size
        if reader.fixed("I") != 0:
            raise UnwindError("no common entry")
        version = reader.fixed("B")
        stop = self._data.find(b"\0", reader.at, reader.at + 16)
        letters = bytes(self._data[reader.at : stop])
        reader.at = stop + 1
        self._code, self._unit = reader.unsigned(), reader.signed()
        self.back = reader.fixed("B") if version == 1 else reader.unsigned()
        self._how, self.signal = 0, False
        self._augmented = letters.startswith(b"z")
        begin = reader.at
        if self._augmented:
            length = reader.unsigned()
            begin = reader.at + length
            self._read_letters(letters, reader, shift)
        self._common = begin, end

    def _read_letters(self, letters: bytes, reader: _Reader, shift: int) -> None:
        for letter in letters[1:].decode("ascii", "replace"):
            if letter == "R":
                self._how = reader.fixed("B")
            elif letter == "P":
                reader.pointer(reader.fixed("B") & 0x7F, shift)
            elif letter == "L":
                reader.fixed("B")
            elif letter == "S":
                self.signal = True

    def rules_at(self, address: int) -> "dict[int, _Rule]":
        """Register -> how to find its value in the caller; -1 is the frame's own address (CFA)."""
        state = _Rules(self._code, self._unit)
        state.run(_Reader(self._data, self._common[0]), self._common[1], _MASK)
        state.first = dict(state.rules)
        state.at = self.begins
        state.run(_Reader(self._data, self._program), self._end, address)
        return state.rules


class _Rules:
    """Runs the instructions of an entry up to an address."""

    def __init__(self, code: int, unit: int) -> None:
        self._code, self._unit = code, unit
        self.at = 0
        self.rules: dict[int, _Rule] = {}
        self.first: dict[int, _Rule] = {}
        self._kept: list[dict[int, _Rule]] = []

    def run(self, reader: _Reader, end: int, address: int) -> None:
        for _ in range(_MOST_INSTRUCTIONS):
            if reader.at >= end or self.at > address:
                return
            code = reader.fixed("B")
            if code >> 6:
                self._short(code >> 6, code & 63, reader)
            elif code in _STEPS:
                self.at += reader.fixed(_STEPS[code]) * self._code
            else:
                self._long(code, reader)

    def _short(self, kind: int, low: int, reader: _Reader) -> None:
        if kind == 1:
            self.at += low * self._code
        elif kind == 2:
            self.rules[low] = ("at", reader.unsigned() * self._unit)
        else:
            self._restore(low)

    def _restore(self, register: int) -> None:
        if register in self.first:
            self.rules[register] = self.first[register]
        else:
            self.rules.pop(register, None)

    def _long(self, code: int, reader: _Reader) -> None:
        if code in (0x0A, 0x0B):
            self._keep(code)
        elif 0x0C <= code <= 0x13 and code != 0x10:
            self._frame(code, reader)
        elif code in _OF_REGISTER:
            self._register(code, reader)
        elif code == 0x2E:
            reader.unsigned()
        elif code not in (0, 0x2D):
            raise UnwindError(f"instruction {code:#x}")

    def _keep(self, code: int) -> None:
        if code == 0x0A:
            self._kept.append(dict(self.rules))
        elif self._kept:
            self.rules = self._kept.pop()

    def _frame(self, code: int, reader: _Reader) -> None:
        register, offset = self.rules.get(-1, ("", (0, 0)))[1] if code != 0x0F else (0, 0)
        if code == 0x0F:
            self.rules[-1] = ("value", reader.block())
            return
        if code in (0x0C, 0x0D, 0x12):
            register = reader.unsigned()
        if code in (0x0C, 0x0E):
            offset = reader.unsigned()
        elif code in (0x12, 0x13):
            offset = reader.signed() * self._unit
        self.rules[-1] = ("frame", (register, offset))

    def _register(self, code: int, reader: _Reader) -> None:
        register = reader.unsigned()
        if code == 0x06:
            self._restore(register)
        elif code == 0x08:
            self.rules.pop(register, None)
        elif code == 0x07:
            self.rules[register] = ("lost", None)
        elif code == 0x09:
            self.rules[register] = ("in", reader.unsigned())
        elif code in (0x10, 0x16):
            self.rules[register] = ("at-value" if code == 0x10 else "value", reader.block())
        else:
            factor = reader.unsigned() if code in (0x05, 0x14, 0x2F) else reader.signed()
            offset = (-factor if code == 0x2F else factor) * self._unit
            self.rules[register] = ("is" if code in (0x14, 0x15) else "at", offset)


_STEPS = {0x02: "B", 0x03: "H", 0x04: "I"}
_OF_REGISTER = (0x05, 0x06, 0x07, 0x08, 0x09, 0x10, 0x11, 0x14, 0x15, 0x16, 0x2F)
Memory = Callable[[int], int]
"""Reads 8 bytes at an address; raises UnwindError where nothing was copied."""


def leave_function(
    machine: Machine, elf: Elf, address: int, registers: Registers, memory: Memory
) -> "tuple[Registers, bool]":
    """The registers of the caller, and whether a signal interrupted it; `address` is the one in
    the function, as in the file. Raises UnwindError.
    """
    entry = elf.entry_of(address)
    if entry is None:
        return _by_frame_pointer(machine, registers, memory), False
    rules = entry.rules_at(address)
    if rules.get(entry.back, ("", None))[0] == "lost":
        raise OutermostError
    frame = _frame_address(rules, registers, memory)
    found = {number: registers[number] for number in machine.saved if number in registers}
    if machine.back == 30 and 30 in registers:  # a function that calls none keeps it there
        found[30] = registers[30]
    for number, (kind, what) in rules.items():
        if number >= 0:
            value = _value(kind, what, frame, registers, memory)
            found.pop(number, None)
            if value is not None:
                found[number] = value
    found[machine.stack] = frame
    if machine.back not in found:
        raise UnwindError("no address to return to")
    return found, entry.signal


def _by_frame_pointer(machine: Machine, registers: Registers, memory: Memory) -> Registers:
    frame = registers.get(machine.frame, 0)
    if frame <= registers.get(machine.stack, 0):
        raise UnwindError("no table and no frame pointer")
    return {
        machine.frame: memory(frame),
        machine.back: memory(frame + 8),
        machine.stack: frame + 16,
    }


def _frame_address(rules: "dict[int, _Rule]", registers: Registers, memory: Memory) -> int:
    kind, what = rules.get(-1, ("", None))
    if kind == "value":
        return _evaluate(what, [], registers, memory)
    if kind != "frame" or what[0] not in registers:
        raise UnwindError("a register that is not known")
    return (registers[what[0]] + int(what[1])) & _MASK


def _value(
    kind: str,
    what: Any,  # noqa: ANN401
    frame: int,
    registers: Registers,
    memory: Memory,
) -> Optional[int]:
    if kind == "at":
        return memory((frame + what) & _MASK)
    if kind == "is":
        return int((frame + what) & _MASK)
    if kind == "in":
        return registers.get(what)
    if kind in ("value", "at-value"):
        found = _evaluate(what, [frame], registers, memory)
        return memory(found) if kind == "at-value" else found
    return None


def _evaluate(program: bytes, stack: "list[int]", registers: Registers, memory: Memory) -> int:
    """The value of a DWARF expression."""
    reader = _Reader(program, 0)
    for _ in range(100):
        if reader.at >= len(program):
            break
        _operate(reader.fixed("B"), reader, stack, registers, memory)
    if not stack:
        raise UnwindError("an empty expression")
    return stack[-1] & _MASK


_TWO: "dict[int, Callable[[int, int], int]]" = {
    0x1A: lambda a, b: a & b,
    0x1C: lambda a, b: a - b,
    0x1E: lambda a, b: a * b,
    0x21: lambda a, b: a | b,
    0x22: lambda a, b: a + b,
    0x24: lambda a, b: a << (b & 63),
    0x25: lambda a, b: a >> (b & 63),
    0x2A: lambda a, b: int(a >= b),
    0x29: lambda a, b: int(a == b),
}
_CONSTANTS = {0x08: "B", 0x09: "b", 0x0A: "H", 0x0B: "h", 0x0C: "I", 0x0D: "i", 0x0E: "Q"}


def _operate(
    code: int, reader: _Reader, stack: "list[int]", registers: Registers, memory: Memory
) -> None:
    if 0x30 <= code <= 0x4F:
        stack.append(code - 0x30)
    elif code in _CONSTANTS:
        stack.append(reader.fixed(_CONSTANTS[code]))
    elif 0x70 <= code <= 0x8F and code - 0x70 in registers:
        stack.append((registers[code - 0x70] + reader.signed()) & _MASK)
    elif code in _TWO and len(stack) > 1:
        last = stack.pop()
        stack[-1] = _TWO[code](stack[-1], last) & _MASK
    elif stack:
        stack.append(_of_one(code, reader, stack.pop(), memory))
    else:
        raise UnwindError(f"operation {code:#x}")


def _of_one(code: int, reader: _Reader, value: int, memory: Memory) -> int:
    if code == 0x06:
        return memory(value)
    if code == 0x23:
        return value + reader.unsigned()
    raise UnwindError(f"operation {code:#x}")
