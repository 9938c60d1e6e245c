"""What a user and an operator ask of a real Slurm's queue, and change in it: the
exact line, the exact jobs, nothing unasked.
"""

import time
from typing import Any

import pytest
from tests.integration.slurm.test_root_slurm_cluster import configured
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HET = """\
#!/bin/sh
#SBATCH -N1 -n1 --mem=50M --nodelist=n1
#SBATCH hetjob
#SBATCH -N1 -n1 --mem=60M --nodelist=n2 --gpus-per-node=1
sleep 300
"""


def submit(who: Operator, options: str, wrap: str = "sleep 300") -> str:
    said = who.on("n4", f"cd /tmp && sbatch --parsable -o /dev/null {options} --wrap '{wrap}'")
    assert said.strip().isdigit(), said
    return said.strip()


def listed(user: Operator, *words: str) -> dict[str, dict[str, Any]]:
    """The rows of jobs that the console does not follow, by their names in Slurm."""
    return {one["job"]: one for one in user.objects("jobs", *words) if "mine" in one}


def queue(who: Operator) -> list[str]:
    """`ID STATE REASON` of all that is in the queue."""
    said = who.on("n4", "squeue -h -O 'JobArrayID:0 ,State:0 ,Reason:0 '")
    return [line.rstrip() for line in said.splitlines()]


def changed(who: Operator, *words: str) -> dict[str, Any]:
    (answer,) = who.objects(*words)
    return answer


def test_a_job_is_held_released_and_given_more_time_by_the_line_that_was_shown(
    user: Operator, root: Operator
) -> None:
    waits = submit(user, "-N2 --exclusive --begin=now+1hour")
    array = submit(user, "-n1 --mem=50M --array=0-5%2 --begin=now+1hour")
    ranges = f"{array}_[2-4]"

    shown = changed(user, "hold", waits, ranges, "99999", "--dry-run")
    assert (shown["line"], shown["done"]) == (f"scontrol hold {waits},{ranges}", False)
    assert shown["left_alone"] == {"99999": "Slurm has no job of this number"}
    refused = user.lab.rankdeck("-c", user.file, "hold", waits)
    assert (refused.returncode, "`--yes` runs it without a question" in refused.stderr) == (2, True)
    assert not any("JobHeldUser" in line for line in queue(user))

    held = changed(user, "hold", waits, ranges, "--yes")
    assert held["done"], held
    assert held["now"][waits] == "PENDING, held by its user"
    state = [line for line in queue(user) if "JobHeldUser" in line]
    assert f"{waits} PENDING JobHeldUser" in state, state
    tasks = root.on("n3", f"scontrol -o show job {array} | grep -c 'Priority=0 '")
    assert tasks.strip() == "3"
    # The whole queue was read again with the change: no need to wait for the keeper's next look.
    assert listed(user)[waits]["slurm"]["reason"] == "JobHeldUser"

    assert changed(user, "release", waits, "--yes")["now"][waits].startswith("PENDING")
    limited = changed(user, "timelimit", "00:30:00", waits, "--yes")
    assert limited["line"] == f"scontrol update jobid={waits} timelimit=00:30:00"
    assert limited["now"][waits].endswith("time limit 00:30:00")
    assert root.on("n3", f"squeue -h -j {waits} -o %l").strip() == "30:00"


def test_a_job_of_ours_is_changed_by_its_name_here_and_shows_it_at_once(user: Operator) -> None:
    user = slurm.through(user, calls=6)  # usually it is asked about twice a minute
    file = f"{user.lab.shared}/state/rankdeck/slurm/keeper"
    job = user.run("--no-preflight", "--detach", launch="plain", nodes=1, ranks_per_node=1,
                   command=["sleep", "300"], slurm={"args": ["--begin=now+1hour"]})["job"]  # fmt: skip
    # A keeper that has spent the calls of this minute would wait for the next.
    user.on("n4", f"kill $(sed 's/.*\"pid\": \\([0-9]*\\).*/\\1/' {file})")
    known = user.until(job, lambda one: one["slurm"] and one["slurm"]["reason"] == "BeginTime")

    answer = changed(user, "hold", job, "--yes")

    assert answer["line"] == f"scontrol hold {known['slurm']['id']}"
    events = f"{user.lab.shared}/state/rankdeck/jobs/{job}/*/events"
    told = lambda: "JobHeldUser" in user.on("n4", f"tail -n 2 {events}")  # noqa: E731
    assert eventually(told, 12), user.on("n4", f"tail -n 3 {events}")
    user.objects("cancel", job, "--grace", "2")


