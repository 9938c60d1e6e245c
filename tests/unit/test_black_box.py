"""Black boxes as the console reads them, and the ring that the node writes."""

import base64
import json
import zlib
from pathlib import Path

import pytest

from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.state.black_box import (
    NodeBox,
    missing_numbers,
    notes_with_boxes,
    read_node_box,
)
from rankdeck.state.boxed_stalls import find_held_up, stalls_in_boxes
from rankdeck.state.fleet_history import PICTURED
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.job import black_box
from rankdeck_agent.job.black_box import RankSilence, Ring, pack_box
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.wire import Event, HealthReport, encode_message
from rankdeck_agent.wire.black_box import CANCELLED, ENDED, FAILED, MOST_BOX_BYTES, SILENT
from rankdeck_agent.wire.job_events import Origin, Part
from rankdeck_agent.wire.run_folder import BLACK_BOX
from tests.unit.test_job_recorder import running

ORIGIN = Origin("n1", Part.SUPERVISOR, "ssh", (0, 1))


def wrapped(kind: str, message: HealthReport | Event) -> bytes:
    return b'{"kind":"%s","body":%s}' % (kind.encode(), encode_message(message))


def health(at: float, **numbers: float) -> bytes:
    return wrapped("health", HealthReport(at, 0, 5.0, numbers=numbers))


def look(at: float, rank: int, state: str, cores: float) -> bytes:
    wchan = "" if state == "R" else "futex_wait"
    row = [rank, state, wchan, cores, 0.0]
    return json.dumps({"kind": "activity", "at": at, "rows": [row]}).encode()


def box(*rows: bytes, offset: float = 0.0, origin: Origin = ORIGIN) -> NodeBox:
    packed = base64.b64encode(zlib.compress(b"\n".join(rows))).decode()
    return read_node_box(origin.node, origin, offset, {"rows": packed, "refused": ""})


def job_of_two_nodes() -> Job:
    jobs = Jobs()
    return jobs.job(running(jobs))


FIRST = Origin("node01", Part.SUPERVISOR, "ssh", tuple(range(8)))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "rank.0").mkdir()
    return RunFolder(tmp_path, "j", "n1")


def read(folder: RunFolder) -> NodeBox:
    return read_node_box("n1", ORIGIN, 0.0, pack_box(folder))


def size_of(folder: RunFolder) -> int:
    """Bytes on the disk, those of hard links once."""
    files = (path.stat() for path in (folder / BLACK_BOX).rglob("*") if path.is_file())
    return sum({seen.st_ino: seen.st_size for seen in files}.values())


def test_the_ring_keeps_the_newest_and_never_more_than_its_size(folder: RunFolder) -> None:
    (folder.place(0) / "out").write_bytes(b"x" * (40 << 20))
    ring = Ring(folder)
    row = health(1.0, **{"cpu.used": 1.0})[:-1] + b',"padding":"' + b"x" * 200_000 + b'"}'
    for turn in range(200):
        ring.add(row.replace(b'"at":1.0', b'"at":%d.0' % turn))
        if turn == 50:
            ring.freeze(SILENT, [0])
        if turn == 100:
            ring.freeze(FAILED, [0])

    found = read(folder)

    assert size_of(folder) < 32 << 20
    assert found.readings[-1][0] == 199
    times = [at for at, _ in found.readings]
    assert 50 in times
    assert 100 in times
    assert 20 not in times
    offset, end = found.tails[0, "out"]
    assert offset + len(end) == 40 << 20


def test_the_first_failure_is_kept_and_a_later_end_does_not_replace_it(folder: RunFolder) -> None:
    ring = Ring(folder)
    for why in (FAILED, FAILED, CANCELLED, ENDED):
        (folder.place(0) / "out").write_text(why)
        ring.freeze(why, [0])

    found = read(folder)

    assert [why for _, why in found.frozen] == [FAILED, CANCELLED, ENDED]
    assert found.tails[0, "out"] == (0, FAILED.encode())


