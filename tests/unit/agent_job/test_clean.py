"""What `job clean` removes of what jobs left on a node, and what it never touches."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankdeck_agent.job import clean as cleaning
from rankdeck_agent.job import daily_clean
from rankdeck_agent.job.clean import (
    DAY,
    SLACK,
    CleanRule,
    Leftover,
    decide_removals,
    disk_size,
    judge_clock,
    list_leftovers,
    remove_leftovers,
)
from rankdeck_agent.job.folder import RunFolder, forbid_start, post_mortem, run_folder
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.job.supervisor_state import note_starter, note_supervisor
from rankdeck_agent.schedulers.slurm.keeper_lease import register_job
from rankdeck_agent.values import replace
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.leftovers import Ground, LeftoverKind
from rankdeck_agent.wire.schedulers.job_files import SLURM_SETTINGS

NOW = 1_000_000_000.0
RUN, LINKS, AGENT, ASIDE = LeftoverKind
EVERYTHING = CleanRule(0.0)


def run(name: str, days: float, size: int = 100, stays: Ground | None = None) -> Leftover:
    """A run folder that was used last so many days ago."""
    return Leftover(RUN, name, Path(name), size, NOW - days * DAY, stays)


def grounds(found: list[Leftover], rule: CleanRule) -> dict[str, str]:
    decided = decide_removals(found, rule, judge_clock(found, NOW), NOW)
    return {one.what.name: one.ground.value for one in decided}


# ---- the rule


def test_what_is_older_than_the_limit_goes_and_the_rest_stays() -> None:
    found = [run("young", 29.9), run("old", 30.1), run("new", 0)]

    assert grounds(found, CleanRule()) == {"young": "recent", "old": "old", "new": "recent"}


def test_a_job_that_runs_stays_however_old_and_large_it_is() -> None:
    found = [run("runs", 400, 10**12, Ground.RUNS), run("starts", 400, 10**12, Ground.STARTING)]

    assert grounds(found, CleanRule(0.0, 0)) == {"runs": "runs", "starts": "starting"}


def test_beyond_the_size_the_oldest_go_until_the_rest_is_small_enough() -> None:
    found = [run("a", 3), run("c", 1), run("b", 2), run("runs", 9, 100, Ground.RUNS)]

    assert grounds(found, CleanRule(size=250)) == {
        "a": "size", "b": "size", "c": "recent", "runs": "runs",
    }  # fmt: skip
    assert set(grounds(found, CleanRule(size=400)).values()) == {"recent", "runs"}


def test_what_the_age_removes_counts_no_more_for_the_size() -> None:
    found = [run("old", 31, 1000), run("young", 1, 100)]

    assert grounds(found, CleanRule(size=150)) == {"old": "old", "young": "recent"}


def test_a_mark_that_forbids_a_start_stays_for_a_day_though_nothing_is_to_be_kept() -> None:
    mark = replace(run("mark", 0.9), least=DAY)

    assert grounds([mark], CleanRule(0.0, 0)) == {"mark": "recent"}
    assert grounds([replace(mark, at=NOW - 1.1 * DAY)], EVERYTHING) == {"mark": "old"}


@pytest.mark.parametrize(
    "off", [pytest.param(-400 * DAY, id="behind"), pytest.param(-2 * SLACK, id="a little behind")]
)
def test_with_a_clock_that_is_behind_no_age_counts_and_the_size_does(off: float) -> None:
    found = [run("oldest", 500), run("newest", 0)]
    clock = judge_clock(found, NOW + off)
    by_age = decide_removals(found, EVERYTHING, clock, NOW + off)
    by_size = decide_removals(found, CleanRule(0.0, 100), clock, NOW + off)

    assert (clock.trusted, clock.newest, clock.ahead) == (False, "newest", -off)
    assert [one.ground for one in by_age] == [Ground.CLOCK, Ground.CLOCK]
    assert [one.ground for one in by_size] == [Ground.SIZE, Ground.CLOCK]


def test_a_clock_that_is_ahead_is_told_by_that_of_the_console() -> None:
    found = [run("job", 1)]
    clock = judge_clock(found, NOW + 400 * DAY, console=NOW)

    assert not clock.trusted
    assert clock.console == 400 * DAY
    assert [one.ground for one in decide_removals(found, EVERYTHING, clock, NOW + 400 * DAY)] == [
        "clock"
    ]
    assert judge_clock(found, NOW + SLACK / 2, console=NOW).trusted


# ---- on a disk


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node of its own: state folder, cache and links; real ones in /tmp are not looked at."""
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(cleaning, "TMP", tmp_path / "tmp")
    yield tmp_path
    for links in Path("/tmp").glob(f"rankdeck.{_job(tmp_path, '*')}"):
        shutil.rmtree(links)


