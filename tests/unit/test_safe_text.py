"""What is invisible is shown as its code point, and eight combining marks
stay: one rule for all text from nodes.
"""

import io
import re
import sys
from collections.abc import Callable
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rankdeck.cli import output
from rankdeck.model.safe_text import (
    clean_line,
    printable_line,
    show_invisible,
    strip_codes,
    strip_controls,
)
from rankdeck.reports import html
from rankdeck.ui.themes import paint_line
from rankdeck_agent.rules.visible import MOST_MARKS, count_cells

COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
HIDDEN = {
    "a control": "\x07", "a control of the second set": "\x9b", "a zero width space": "\u200b", "a joiner": "\u200d",
    "a non-joiner": "\u200c", "a word joiner": "\u2060", "a byte order mark": "\ufeff", "a soft hyphen": "\xad",
    "a tag": "\U000e0041", "an interlinear note": "\ufff9", "an override of direction": "\u202e", "an isolate": "\u2067",
    "an Arabic letter mark": "\u061c", "a line separator": "\u2028", "a paragraph separator": "\u2029",
    "private use": "\ue000", "private use of a later plane": "\U0010fffd", "half a surrogate pair": "\ud800",
    "an unassigned code point": "\u0378", "no character": "\uffff", "a grapheme joiner": "\u034f",
    "a Hangul filler": "\u3164", "a narrow Hangul filler": "\uffa0", "a filler of a syllable": "\u1160",
    "a Khmer vowel that is not drawn": "\u17b4", "a Mongolian selector": "\u180b", "the fourth Mongolian selector": "\u180f",
    "a selector of emoji": "\ufe0f", "a selector of a later plane": "\U000e0101", "a musical beam": "\U0001d173",
}  # fmt: skip
"""What draws nothing -> an example."""
LEGIBLE = (
    "ASCII, {braces} <tags> & [bold]", "µ é Ångström naïve ﬁ", "Привет мир", "日本語の表示", "한국어", "שָׁלוֹם", "العربية", "हिन्दी", "ไทยก็", "⚠ ✓ █▉▊ ━━━ 🚀 👍🏽 🇩🇪", "⠀ braille", "a\u0301\u0302\u0303",
)  # fmt: skip
"""What is shown as it came: letters of many scripts, with their marks, and signs."""


def is_hidden(sign: str) -> bool:
    """Whether a character draws nothing, from tables of this test."""
    fillers = sign in "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
    selectors = any(a <= sign <= b for a, b in ("\u180b\u180f", "\ufe00\ufe0f", "\U000e0100\U000e01ef"))  # fmt: skip
    return category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or fillers or selectors


def as_told(sign: str) -> str:
    """What is to be shown for a character."""
    if is_hidden(sign):
        return f"<U+{ord(sign):04X}>"
    return " " * cell_len(sign) if category(sign) == "Zs" else sign


def on_screen(text: str) -> str:
    return "".join(piece for piece, _ in paint_line(text, "text"))


def longest_pile(text: str) -> int:
    """The most combining marks in a row; colour codes between them do not part them."""
    marks = "".join("m" if category(sign)[0] == "M" else "-" for sign in COLOURS.sub("", text))
    return max(map(len, marks.split("-")))


SHOWN_BY: tuple[Callable[[str], str], ...] = (clean_line, printable_line, show_invisible, on_screen)
"""The ways of text to an operator's eyes."""
colourful = st.lists(
    st.text(max_size=30)
    | st.sampled_from([*HIDDEN.values(), "\u0301" * 20, "\x1b[31m", "\x1b[0m", "\x1b[2J", "\t"]),
    max_size=12,
).map("".join)
"""Lines with all that is difficult."""


@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.parametrize("show", [clean_line, show_invisible])
def test_what_is_invisible_is_shown_as_its_code_point(
    what: str, show: Callable[[str], str]
) -> None:
    sign = HIDDEN[what]

    assert show(f"pass{sign}word") == f"pass<U+{ord(sign):04X}>word"


