"""How a process ended, in words."""

import signal

SHELL_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a program."""
_SIGNALS = frozenset(signal.Signals)


def exit_status(code: int | None, number: int | None) -> int:
    """The status as a shell gives it: 128 + signal, else the code, else 1 if it is not known."""
    if number is not None:
        return SHELL_SIGNAL + number
    return 1 if code is None else code


def signal_of(code: int | None, number: int | None) -> int | None:
    """The signal that ended a process, also where a container runtime turned it into an exit code."""
    if number is not None or code is None:
        return number
    found = code - SHELL_SIGNAL
    return found if found in _SIGNALS else None


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 64` where it has no name."""
    known = number in _SIGNALS
    return signal.Signals(number).name if known else f"signal {number}"


def how_it_ended(exit_code: int | None, number: int | None) -> str:
    """`exit 3`, `signal 9 (SIGKILL)`."""
    if number:
        name = signal_name(number)
        return f"signal {number} ({name})" if name.startswith("SIG") else name
    return "ended, nobody knows how" if exit_code is None else f"exit {exit_code}"
