"""What `rankdeck clean` counts, believes of nodes, and removes on the machine of the console."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from rankdeck.cli.clean import _bytes
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import clean_shape
from rankdeck.config.leftovers import DAY, clean_state
from rankdeck.errors import AgentError
from rankdeck.model.leftovers import (
    DATABASES,
    LOCKS,
    Cleaned,
    CleanOrder,
    CleanReport,
    LeftoverGroup,
    total_leftovers,
)
from rankdeck.remote.clean import parse_cleaned
from rankdeck.remote.shell import ProgramResult
from rankdeck_agent.wire.leftovers import Ground

NOW = 2_000_000_000.0


def group(place: str, count: int = 2, ground: Ground = Ground.OLD, kind: str = "runs") -> Cleaned:
    return Cleaned((LeftoverGroup(kind, ground, count, count * 1000, ("a",), place),))


def test_a_dry_run_counts_a_shared_folder_once_and_what_stays_not_at_all() -> None:
    machines = [
        group("server:/home /home/u/jobs"),
        group("server:/home /home/u/jobs"),
        group("boot 1:2"),
        group("boot 1:3", ground=Ground.RECENT),
        group(""),
        group(""),
    ]

    assert total_leftovers(machines, dry=True) == (8, 8000)
    assert total_leftovers(machines, dry=False) == (10, 10_000)


def answered(row: object) -> ProgramResult:
    return ProgramResult(0, json.dumps(row).encode() + b"\n", b"rankdeck: no such command\n")


def test_an_answer_is_believed_only_in_what_it_may_say() -> None:
    row = {
        "kind": "runs",
        "ground": "old",
        "count": 3,
        "bytes": 12,
        "names": ["j/n1"],
        "place": "p",
    }
    rows = [
        row,
        {**row, "kind": "databases"},
        {**row, "kind": ["runs"]},
        {**row, "ground": "because"},
        {**row, "count": -5, "bytes": "many", "names": "all", "ground": []},
        {**row, "count": True, "names": ["\x1b[31mred", 7, *["x"] * 50]},
    ]
    clock = {"trusted": False, "newest": "j\x07/n1", "ahead": "long", "console": 5}
    found = parse_cleaned(
        "n1", answered({"ok": True, "rows": rows, "failed": [{"why": "no"}], "clock": clock})
    )

    assert [one.count for one in found.groups] == [3, 0]
    assert found.groups[0] == LeftoverGroup("runs", Ground.OLD, 3, 12, ("j/n1",), "p")
    assert found.groups[1].names[0] == "<U+001B>[31mred"
    assert len(found.groups[1].names) == 20
    assert found.doubt is not None
    assert (found.doubt.ahead, found.doubt.console) == (0.0, 5.0)
    assert "\x07" not in found.doubt.newest


@pytest.mark.parametrize(
    "row", [{}, {"ok": True}, {"ok": False, "rows": []}, {"ok": 1, "rows": []}]
)
def test_what_is_no_answer_is_an_error_of_the_node(row: object) -> None:
    with pytest.raises(AgentError, match="n1: no such command"):
        parse_cleaned("n1", answered(row))


def test_the_json_has_no_place_and_a_total() -> None:
    report = CleanReport(Cleaned(), {"n1": group("secret place")}, {"n2": "no answer"})
    shape = json.loads(json.dumps(clean_shape("two", CleanOrder(dry=True), report)))

    assert shape["total"] == {"count": 2, "bytes": 2000}
    assert shape["nodes"]["n1"] == {
        "groups": [
            {
                "kind": "runs",
                "goes": True,
                "ground": "old",
                "count": 2,
                "bytes": 2000,
                "names": ["a"],
            }
        ],
        "failed": {},
        "clock": None,
    }
    assert (shape["missing"], shape["days"], shape["size"]) == ({"n2": "no answer"}, 30.0, None)
    assert not report.well


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", None),
        ("0", 0),
        ("10G", 10 << 30),
        ("500M", 500 << 20),
        ("2TiB", 2 << 40),
        ("7KB", 7168),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, size: int | None) -> None:
    assert _bytes(text) == size


@pytest.mark.parametrize("text", ["G", "-1", "1.5G", "10 G", "10g", "９G"])
def test_another_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        _bytes(text)


# ---- the state folder of the console


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "rankdeck" / "console"
    (folder / "launching").mkdir(parents=True)
    return folder


def put(path: Path, days: float) -> Path:
    path.write_bytes(b"x" * 5000)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def found(answer: Cleaned) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(one.kind, one.ground.value): one.names for one in answer.groups}


def test_only_databases_that_were_set_aside_long_ago_go_and_never_the_history(state: Path) -> None:
    old, new = put(state / "history.db.old1", 31), put(state / "acceptance.db.old2", 29)
    others = [put(state / name, 99) for name in ("history.db", "history.db.older", "mine.db.old1")]
    wanted = {(DATABASES, "old"): (old.name,), (DATABASES, "recent"): (new.name,)}

    assert found(clean_state(CleanOrder(dry=True), NOW)) == wanted
    assert old.exists()
    assert found(clean_state(CleanOrder(dry=False), NOW)) == wanted
    assert sorted(path.name for path in state.glob("*.db*")) == sorted(
        path.name for path in [new, *others]
    )


def test_the_files_beside_a_database_that_was_set_aside_go_with_it(state: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        put(state / f"history.db.old1{suffix}", 31)
    put(state / "history.db-wal", 31)

    clean_state(CleanOrder(dry=False), NOW)

    assert [path.name for path in state.glob("*.db*")] == ["history.db-wal"]


def test_a_lock_stays_for_a_day_and_while_a_console_holds_it(state: Path) -> None:
    launching = state / "launching"
    put(launching / "old", 1.1)
    put(launching / "fresh", 0.5)
    with put(launching / "held", 99).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = clean_state(CleanOrder(dry=False, days=0), NOW)

    assert found(answer) == {
        (LOCKS, "recent"): ("fresh",),
        (LOCKS, "in use"): ("held",),
        (LOCKS, "old"): ("old",),
    }
    assert sorted(path.name for path in launching.iterdir()) == ["fresh", "held"]


def test_a_clock_that_is_behind_removes_nothing_here_either(state: Path) -> None:
    put(state / "history.db.old1", 31)

    assert found(clean_state(CleanOrder(dry=False, days=0), NOW - 40 * DAY)) == {
        (DATABASES, "clock"): ("history.db.old1",)
    }