def test_who_may_not_is_told_so_and_nothing_is_changed(user: Operator, root: Operator) -> None:
    theirs = submit(root, "-N1 --hold")

    done = user.lab.rankdeck("-c", user.file, "release", theirs, "--yes", limit=120)

    assert done.returncode == 1
    assert "that takes their owner or an operator of Slurm" in done.stderr
    assert f"{theirs} PENDING JobHeldUser" in queue(root)
    # What only an administrator may take back is refused as well.
    mine = submit(user, "-N1 --hold")
    root.on("n3", f"scontrol update jobid={mine} priority=0")
    root.on("n3", f"scontrol hold {mine}")
    done = user.lab.rankdeck("-c", user.file, "release", mine, "--yes", limit=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PENDING JobHeldAdmin" in " ".join(queue(user))


def test_a_running_job_is_put_back_into_the_queue(user: Operator) -> None:
    job = submit(user, "-N1 --requeue")
    assert eventually(lambda: f"{job} RUNNING None" in queue(user)), queue(user)
    assert changed(user, "hold", job, "--dry-run")["left_alone"][job].startswith(
        "it is RUNNING: only"
    )

    answer = changed(user, "requeue", job, "--yes")

    assert (answer["line"], answer["done"]) == (f"scontrol requeue {job}", True)
    assert eventually(lambda: not any(line.startswith(f"{job} RUNNING") for line in queue(user)))


def test_the_queue_says_what_each_job_has_and_a_filter_finds_it(
    user: Operator, root: Operator
) -> None:
    mine = submit(user, "-N1 --hold --gpus-per-node=a100:2 --mem=100M -p debug,low -J mine")
    per_task = submit(user, "-n2 --hold --gpus-per-task=1 --mem=1G -J tasks")
    theirs = submit(root, "-N2 --hold --gpus=3 --mem=100M -p high -J theirs")

    assert eventually(lambda: {mine, per_task, theirs} <= {*listed(user)}), listed(user)
    found = listed(user)
    kinds = {job: (found[job]["gpus"], found[job]["memory"]) for job in (mine, per_task, theirs)}
    assert kinds == {mine: (2, 100.0), per_task: (2, 1024.0), theirs: (3, 200.0)}
    assert found[mine]["slurm"]["do"] == f"`scontrol release {mine}` lets it go"
    for text, jobs in {
        "user=root": {theirs}, "user=lab & state=pending": {mine, per_task}, "partition=low": {mine},
        "partition=HIGH | user=lab": {mine, per_task, theirs}, "reason=JobHeldUser & !user=lab": {theirs},
        "user=nobody": set(), "theirs": {theirs}, "state=running": set(),
    }.items():  # fmt: skip
        assert {*listed(user, "--where", text)} == jobs, text
    runs = submit(user, "-N1 --nodelist=n2 --mem=50M")
    assert eventually(lambda: f"{runs} RUNNING None" in queue(user))
    seen = lambda: {*listed(user, "--where", "node=n[2-3]")} == {runs}  # noqa: E731
    assert eventually(seen), listed(user)


def test_a_het_job_is_one_row_and_its_cancel_counts_what_it_hits(
    user: Operator, root: Operator
) -> None:
    file = user.lab.shared / "het.sh"
    file.write_text(HET)
    cd = f"cd {user.lab.shared}"
    number = user.on("n4", f"{cd} && sbatch --parsable -o /dev/null het.sh").strip()
    other = submit(user, "-N1 --hold")
    runs = lambda: sum("RUNNING" in line for line in queue(user)) == 2  # noqa: E731
    assert eventually(runs), queue(user)

    whole = lambda: listed(user).get(number, {}).get("state") == "running"  # noqa: E731
    assert eventually(whole), listed(user)
    rows = listed(user)
    assert {*rows} == {number, other}
    parts = [(one["id"], one["nodes"], one["gpus"]) for one in rows[number]["components"]]
    assert parts == [(f"{number}+0", "n1", 0), (f"{number}+1", "n2", 1)]
    assert (rows[number]["slurm"]["nodes"], rows[number]["memory"]) == ("n1,n2", 110.0)
    (node,) = [one for one in user.objects("status")[0]["nodes"] if one["name"] == "n2"]
    assert node["slurm"]["jobs"] == [f"{number} lab"]

    component = str(int(number) + 1)
    done = user.lab.rankdeck("-c", user.file, "cancel", component, "--yes", limit=120)
    assert f"is a component of the het job {number}" in done.stderr, done.stderr
    done = user.lab.rankdeck("-c", user.file, "cancel", number, limit=120)
    assert (done.returncode, "Slurm job of lab, 2 components" in done.stderr) == (2, True)
    assert sum("RUNNING" in line for line in queue(user)) == 2

    (report,) = user.objects("cancel", number, "--yes", "--grace", "2")

    assert (report["state"], report["left"]) == ("cancelled", [])
    assert [line.split()[0] for line in queue(user)] == [other]


def test_a_cancel_of_a_whole_array_counts_the_tasks_that_it_hits(user: Operator) -> None:
    array = submit(user, "-n1 --mem=50M --array=0-5%2")
    other = submit(user, "-n1 --hold")
    begun = lambda: sum("RUNNING" in line for line in queue(user)) == 2  # noqa: E731
    assert eventually(begun), queue(user)

    done = user.lab.rankdeck("-c", user.file, "cancel", array, limit=120)

    assert (done.returncode, "is a Slurm job of lab, 6 tasks" in done.stderr) == (2, True)
    (report,) = user.objects("cancel", array, "--yes", "--grace", "2")
    assert report["left"] == []
    assert [line.split()[0] for line in queue(user)] == [other]


@pytest.mark.parametrize("place", ["/nowhere/%j.out", "/root/%j.out"])
def test_a_job_whose_output_file_cannot_be_opened_is_told_in_words(
    user: Operator, place: str
) -> None:
    said = user.on("n4", f"cd /tmp && sbatch --parsable -N1 -o {place} --wrap hostname").strip()
    over = lambda: f"{said} FAILED" in user.on("n4", "squeue -h --states=all -o '%i %T'")  # noqa: E731
    assert eventually(over)

    user.objects("logs", said)
    failed = lambda: _followed(user, said).get("state") == "failed"  # noqa: E731
    assert eventually(failed), _followed(user, said)

    told = _followed(user, said)["slurm"]
    assert "its output file could not be opened on the node (exit 0:53)" in told["text"]
    assert "make that folder before the job is submitted" in told["do"]


def _followed(user: Operator, number: str) -> dict[str, Any]:
    found = [one for one in user.objects("jobs") if (one["slurm"] or {}).get("id") == number]
    return next((one for one in found if "ranks" in one), {})


def test_slurm_itself_is_asked_for_a_job_its_priority_the_shares_and_the_controller(
    user: Operator, root: Operator
) -> None:
    weights = (
        "PriorityType=priority/multifactor\\nPriorityWeightAge=1000\\nPriorityWeightJobSize=500"
    )
    with configured(root, weights):
        submit(user, "-N2 --exclusive")
        job = submit(user, "-N2 --exclusive")
        waits = lambda: "JOBID" in user.on("n4", f"sprio -l -j {job}")  # noqa: E731
        assert eventually(waits), queue(user)
        (told,) = user.objects("slurm", "job", job)
        shown, priority = told["pages"]
        assert shown["line"] == f"scontrol show job {job}"
        assert shown["lines"][0] == f"JobId={job} JobName=wrap"
        # Times are for people here.
        assert any("SubmitTime=20" in line for line in shown["lines"])
        assert priority["line"] == f"sprio --long --jobs={job}"
        assert "AGE" in priority["lines"][0]
        (told,) = user.objects("slurm", "controller")
        assert told["pages"][0]["lines"][1].startswith("sdiag output at")
        (told,) = user.objects("slurm", "shares")
        assert "RawShares" in told["pages"][0]["lines"][0]
        done = user.lab.rankdeck("-c", user.file, "slurm", "efficiency", job, limit=120)
        assert (done.returncode, "accounting storage is disabled" in done.stderr) == (1, True)


def test_a_controller_that_stands_still_leaves_what_is_known_with_its_age(
    user: Operator, root: Operator
) -> None:
    job = submit(user, "-N1 --hold")
    assert eventually(lambda: job in listed(user))
    state = f"{user.lab.shared}/state/rankdeck/slurm"
    root.on("n3", "pkill -STOP slurmctld")
    try:
        # As if it had been known for ten minutes.
        old = f'sed -i \'1s/"\\(at\\|told\\)": [0-9.]*/"\\1": {time.time() - 600:.1f}/g\''
        user.on("n4", f"{old} {state}/cluster.queue {state}/cluster.nodes")
        done = user.lab.rankdeck("-c", user.file, "jobs", limit=150)
    finally:
        root.on("n3", "pkill -CONT slurmctld")

    assert done.returncode == 0, done.stderr
    assert job in done.stdout
    assert "Slurm's queue as it was 1" in done.stderr, done.stderr
    back = lambda: "min ago" not in user.lab.rankdeck("-c", user.file, "jobs").stderr  # noqa: E731
    assert eventually(back)


@pytest.mark.timeout(900)
def test_how_a_job_that_ended_used_what_it_had_is_reckoned_as_seff_does(
    user: Operator, root: Operator
) -> None:
    slurm.account(root)
    try:
        burn = 'timeout 8 sh -c "while :; do :; done"'
        job = submit(user, "-N1 -n1 --mem=200M", f"srun {burn}; true")
        over = lambda: "COMPLETED" in user.on("n4", f"sacct -n -X -j {job} -o State")  # noqa: E731
        assert eventually(over)

        (told,) = user.objects("slurm", "job", job)

        (found,) = told["efficiency"]
        assert (found["job"], found["state"], found["memory"]) == (job, "COMPLETED", 200.0)
        # How much CPU it got depends on what else runs: Slurm's own sum says it.
        steps = user.on("n4", f"sacct -n -P -j {job}.0 -o TotalCPU").split()
        used = sum(60**n * float(part) for n, part in enumerate(reversed(steps[0].split(":"))))
        assert found["cpu"] == pytest.approx(used / found["elapsed"], abs=0.05), found
        assert 0 < found["cpu"] <= 1.1
        assert found["memory_used"] is not None
        assert found["memory_share"] == pytest.approx(found["memory_used"] / 200)
    finally:
        slurm.account_no_more(root)