@pytest.mark.parametrize("show", SHOWN_BY)
@pytest.mark.parametrize("text", LEGIBLE)
def test_letters_of_all_scripts_with_their_marks_and_signs_stay(
    text: str, show: Callable[[str], str]
) -> None:
    assert show(text) == text


@pytest.mark.long
def test_every_character_is_visible_or_becomes_its_code_point() -> None:
    for block in range(0, sys.maxunicode + 1, 256):
        signs = [chr(code) for code in range(block, block + 256) if code != ord("\t")]
        shown = show_invisible("\t".join(signs)).split("\t")
        assert shown == [as_told(sign) for sign in signs], hex(block)


@given(st.text())
def test_no_control_character_survives_cleaning(text: str) -> None:
    for show in (clean_line, printable_line, on_screen):
        assert show(text).isprintable()


@given(colourful)
def test_nothing_shown_is_invisible_and_no_letter_carries_many_marks(text: str) -> None:
    for show in SHOWN_BY:
        shown = show(strip_codes(text))
        rest = COLOURS.sub("", shown).replace("\t", "")
        assert not any(map(is_hidden, rest)), show
        assert longest_pile(shown) <= MOST_MARKS
        assert show(shown) == shown or show is on_screen  # the screen has made runs of the colours


@given(st.text(st.characters(max_codepoint=126, min_codepoint=32) | st.just("\t")))
def test_ascii_and_tabs_stay_as_they_are(text: str) -> None:
    assert show_invisible(text) == text


def test_the_marks_that_are_not_shown_are_counted() -> None:
    assert show_invisible("a" + "\u0301" * 1000 + "b") == "a" + "\u0301" * 8 + "<+992 marks>b"
    assert show_invisible("é" + "\u0301" * 8) == "é" + "\u0301" * 8
    assert show_invisible("\u1100" + "\u1161" * 9) == "\u1100" + "\u1161" * 8 + "<+1 marks>"


def test_a_colour_between_marks_hides_none_of_them() -> None:
    text = "a" + "\u0301\x1b[1m" * 10

    assert show_invisible(text) == "a" + "\u0301\x1b[1m" * 8 + "\x1b[1m" * 2 + "<+2 marks>"
    assert on_screen(text) == "a" + "\u0301" * 8 + "<+2 marks>"


def test_rows_of_signs_that_are_no_marks_stay() -> None:
    for row in ("█" * 40, "。" * 40, "─" * 40, "£" * 40):
        assert show_invisible(row) == row


@pytest.mark.parametrize(
    ("space", "shown"), [("\xa0", " "), ("\u2009", " "), ("\u202f", " "), ("\u3000", "  ")]
)
def test_a_space_of_another_width_is_blank(space: str, shown: str) -> None:
    assert show_invisible(f"1{space}234") == f"1{shown}234"


def test_a_text_that_is_cut_says_so() -> None:
    assert clean_line("x" * 500, 10) == "x" * 9 + "…"
    assert clean_line("\u200b" * 5, 10) == "<U+200B><…"
    assert clean_line("a" + "\u0301" * 1000, 64) == "a" + "\u0301" * 8 + "<+55 marks>…"
    assert html.text_html("a" + "\u0301" * 1000, 64).endswith("marks&gt;…")


def test_cleaning_leaves_letters_and_gives_text_for_a_number_only() -> None:
    assert clean_line("T4 \x1b[31m\n\tµ é 雪") == "T4 <U+001B>[31m<U+000A><U+0009>µ é 雪"
    assert (clean_line(None), clean_line(7), clean_line({"a": 1})) == ("", "7", "")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1bP+q544e\x1b\\after", "after"),
        ("10%\r50%\r100%", "100%"),
        ("a\tb", "a       b"),
        ("bell\x07", "bell<U+0007>"),
        ("\x9b2J", "<U+009B>2J"),
    ],
)
def test_escapes_are_taken_out_and_other_controls_shown(raw: str, shown: str) -> None:
    assert printable_line(raw) == shown


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u2028\u202e\u2067")
def test_marks_of_direction_are_shown_to_people_and_taken_out_for_programs(mark: str) -> None:
    assert strip_controls(f"a{mark}b", colour=True) == "ab"
    assert show_invisible(strip_codes(f"a{mark}b")) == f"a<U+{ord(mark):04X}>b"