def _job(home: Path, name: str) -> str:
    """The id of a job that no other test has, because links lie in /tmp."""
    return f"{name}-{home.parent.name}-{home.name}"[:100]


Over = Callable[..., RunFolder]


@pytest.fixture
def over(home: Path) -> Over:
    """Makes the run folder of a job that ended so many days ago."""

    def made(name: str, days: float = 0.0, *, closed: bool = True) -> RunFolder:
        folder = make_run_folder(NodePlan(job=_job(home, name), node="n1", ranks=(0,)))
        (folder / "rank.0" / "out").write_bytes(b"x" * 100_000)
        (folder / "starter.pid").unlink()  # this process, which goes on
        if closed:
            post_mortem(folder / "events", [])
            unlink_links(folder)
        age(folder / "events", days)
        return folder

    return made


def age(path: Path, days: float) -> None:
    at = time.time() - days * DAY
    os.utime(path, (at, at), follow_symlinks=False)


def left(answer: dict[str, object], kind: LeftoverKind = RUN) -> dict[str, tuple[int, list[str]]]:
    """Ground -> number and names of the things of this kind."""
    rows = json.loads(json.dumps(answer))["rows"]
    return {
        row["ground"]: (row["count"], row["names"]) for row in rows if row["kind"] == kind.value
    }


def test_a_dry_run_says_what_goes_and_how_much_that_is_and_removes_nothing(over: Over) -> None:
    old, new = over("old", 31), over("new", 1)
    answer = remove_leftovers(CleanRule(), dry=True)

    (row,) = [row for row in answer["rows"] if row["ground"] == "old"]
    assert (row["count"], row["names"]) == (1, [f"{old.job}/n1"])
    assert row["bytes"] == disk_size(old.path) > 100_000
    assert left(answer)["recent"] == (1, [f"{new.job}/n1"])
    assert old.path.exists()


def test_an_old_job_goes_with_all_that_it_left_and_a_new_one_stays(over: Over, home: Path) -> None:
    old, new = over("old", 31), over("new", 1)
    answer = remove_leftovers(CleanRule(), dry=False)

    assert left(answer)["old"] == (1, [f"{old.job}/n1"])
    assert not old.path.parent.exists()
    assert new.path.exists()
    assert [*(home / "state" / "removing").iterdir()] == []
    assert "old" not in left(remove_leftovers(CleanRule(), dry=False))


@pytest.mark.parametrize("note", [note_supervisor, note_starter])
def test_a_job_with_a_supervisor_stays_also_one_that_is_starting_or_just_closed(
    over: Over, note: Callable[[RunFolder], None]
) -> None:
    folder = over("busy", 99)
    note(folder)

    assert left(remove_leftovers(EVERYTHING, dry=False)) == {"runs": (1, [f"{folder.job}/n1"])}
    assert folder.path.exists()


def test_a_job_whose_end_nobody_saw_stays_and_is_named(over: Over) -> None:
    folder = over("lost", 99, closed=False)

    assert left(remove_leftovers(EVERYTHING, dry=False)) == {"open": (1, [f"{folder.job}/n1"])}


def test_a_slurm_job_that_its_keeper_has_not_let_go_stays(over: Over) -> None:
    folder = over("slurm", 99)
    (folder / SLURM_SETTINGS).write_text("{}")
    register_job(folder)

    assert left(remove_leftovers(EVERYTHING, dry=False)) == {"runs": (1, [f"{folder.job}/n1"])}