def test_a_row_that_was_half_written_costs_only_itself(folder: RunFolder) -> None:
    ring = Ring(folder)
    ring.add(health(5.0))
    with (folder / BLACK_BOX / "00000000").open("ab") as file:
        file.write(b'{"kind":"health","body":{"at":10.0,"lev')

    assert [at for at, _ in read(folder).readings] == [5.0]


def test_files_of_another_version_or_job_and_things_that_are_no_files_are_left_out(
    folder: RunFolder,
) -> None:
    Ring(folder).add(health(5.0))
    head = {"kind": "box", "version": 2, "job": "j", "node": "n1"}
    (folder / BLACK_BOX / "00000001").write_text(
        json.dumps(head) + "\n" + health(6.0).decode() + "\n"
    )
    (folder / BLACK_BOX / "00000002").symlink_to(folder / BLACK_BOX / "00000000")
    (folder / BLACK_BOX / "00000003").mkdir()

    found = read(folder)

    assert [at for at, _ in found.readings] == [5.0]
    assert found.trouble == "another version of Rankdeck has written it"


def test_a_full_disk_costs_the_oldest_and_recording_goes_on(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(folder)
    ring.add(health(1.0))

    def full(_handle: int, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(black_box, "write_all", full)
        ring.add(health(2.0))
        ring.freeze(FAILED, [0])
    ring.add(health(3.0))

    assert [at for at, _ in read(folder).readings] == [3.0]


def test_rows_of_other_ranks_impossible_values_and_bombs_are_refused() -> None:
    found = box(
        look(1.0, 7, "R", 1.0),
        json.dumps({"kind": "tail", "rank": 7, "stream": "out", "o": 0, "data": "eA=="}).encode(),
        json.dumps(
            {"kind": "tail", "rank": True, "stream": "out", "o": 0, "data": "eA=="}
        ).encode(),
        json.dumps({"kind": "frozen", "at": 1e300, "why": FAILED}).encode(),
        b'{"kind":"health","body":{"at":NaN,"level":0,"heartbeat":5}}',
        b'{"kind":"health","body":[1]}',
        b"[" * 100_000,
    )
    assert found.looks == {}
    assert found.tails == {}
    assert found.readings == []
    assert found.odd == 6

    bomb = base64.b64encode(zlib.compress(b"\n" * (MOST_BOX_BYTES + 9))).decode()
    found = read_node_box("n1", ORIGIN, 0.0, {"rows": bomb})
    assert found.trouble == "it is too large: the rest was left out"
    assert read_node_box("n1", ORIGIN, 0.0, {"rows": "%%"}).trouble.startswith("it is damaged")
    assert read_node_box("n1", ORIGIN, 0.0, {"rows": 5}).trouble == "it has none"


def test_numbers_fill_only_the_time_in_which_no_console_heard_the_node() -> None:
    job = job_of_two_nodes()
    rows = (health(1000.0 + 5 * turn, **{"cpu.used": float(turn)}) for turn in range(10))
    one = box(*rows, origin=FIRST)
    kept = [{"at": 1020.0, "nodes": {one.node: [1.0]}}, {"at": 1024.0, "nodes": {one.node: [1.0]}}]

    filled = missing_numbers(job, [one], kept)

    assert [at for at, _ in filled] == [1000.0, 1005.0, 1010.0, 1030.0, 1035.0, 1040.0, 1045.0]
    place = PICTURED.index("cpu.used")
    assert filled[0][1]["nodes"][one.node][place] == 0.0
    assert missing_numbers(job, [one], [{"at": at, **row} for at, row in filled] + kept) == []


def test_a_kernel_line_becomes_a_marked_note_and_replaces_no_other() -> None:
    job = job_of_two_nodes()
    line = Event(1010.0, "bad", "kernel.oom", "killed process 5 (python)")
    one = box(wrapped("event", line), offset=2.0, origin=FIRST)

    (note,) = notes_with_boxes(job, [one])

    assert note.at == 1008.0
    assert note.text == "killed process 5 (python) (black box)"


def test_gaps_are_counted() -> None:
    assert box(health(0.0), health(5.0), health(10.0)).gaps == 0
    assert box(health(0.0), health(5.0), health(60.0)).gaps == 1


def test_what_a_console_would_have_said_when_the_job_was_cancelled_is_told() -> None:
    job = job_of_two_nodes()
    ranks = tuple(
        replace(rank, state=State.CANCELLED, started=1000.0, ended=1302.0, heard=1100.0)
        for rank in job.ranks
    )
    job = replace(job, state=State.CANCELLED, ended=1303.0, ranks=ranks)
    numbers = [rank.rank for rank in ranks]
    rows = [look(1250.0 + 5 * turn, n, "T", 0.0) for turn in range(10) for n in numbers]
    rows.append(json.dumps({"kind": "frozen", "at": 1300.0, "why": CANCELLED}).encode())

    found = stalls_in_boxes(job, [box(*rows, origin=FIRST)])

    assert found
    assert found[0].kind == "stopped"


def hung_job(ended: float = 1200.0) -> Job:
    """Its ranks wrote last at 1000, and gave up at `ended`; rank 1 was only told to end."""
    job = job_of_two_nodes()
    ranks = tuple(
        replace(
            rank, state=State.FAILED, started=900.0, ended=ended, lines=50,
            heard=1000.0 if rank.rank == 1 else ended - 1, last_line="RuntimeError: Timed out",
        )
        for rank in job.ranks
    )  # fmt: skip
    return replace(job, state=State.FAILED, ended=ended, ranks=ranks)


def silent_box(*more: dict[str, object], at: float = 1065.0) -> NodeBox:
    numbers = range(8)
    rows = [
        look(at - 50 + 5 * turn, n, "R" if n == 1 else "S", float(n == 1))
        for turn in range(10)
        for n in numbers
    ]
    heard = [[n, 1000.0] for n in (*numbers, 77)]
    said = [{"kind": "frozen", "at": at, "why": SILENT, "heard": heard}, *more]
    return box(*rows, *(json.dumps(row).encode() for row in said), origin=FIRST)


def test_who_held_up_the_others_before_they_gave_up_is_found_in_the_box() -> None:
    found = find_held_up(hung_job(), [silent_box({"kind": "resumed", "at": 1198.0})])

    assert found is not None
    assert (found.accused, found.since) == ((1,), 1000.0)


def test_a_silence_after_which_the_job_went_on_is_not_why_it_failed() -> None:
    resumed = silent_box({"kind": "resumed", "at": 1100.0})

    brief = silent_box({"kind": "resumed", "at": 1070.0}, at=1025.0)

    assert find_held_up(hung_job(), [resumed]) is None
    assert find_held_up(hung_job(1150.0), [brief]) is None
    assert find_held_up(hung_job(1050.0), [silent_box()]) is None
    assert find_held_up(hung_job(), [box(health(1000.0))]) is None


def test_a_node_that_is_silent_after_the_failure_hides_no_silence_before_it() -> None:
    later = box(json.dumps({"kind": "frozen", "at": 1300.0, "why": SILENT}).encode())

    found = find_held_up(hung_job(), [silent_box(), later])

    assert found is not None
    assert found.accused == (1,)


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "standing", "at": "x", "answer": {"ranks": []}},
        {"kind": "standing", "at": 1.0, "answer": [1]},
        {"kind": "resumed", "at": True},
        {"kind": "resumed"},
    ],
)
def test_rows_of_a_silence_that_make_no_sense_are_left_out(row: dict[str, object]) -> None:
    assert silent_box(row).odd == 1


