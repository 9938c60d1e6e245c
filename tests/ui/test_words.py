"""Filters, commands, search and layout: what needs no screen."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankdeck
from rankdeck.config.user import lacks_unicode
from rankdeck.logs.merged_log import MergedLog
from rankdeck.logs.search import Search
from rankdeck.model.rank import Activity
from rankdeck.model.rank_output import Chunk
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.state.lines import RankLog
from rankdeck.ui import command_actions, commands, formatting
from rankdeck.ui.themes import ASCII, UNICODE
from rankdeck.ui.views import wall
from rankdeck.ui.widgets.canvas import draw_bar, fit_text, in_ascii
from tests.support.cases import each


def subject(text: str = "node01", state: str = "ok", **numbers: float) -> query.Subject:
    return query.Subject(text, state, lambda metric: numbers.get(metric.replace(".", "_")))


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("node", True), ("NODE01", True), ("gpu-9", False), ("gpu.temp>80", True), ("gpu.temp>=91", False),
        ("temp > 80 & node01", True), ("state!=ok", False), ("state=ok & cpu<50", True), ("mem>1", False),
    ],
)  # fmt: skip
def test_a_filter_says_which_nodes_are_shown(text: str, matches: bool) -> None:
    assert query.parse_query(text)(subject(gpu_temp=90, cpu_used=12)) is matches


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpu.tmp>80", "did you mean gpu.temp"),
        ("cpu>high", "is not a number"),
        ("cpu >", "metric>number"),
        ("state>ok", "= or !="),
    ],
)
def test_a_filter_that_cannot_be_read_says_what_to_write(text: str, complaint: str) -> None:
    with pytest.raises(query.QueryError, match=complaint):
        query.parse_query(text)


def test_the_start_of_a_command_is_enough() -> None:
    assert commands.parse_command("the dark") == (commands.COMMAND_NAMES["theme"], "dark")
    with pytest.raises(commands.CommandError, match="did you mean"):
        commands.parse_command("flet")


def test_completion_gives_names_and_then_values() -> None:
    def nodes(argument: str) -> list[str]:
        return ["gpu-01", "gpu-02"] if argument == "NODE" else []

    assert commands.complete_command("no", nodes) == ["node "]
    assert commands.complete_command("node 02", nodes) == ["node gpu-02"]


@each((count, *size) for count in range(1, 17) for size in [(200, 46), (80, 19), (60, 10)])
def test_panes_cover_the_wall_and_never_overlap(count: int, width: int, height: int) -> None:
    cells = [
        (x, y)
        for box in wall.pane_boxes(count, width, height)
        for x in range(box.x, box.x + box.width)
        for y in range(box.y, box.y + box.height)
    ]

    assert len(cells) == len(set(cells)) == width * height


def log_of(rank: int, *texts: str, at: float = 1.0, keep: int = 100) -> RankLog:
    log = RankLog(rank, keep=keep)
    offset = 0
    for place, text in enumerate(texts):
        data = f"{text}\n".encode()
        log.add(Chunk("j", "n", rank, "out", offset, at + place, data))
        offset += len(data)
    return log


def test_search_counts_and_goes_round() -> None:
    log = log_of(0, "error a", "fine", "Error b", "error c")
    search = Search("error")
    search.update(log)

    assert [search.after(-1), search.after(0), search.after(3)] == [0, 2, 0]
    assert search.before(0) == 3
    assert search.count(2) == "2/3"


def test_a_capital_makes_the_search_exact() -> None:
    search = Search("Error")
    search.update(log_of(0, "error a", "Error b"))

    assert search.count(1) == "1/1"


def test_matches_in_lines_that_were_let_go_are_forgotten() -> None:
    log = log_of(0, *(f"error {n}" for n in range(5)), keep=3)
    search = Search("error")
    search.update(log)

    assert search.after(-1) == 2


def test_merged_logs_are_in_order_of_time() -> None:
    merged = MergedLog({0: log_of(0, "a", "c", at=1.0), 1: log_of(1, "b", at=1.5)})
    merged.update()

    assert [(line.rank, line.text) for line in merged.lines] == [
        (0, "a"),
        (1, "b"),
        (0, "c"),
    ]


def test_bars_are_as_wide_as_asked_and_nothing_is_no_zero() -> None:
    for glyphs in (UNICODE, ASCII):
        for percent in (None, 0, 0.4, 37, 99.9, 100, 250):
            assert sum(len(text) for text, _ in draw_bar(percent, 10, glyphs)) == 10
    assert draw_bar(None, 4, UNICODE) != draw_bar(0, 4, UNICODE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0B"),
        (999, "999B"),
        (1536, "1.5K"),
        (64 << 30, "64G"),
        (1023 << 20, "1.0G"),
        (None, ""),
    ],
)
def test_sizes_have_three_digits_at_most(value: float | None, text: str) -> None:
    assert formatting.format_size(value) == text


def test_a_signal_behind_a_shell_is_named() -> None:
    assert formatting.describe_ending(137, None) == "exit 137 (SIGKILL)"
    assert formatting.describe_ending(None, 9) == "SIGKILL"


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_cell_is_exactly_as_wide_as_its_column(text: str, width: int) -> None:
    from rich.cells import cell_len

    assert cell_len(fit_text(printable_line(text), width)) == width


@given(st.text())
def test_ascii_mode_sends_ascii(text: str) -> None:
    assert in_ascii(printable_line(text)).isascii()


def test_every_command_in_the_table_does_something() -> None:
    assert set(command_actions.VERBS) == set(commands.COMMAND_NAMES)


@pytest.mark.parametrize(
    ("environment", "lacks"),
    [
        ({"LANG": "de_DE.UTF-8"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, True),
        ({"LANG": "C.UTF-8", "LC_CTYPE": ""}, False),
        ({"LANG": "ja_JP.eucJP"}, True),
        ({}, False),
    ],
)
def test_only_a_utf_8_locale_draws_more_than_ascii(environment, lacks):
    assert lacks_unicode(environment) is lacks


def test_what_a_rank_does_is_said_shortly() -> None:
    def doing(state: str, wchan: str, cores: float) -> str:
        return formatting.describe_activity(Activity(state, wchan, cores, None, 1.0))

    assert formatting.describe_activity(None) == ""
    assert doing("S", "ep_poll", 0.0) == "in ep_poll"
    assert doing("S", "", 0.0) == "in state S"
    assert doing("R", "", 0.98) == "computes 0.98 cores"


SIGNS_ELSEWHERE = {"themes.py", "terminal.py", "messages.py", "job_head.py", "document.py"}
"""Where signs of the other alphabet stand beside those of this one, or are never shown."""


@pytest.mark.long
def test_every_sign_in_our_words_has_one_in_ascii() -> None:
    root = Path(rankdeck.__file__).parents[2]
    missing: dict[str, str] = {}
    files = [*root.glob("console/rankdeck/**/*.py"), *root.glob("agents/rankdeck_agent/**/*.py")]
    for file in (one for one in files if one.name not in SIGNS_ELSEWHERE):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                missing |= {sign: file.name for sign in node.value if in_ascii(sign) == "?" != sign}

    assert len(files) > 200
    assert missing == {}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0W"),
        (999.4, "999W"),
        (1234, "1.2kW"),
        (99_970, "100kW"),
        (1_506_800, "1.5MW"),
        (2e9, "2000MW"),
    ],
)
def test_power_is_short(value: float, said: str) -> None:
    assert formatting.format_watts(value) == said