def test_a_folder_without_events_and_strange_names_stay_and_are_named(home: Path) -> None:
    jobs = home / "state" / "jobs"
    (jobs / "half" / "n1").mkdir(parents=True)
    (jobs / "half" / "a file").touch()
    (jobs / "half" / "n2").symlink_to(home)

    assert left(remove_leftovers(EVERYTHING, dry=False)) == {
        "unknown": (2, ["half/a file", "half/n2"]),
        "starting": (1, ["half/n1"]),
    }


def test_a_job_that_was_forbidden_to_start_goes_after_a_day(home: Path) -> None:
    folder = run_folder("forbidden", "n1")
    assert forbid_start(folder, 0.0)

    assert left(remove_leftovers(EVERYTHING, dry=False)) == {"recent": (1, ["forbidden/n1"])}
    age(folder.path, 1.1)
    assert left(remove_leftovers(EVERYTHING, dry=False)) == {"old": (1, ["forbidden/n1"])}
    assert not folder.path.exists()


def test_a_time_in_the_future_keeps_everything_that_only_its_age_would_remove(over: Over) -> None:
    old = over("old", 99)
    future = over("future", -2)
    answer = remove_leftovers(CleanRule(), dry=False)

    assert answer["clock"]["trusted"] is False
    assert answer["clock"]["newest"] == f"{future.job}/n1"
    assert left(answer) == {"clock": (2, [f"{future.job}/n1", f"{old.job}/n1"])}


def test_what_a_job_has_write_protected_goes_too(over: Over) -> None:
    folder = over("locked", 99)
    inside = folder / "rank.0" / "mine"
    inside.mkdir()
    (inside / "file").touch()
    (inside / "out").symlink_to("/usr")
    inside.chmod(0o500)
    before = Path("/usr").stat().st_mode

    assert left(remove_leftovers(CleanRule(), dry=False)).keys() == {"old"}
    assert not folder.path.exists()
    assert Path("/usr").stat().st_mode == before


