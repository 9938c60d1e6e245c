"""Software RAID: what is missing, what does not work, and how far a rebuild
has come, from sysfs and from mdstat.
"""

import pytest

from rankdeck_agent.collectors.raid import RaidCollector
from rankdeck_agent.rules.facts import Facts
from rankdeck_agent.rules.judge import assess_node
from tests.unit.agent.machines import DATA, write

MDSTAT = """Personalities : [raid1] [raid6] [raid5] [raid4] [raid0]
md0 : active raid1 sda1[0] sdb1[1]
      248896 blocks [2/2] [UU]

md1 : active raid5 sda2[0] sdc2[3] sdb2[1](F)
      195310144 blocks super 1.2 level 5, 512k chunk [3/2] [U_U]
      [=>...................]  recovery =  8.5% (16775552/195310144) finish=17.0min speed=259783K/sec

md2 : active raid6 sda3[0] sdb3[1]
      7813735424 blocks super 1.2 level 6, 512k chunk, algorithm 2 [5/2] [UU___]

md3 : inactive raid1 sda4[0](F) sdb4[1](S)
      4883648 blocks [2/2] [UU]

md4 : active (auto-read-only) raid1 sdb5[0] sdc5[1]
      4190208 blocks super 1.2 [2/2] [UU]
      resync=PENDING

md5 : active raid0 sda6[0] sdb6[1]
      314159265 blocks 64k chunks

md6 : active raid1 sda7[0] sdb7[1]
      1993728 blocks super 1.2 [2/2] [UU]
      [=>...................]  check =  5.7% (114176/1993728) finish=0.2min speed=114176K/sec

md219 : inactive sdb[2](S) sdc[1](S) sda[0](S)
        7932 blocks super external:imsm

unused devices: <none>
"""
SYSFS = {
    "md0": {"level": "raid1", "array_state": "clean", "degraded": "0", "raid_disks": "2", "sync_action": "idle", "sync_completed": "none"},
    "md1": {"level": "raid5", "array_state": "active", "degraded": "1", "raid_disks": "3", "sync_action": "recover", "sync_completed": "33201224 / 390620288"},
    "md2": {"level": "raid6", "array_state": "active", "degraded": "3", "raid_disks": "5", "sync_action": "frozen", "sync_completed": "none"},
    "md3": {"level": "raid1", "array_state": "inactive", "raid_disks": "2"},
    "md4": {"level": "raid1", "array_state": "read-auto", "degraded": "0", "raid_disks": "2", "sync_action": "resync", "sync_completed": "delayed"},
    "md5": {"level": "raid0", "array_state": "clean", "raid_disks": "2"},
    "md6": {"level": "raid1", "array_state": "clean", "degraded": "0", "raid_disks": "2", "sync_action": "check", "sync_completed": "227288 / 3987456"},
    "md219": {"level": "container", "array_state": "inactive", "raid_disks": "0"},
    "md127": {"level": "", "array_state": "clear", "raid_disks": "0"},
}  # fmt: skip
EXPECTED = {
    "md.failed": {"md0": 0, "md1": 0, "md2": 1, "md3": 1, "md4": 0, "md5": 0, "md6": 0},
    "md.degraded": {"md0": 0, "md1": 1, "md2": 3, "md4": 0, "md6": 0},
    "md.disks": {"md0": 2, "md1": 3, "md2": 5, "md4": 2, "md6": 2},
    "md.rebuilt": {"md1": 8.5},
    "md.checked": {"md6": 5.7},
}


def sysfs(root):
    for name, files in SYSFS.items():
        for file, text in files.items():
            write(root, f"sys/block/{name}/md/{file}", f"{text}\n")
    write(root, "sys/block/sda/size", "1\n")


@pytest.mark.parametrize("source", ["sysfs", "mdstat"])
def test_both_sources_say_the_same(tmp_path, source) -> None:
    sysfs(tmp_path) if source == "sysfs" else write(tmp_path, "proc/mdstat", MDSTAT)
    reading = RaidCollector(str(tmp_path)).collect(0.0)
    # The kernel's own table counts what an array that could not be started would have.
    extra = {"md3"} if source == "mdstat" else set()
    values = {
        m: {d: n for d, n in found.items() if d not in extra or m == "md.failed"}
        for m, found in reading.values.items()
    }

    assert values == EXPECTED
    assert reading.failed == {}


def test_what_is_missing_is_told_with_the_progress_of_the_rebuild(tmp_path) -> None:
    sysfs(tmp_path)
    values = RaidCollector(str(tmp_path)).collect(0.0).values
    health, _ = assess_node(Facts(now=0.0, values={**values, "disk.used": {"/": 1.0}}))

    told = {(r.device, r.level.word): r.sentence.seen for r in health.reasons}
    assert told == {
        ("md1", "warn"): "RAID array md1 lacks 1 of its disks; it is being rebuilt, 8.5% done",
        ("md2", "bad"): "RAID array md2 does not work",
        ("md3", "bad"): "RAID array md3 does not work",
    }


def test_a_machine_without_arrays_has_none(tmp_path) -> None:
    collector = RaidCollector(str(tmp_path))
    write(tmp_path, "sys/block/sda/size", "1\n")

    assert collector.collect(0.0).absent(collector.metrics) == set(collector.metrics)
    write(tmp_path, "proc/mdstat", "Personalities : \nunused devices: <none>\n")
    assert collector.collect(0.0).values == {}


def test_the_recorded_table_is_read(tmp_path) -> None:
    recorded = DATA / "procfs/fixtures/proc/mdstat"
    if not recorded.is_file():
        pytest.skip(f"no recorded machines: {recorded} is missing")
    write(tmp_path, "proc/mdstat", recorded.read_text())
    values = RaidCollector(str(tmp_path)).collect(0.0).values

    assert [values["md.degraded"][name] for name in ("md6", "md7", "md0")] == [1, 1, 0]
    assert values["md.failed"]["md4"] == 1
    assert values["md.rebuilt"] == {"md6": 8.5, "md8": 8.5, "md42": 56.1}
    assert values["md.checked"] == {"md201": 5.7}
    assert "md219" not in values["md.failed"]