def test_a_node_tells_the_last_words_of_its_own_ranks_only() -> None:
    (silence,) = silent_box().silences

    assert set(silence.heard) == set(range(8))


def test_what_a_silent_rank_wrote_last_is_known_from_the_box() -> None:
    said = [
        "Traceback (most recent call last):",
        '  File "x.py"',
        "KeyError: 'x'",
        "[5] no such type",
    ]
    rows = [{"rank": rank, "does": {"state": "S"}, "said": said} for rank in (3, 99)]
    row = {"kind": "standing", "at": 1062.0, "answer": {"ranks": rows}}
    job = hung_job()
    job = replace(job, ranks=tuple(replace(one, last_line="step 7") for one in job.ranks))

    found = find_held_up(job, [silent_box(row)])

    assert found is not None
    assert (found.kind, found.accused) == ("raised", (3,))
    assert "raised KeyError: 'x'" in found.text


def test_the_nodes_for_which_a_login_node_asked_answer_one_question_together() -> None:
    line = [["train", "/job/train.py", 9]]
    operation = {
        "what": "gloo:all_reduce", "sizes": [[1]], "types": ["Float"], "ago": 60.0, "between": False,
    }  # fmt: skip
    groups = {"0": {"ranks": [0, 1, 2, 3], "called": ""}}

    def host(*ranks: int) -> dict[str, object]:
        rows = [
            {
                "rank": rank, "stack": line, "groups": groups,
                "recorded": {"0": [{**operation, "number": 5 - (rank == 3), "over": rank == 3}]},
            }
            for rank in ranks
        ]  # fmt: skip
        answer = {"inside": [{"ranks": rows, "blind": ""}], "missing": {}}
        return {"kind": "standing", "at": 1062.0, "answer": answer}

    job = hung_job()
    job = replace(job, ranks=tuple(replace(one, last_line="step 7") for one in job.ranks))
    found = find_held_up(job, [silent_box(host(0, 1), host(2, 3))])

    assert found is not None
    assert (found.kind, found.accused) == ("absent", (3,)), found.text