def test_what_cannot_be_removed_is_named_with_the_reason(
    over: Over, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = over("stuck", 99)

    def refused(path: Path, _: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", refused)
    answer = remove_leftovers(CleanRule(), dry=False)

    assert left(answer) == {"failed": (1, [f"{folder.job}/n1"])}
    assert answer["failed"] == [{"name": f"{folder.job}/n1", "why": "Permission denied (EACCES)"}]


def test_a_removal_that_was_interrupted_is_finished_by_the_next(over: Over, home: Path) -> None:
    folder = over("half", 1)
    (home / "state" / "removing").mkdir()
    folder.path.rename(home / "state" / "removing" / "half@n1.0000")

    assert left(remove_leftovers(CleanRule(), dry=False), ASIDE) == {
        "useless": (1, ["half@n1.0000"])
    }
    assert [*(home / "state" / "removing").iterdir()] == []


def test_several_cleaners_at_once_remove_each_job_once_and_none_fails(over: Over) -> None:
    for number in range(30):
        over(f"old{number}", 99)
    answers: list[dict[str, object]] = []

    def clean_one() -> None:
        answers.append(remove_leftovers(CleanRule(), dry=False))

    threads = [threading.Thread(target=clean_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [answer["failed"] for answer in answers] == [[]] * 4
    assert sum(left(answer).get("old", (0, []))[0] for answer in answers) == 30
    assert [one for one in list_leftovers() if one.kind is RUN] == []


# ---- links


def links_of(home: Path, job: str, target: Path | str) -> Path:
    """A folder of links like those in /tmp, with a link to `target`."""
    links = home / "tmp" / f"rankdeck.{job}"
    links.mkdir(mode=0o700)
    (links / "rank").touch()
    if target:
        (links / "n1").symlink_to(target)
    return links


def test_links_go_once_their_job_is_over_and_stay_while_it_is_not(over: Over, home: Path) -> None:
    ended, runs = over("ended"), over("runs", closed=False)
    note_supervisor(runs)
    gone, stays = links_of(home, ended.job, ended.path), links_of(home, runs.job, runs.path)
    answer = remove_leftovers(CleanRule(), dry=False)

    assert left(answer, LINKS) == {"useless": (1, [gone.name]), "runs": (1, [stays.name])}
    assert not gone.exists()
    assert (stays / "n1").is_symlink()
    assert ended.path.exists()


@pytest.mark.parametrize("target", ["/nowhere/jobs/gone/n1", ""])
def test_links_that_lead_nowhere_go_after_a_day(home: Path, target: str) -> None:
    links = links_of(home, "gone", target)

    assert left(remove_leftovers(EVERYTHING, dry=False), LINKS) == {"recent": (1, [links.name])}
    age(links, 31)
    assert left(remove_leftovers(CleanRule(), dry=False), LINKS) == {"old": (1, [links.name])}
    assert not links.exists()


def test_links_of_a_job_that_is_being_started_stay(home: Path) -> None:
    target = home / "state" / "jobs" / "fresh" / "n1"
    target.mkdir(parents=True)
    links = links_of(home, "fresh", target)
    age(links, 99)

    assert left(remove_leftovers(EVERYTHING, dry=False), LINKS) == {"starting": (1, [links.name])}


def test_what_others_could_have_put_there_is_not_followed(over: Over, home: Path) -> None:
    ended = over("ended")
    theirs = home / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "n1").symlink_to(ended.path)
    (home / "tmp" / "rankdeck.link").symlink_to(theirs)
    (home / "tmp" / "rankdeck.file").touch()
    links_of(home, "wide", ended.path).chmod(0o777)

    assert left(remove_leftovers(EVERYTHING, dry=False), LINKS) == {
        "unknown": (3, ["rankdeck.file", "rankdeck.link", "rankdeck.wide"])
    }
    assert (theirs / "n1").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_links_of_another_user_stay(over: Over, home: Path) -> None:
    links = links_of(home, "theirs", over("ended").path)
    os.chown(links, 65534, 65534)
    age(links, 99)

    assert left(remove_leftovers(EVERYTHING, dry=False), LINKS) == {"foreign": (1, [links.name])}
    assert (links / "n1").is_symlink()


# ---- agents


def agent(home: Path, letter: str, days: float) -> Path:
    """An agent with its compiled modules, used last so many days ago."""
    cache = home / ".cache" / "rankdeck"
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / f"agent-{letter * 12}.pyz"
    for path in (file, file.with_name(f"{file.name}.cpython-311")):
        path.write_bytes(b"x" * 5000)
        age(path, days)
    return file


def test_agents_that_nobody_used_for_a_month_go_with_their_compiled_modules(home: Path) -> None:
    old, used = agent(home, "a", 31), agent(home, "b", 29)
    (home / ".cache" / "rankdeck" / "digests.json").touch()
    answer = remove_leftovers(EVERYTHING, dry=False)

    assert left(answer, AGENT) == {"old": (1, [old.name]), "recent": (1, [used.name])}
    assert sorted(path.name for path in old.parent.iterdir()) == [
        used.name, f"{used.name}.cpython-311", "digests.json",
    ]  # fmt: skip


def test_an_agent_from_which_a_process_runs_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = agent(home, "c", 99)
    monkeypatch.setattr(cleaning, "_agents_that_run", lambda: {old.name})

    assert left(remove_leftovers(EVERYTHING, dry=False), AGENT) == {"in use": (1, [old.name])}
    assert old.exists()


def test_an_agent_that_a_console_found_meanwhile_stays(home: Path) -> None:
    old = agent(home, "d", 99)
    decided = decide_removals(
        list_leftovers(), EVERYTHING, judge_clock(list_leftovers(), time.time()), time.time()
    )
    os.utime(old)

    assert cleaning.carry_out(decided) == {}
    assert old.exists()


# ---- once a day


@pytest.mark.parametrize(
    ("days", "cleans"),
    [(None, False), (0.5, False), (1.5, True), (29, True), (31, False), (-2, False)],
)
def test_a_start_cleans_once_a_day_but_not_after_a_leap_of_the_clock(
    home: Path, monkeypatch: pytest.MonkeyPatch, days: float | None, cleans: bool
) -> None:
    started: list[int] = []
    monkeypatch.setattr(daily_clean, "_start", started.append)
    stamp = home / "state" / f"cleaned.{os.uname().nodename}"
    stamp.parent.mkdir()
    if days is not None:
        stamp.touch()
        age(stamp, days)
    daily_clean.clean_daily()
    daily_clean.clean_daily()

    assert bool(started) == cleans
    assert len(started) <= 1
    assert time.time() - stamp.stat().st_mtime < DAY / 2 + 60
