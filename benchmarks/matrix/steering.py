"""Text that steers a terminal, and a check of the bytes that reached one."""

import re
from collections.abc import Iterator, Sequence

MARK = "31337"
"""A parameter of every CSI that we plant: no program of ours ever writes it."""
SHOWN = "planted"
"""A word beside everything planted: where it is shown, the rest had its chance."""
_FINALS = "".join(map(chr, range(0x40, 0x7F)))
_STRINGS = (
    "\x1b]0;",
    "\x1b]8;;x:",
    "\x1b]52;c;",
    "\x1b]1337;",
    "\x1bP1;2q",
    "\x1b_",
    "\x1b^",
    "\x1bX",
)
_ENDS = ("\x07", "\x1b\\", "\x9c", "")
_ESCAPES = ("\x1bc", "\x1b(0", "\x1b#8", "\x1b7", "\x1bD", "\x1bM", "\x1b=", "\x1b N", "\x1b")
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"


def planted(*, lines: bool = False, colours: bool = True) -> tuple[str, ...]:
    """Strings with every C0, C1, CSI, OSC, DCS and bidirectional control.

    `lines`: without line feeds and carriage returns, for what is one line. `colours`: with SGR.
    """
    c0 = [chr(n) for n in (*range(0x20), 0x7F) if not (lines and chr(n) in "\n\r")]
    finals = [one for one in _FINALS if colours or one != "m"]
    steering = [
        *c0,
        *map(chr, range(0x80, 0xA0)),
        *_BIDI,
        *(f"\x1b[{MARK}{final}" for final in finals),
        *(f"\x1b[?{MARK}{final}" for final in "hlJnc"),
        *(f"\x9b{MARK}{final}" for final in finals),
        *(f"{begin}{MARK}{end}" for begin in _STRINGS for end in _ENDS),
        *_ESCAPES,
    ]
    return tuple(f"{SHOWN} {one}{SHOWN}" for one in steering)


_CSI = re.compile(r"\x1b\[[<=>?]?[0-9;:]*[ !$]?[@-~]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_SCREEN = re.compile(r"\x1b\[([<>?]?[0-9;:]{0,40})([ $]?[A-Za-z])")
_POINTER = re.compile(r"\x1b\]22;[a-z-]{0,20}\x07")
"""The shape of the mouse pointer, set by Textual."""
_FINAL_OF_TEXTUAL = frozenset("mHhluABCDGJKnpqt")
_CONTROLS = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_BIDI}\ud800-\udfff]")
_MOST = 8


def reached(written: bytes, *, screen: bool) -> Sequence[str]:
    """What of these bytes steers the terminal and is not ours:
    descriptions, none where all is well.

    `screen`: CSI sequences as Textual writes them are known; else only colours are.
    """
    try:
        text = written.decode()
    except UnicodeDecodeError as error:
        return [f"bytes that are not UTF-8: {written[error.start - 20 : error.start + 20]!r}"]
    return list(dict.fromkeys(_steering(text, screen=screen)))[:_MOST]


def _steering(text: str, *, screen: bool) -> Iterator[str]:
    rest, known = list[str](), 0
    text = _POINTER.sub("", text) if screen else text
    for found in _CSI.finditer(text):
        rest.append(text[known : found.start()])
        known = found.end()
        if not _is_ours(found[0], screen=screen):
            yield f"reached the terminal: {found[0]!r}"
    rest.append(text[known:])
    for piece in rest:
        for found in _CONTROLS.finditer(piece):
            near = piece[max(0, found.start() - 15) : found.end() + 15]
            yield f"reached the terminal: {found[0]!r} in {near!r}"


def _is_ours(sequence: str, *, screen: bool) -> bool:
    if not screen:
        return bool(_COLOUR.fullmatch(sequence))
    shape = _SCREEN.fullmatch(sequence)
    return bool(shape and MARK not in sequence and shape[2][-1] in _FINAL_OF_TEXTUAL)