@given(st.text(st.sampled_from("aé雪\u0301한\u1161\u200b\x07🚀")))
def test_what_is_shown_is_as_wide_as_the_painter_thinks(text: str) -> None:
    shown = show_invisible(text)

    assert count_cells(shown) == cell_len(shown)


class Screen(io.StringIO):
    """A terminal, as far as output asks."""

    def isatty(self) -> bool:
        return True


NASTY = "a\u200bb\u202ec\U000e0041\x1b[31mred\x1b[0m\x1b[2J\x07\ufeff e" + "\u0301" * 20


def said(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    output.say_line("[0] ", NASTY)
    output.print_text(NASTY)
    output.say_table(("NAME",), [(NASTY,)])
    output.print_progress(NASTY)
    return stream.getvalue()


def test_every_way_to_a_terminal_shows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    tail = "<U+FEFF> e" + "\u0301" * 8 + "<+12 marks>"
    plain = f"a<U+200B>b<U+202E>c<U+E0041>red{tail}"
    colours = f"a<U+200B>b<U+202E>c<U+E0041>\x1b[31mred\x1b[0m{tail}\x1b[0m"

    lines = said(Screen(), monkeypatch).split("\n")

    assert lines == [f"[0] {colours}", plain, "NAME", plain, plain, ""]


def test_a_program_that_reads_the_output_gets_what_the_rank_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = "a\u200bbc\U000e0041red\ufeff e" + "\u0301" * 20

    lines = said(io.StringIO(), monkeypatch).split("\n")

    assert lines == [f"[0] {raw}", raw, "NAME", raw, raw, ""]


def test_columns_of_a_table_stand_below_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Screen()
    monkeypatch.setattr(sys, "stdout", stream)

    output.say_table(("NAME", "N"), [("雪雪", "1"), ("e\u0301", "2"), ("abcde", "3")])

    assert {cell_len(line) for line in stream.getvalue().splitlines()} == {8}


@pytest.mark.parametrize("text", ["⚠️ hot", "❤️", "✔️ done", "1️⃣ first", "‼️", "☀️☁️", "🅰️"])
def test_a_coloured_form_is_left_out_where_terminals_disagree_how_wide_it_is(text: str) -> None:
    shown = printable_line(text)

    assert shown == text.replace("\ufe0f", "")
    assert cell_len(shown) == sum(map(cell_len, shown))
    assert "".join(part for part, _ in paint_line(text, "text")) == shown


@pytest.mark.parametrize("text", ["node\ufe0f", "⚠\ufe0f\ufe0f", "\ufe0f", "1\ufe0f2"])
def test_a_selector_that_hides_in_a_name_is_shown(text: str) -> None:
    assert "<U+FE0F>" in printable_line(text)


@pytest.mark.parametrize("stream", [io.StringIO, Screen])
def test_many_plain_lines_are_printed_as_each_alone(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["step 1\tloss 2.5", "", "  blank before, and after  ", "~ the end"]
    data = "".join(f"{line}\n" for line in lines).encode()
    together, alone = stream(), stream()

    monkeypatch.setattr(sys, "stdout", together)
    output.say_plain_lines("[12] ", data)
    monkeypatch.setattr(sys, "stdout", alone)
    for line in lines:
        output.say_line("[12] ", line)

    assert output.is_plain(data)
    assert together.getvalue() == alone.getvalue()


@pytest.mark.parametrize("odd", ["\x1b[1m", "\r", "\x00", "\x7f", "é", "\u200b"])
def test_lines_that_are_printed_in_another_way_are_not_plain(odd: str) -> None:
    assert not output.is_plain(f"step 1\nst{odd}ep 2\n".encode())