def test_ranks_that_pause_often_are_silent_only_after_twice_their_longest_pause(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path, "t-1", "n1")
    folder.place(0).mkdir()
    folder.events.touch()
    silence, out = RankSilence(folder, (0,)), folder.place(0) / "out"

    def depth(now: float, *, wrote: bool = False) -> int:
        with out.open("a") as file:
            file.write("step\n" * wrote)
        silence.look(now)
        return silence.depth

    assert [depth(0.0), depth(50.0)] == [0, 0]  # who has not begun is not silent
    assert [depth(100.0, wrote=True), depth(114.0), depth(115.0), depth(159.0)] == [0, 0, 1, 1]
    assert depth(160.0) == 2
    assert [depth(200.0, wrote=True), depth(225.0, wrote=True), depth(259.0)] == [0, 0, 0]
    assert depth(285.0) == 2


def test_ranks_that_never_wrote_are_silent_since_the_last_of_them_began(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "t-1", "n1")
    folder.place(0).mkdir()
    silence = RankSilence(folder, (0, 1))

    def depth(now: float, *began: int) -> int:
        with folder.events.open("a") as file:
            for rank in began:
                file.write(json.dumps({"kind": "started", "rank": rank, "seq": rank}) + "\n")
        silence.look(now)
        return silence.depth

    assert [depth(0.0, 0), depth(100.0), depth(105.0, 1), depth(119.0)] == [0, 0, 0, 0]
    assert [depth(120.0), depth(164.0), depth(165.0)] == [1, 1, 2]
    (folder.place(0) / "out").write_text("loaded\n")
    # What they needed to load is no pause by which later ones are judged.
    assert [depth(170.0), depth(184.0), depth(185.0)] == [0, 0, 1]


@pytest.mark.parametrize(
    "answer", [{"ranks": [{"rank": 99}, 3, None]}, {"pids": [[1, "x"], 5]}, {"ras": "?"}]
)
def test_odd_answers_of_silent_ranks_change_nothing(answer: dict[str, object]) -> None:
    row = {"kind": "standing", "at": 1062.0, "answer": answer}

    found = find_held_up(hung_job(), [silent_box(row)])

    assert found is not None
    assert found.accused == (1,)
