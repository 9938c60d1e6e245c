"""The cluster that a real Slurm runs, as Rankdeck shows it: nodes beside our
agents, everybody's jobs, few questions.
"""

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually, seen_until

from rankdeck.remote.bundle import build_bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
REASON = "bad: cable | x"


def node(user: Operator, name: str) -> dict[str, Any]:
    """What `status` says of this node now."""
    (found,) = user.objects("status")
    return next(one for one in found["nodes"] if one["name"] == name)


def told_by_slurm(found: dict[str, Any]) -> str:
    """The sentence on the node's state in Slurm."""
    return "".join(one["text"] for one in found["reasons"] if one["check"] == "slurm.state")


def test_a_node_that_was_drained_says_so_beside_our_agent(user: Operator, root: Operator) -> None:
    root.on("n3", f"scontrol update nodename=n2 state=drain reason='{REASON}'")

    # A busy machine keeps our agent from being heard, or gives it something to warn of.
    well = lambda found: "our agent finds nothing wrong" in told_by_slurm(found)  # noqa: E731
    found = seen_until(lambda: node(user, "n2"), well)
    assert found["slurm"]["state"] == "drained"
    assert (found["slurm"]["reason"], found["slurm"]["by"]) == (REASON, "root")
    assert found["slurm"]["gres"] == {"gpu:a100": 4}
    assert found["slurm"]["features"] == "a100,ib"
    assert node(user, "n1")["slurm"]["state"] == "idle"
    assert node(user, "login")["slurm"] is None


def serve(who: Operator, *words: str) -> dict[str, Any]:
    """What `drain` or `resume` answers."""
    (answer,) = who.objects(*words)
    return answer


def shown(root: Operator, name: str) -> str:
    return root.on("n3", f"scontrol -o show node {name}")


@pytest.mark.kept
def test_a_node_is_drained_by_the_line_that_was_shown_and_given_back(
    user: Operator, root: Operator
) -> None:
    why = 'fan 2 stands; rm -rf "$HOME" `x`'
    proposed = serve(root, "drain", "n2", "--why", why, "--dry-run")
    line = 'scontrol update nodename=n2 state=drain reason="rankdeck: fan 2 stands rm -rf HOME x"'
    assert (proposed["line"], proposed["done"]) == (line, False)
    assert "DRAIN" not in shown(root, "n2")

    refused = root.lab.rankdeck("-c", root.file, "drain", "n2", "--why", why)
    assert refused.returncode == 2
    assert "DRAIN" not in shown(root, "n2")

    drained = serve(root, "drain", "n2", "--why", why, "--yes")
    assert (drained["line"], drained["now"]) == (line, {"n2": "drained"})
    assert "Reason=rankdeck: fan 2 stands rm -rf HOME x [root@" in shown(root, "n2")

    back = serve(root, "resume", "n[1-2]", "--yes")
    assert back["line"] == "scontrol update nodename=n2 state=resume"
    assert back["left_alone"] == {"n1": "it is in service: idle"}
    # It has to answer its controller once before it is plainly idle.
    assert back["now"]["n2"].startswith("idle")


def test_nobodys_reason_is_written_over_and_no_drain_of_others_is_lifted_unasked(
    user: Operator, root: Operator
) -> None:
    root.on("n3", f"scontrol update nodename=n2 state=drain reason='{REASON}'")

    answer = serve(root, "drain", "n[1-2]", "--why", "mine", "--yes")
    assert answer["left_alone"] == {"n2": f"drained by root ({REASON})"}
    assert answer["now"] == {"n1": "drained"}
    assert f"Reason={REASON} [" in shown(root, "n2")

    answer = serve(root, "resume", "n[1-2]", "--yes")
    assert (answer["nodes"], list(answer["left_alone"])) == (["n1"], ["n2"])
    assert "DRAIN" in shown(root, "n2")

    answer = serve(root, "resume", "n2", "--anyway", "--yes")
    assert answer["now"]["n2"].startswith("idle")


@pytest.mark.kept
def test_who_may_not_drain_is_told_so_in_one_sentence(user: Operator, root: Operator) -> None:
    done = user.lab.rankdeck("-c", user.file, "drain", "n2", "--why", "x", "--yes")

    assert done.returncode == 1
    assert "you may not take nodes out of service" in done.stderr
    assert "Traceback" not in done.stderr
    assert "DRAIN" not in shown(root, "n2")


def test_jobs_of_plain_sbatch_and_of_others_are_listed_and_stand_at_their_nodes(
    user: Operator, root: Operator
) -> None:
    mine = _submitted(user, "-N1 --nodelist=n1 --gpus-per-node=a100:2 -J prep")
    theirs = _submitted(root, "-N1 --hold -J others")

    listed = lambda: {one["job"]: one for one in user.objects("jobs") if "mine" in one}  # noqa: E731
    runs = lambda: listed().get(mine, {}).get("state") == "running"  # noqa: E731
    assert eventually(runs), listed()

    found = listed()
    assert (found[mine]["name"], found[mine]["mine"]) == ("prep", True)
    assert found[mine]["slurm"]["nodes"] == "n1"
    assert (found[theirs]["user"], found[theirs]["mine"]) == ("root", False)
    assert found[theirs]["slurm"]["stuck"]
    used = lambda: node(user, "n1")["slurm"]["gres_used"] == {"gpu:a100": 2}  # noqa: E731
    assert eventually(used), node(user, "n1")
    assert node(user, "n1")["slurm"]["jobs"] == [f"{mine} lab"]


def test_looking_all_the_time_costs_six_calls_a_minute(user: Operator, root: Operator) -> None:
    user = slurm.through(user, calls=6)
    user.objects("status")
    root.on("n3", "sdiag -r")
    began = time.monotonic()

    # Nodes and jobs are each looked at once a minute.
    while time.monotonic() - began < 70:
        user.objects("jobs")
        time.sleep(2)

    calls = _calls(root.on("n3", "sdiag"))
    minutes = math.ceil((time.monotonic() - began) / 60)
    assert 0 < calls <= 6 * minutes, (calls, minutes)


def test_a_slurm_without_accounting_says_that_it_keeps_no_history(user: Operator) -> None:
    done = user.lab.rankdeck("-c", user.file, "jobs", "--ended", limit=120)

    assert (done.returncode, done.stderr.count("keeps no history")) == (0, 1), done.stderr


DOC = Path(__file__).resolve().parents[3] / "docs/agent.md"
PROGRAM = "/usr/local/sbin/node-health"
WORKERS = ("n1", "n2")


@contextmanager
def configured(root: Operator, lines: str) -> Iterator[None]:
    """These lines in slurm.conf of all nodes, for the while of the block."""
    names = (*WORKERS, "n3")
    for name in names:
        root.on(
            name,
            f"cp /etc/slurm/slurm.conf /tmp/slurm.conf; printf '{lines}\\n' >>/etc/slurm/slurm.conf",
        )
    try:
        root.on("n3", "scontrol reconfigure")
        yield
    finally:
        for name in names:
            root.on(name, "cp /tmp/slurm.conf /etc/slurm/slurm.conf")
        root.on("n3", "scontrol reconfigure")


def _health_program(root: Operator) -> None:
    """The script of our page, with the agent and what to expect; only n2 lacks something."""
    (script,) = re.findall(
        r"```sh\n(#!/bin/sh\n# HealthCheckProgram=.*?)```", DOC.read_text(), re.DOTALL
    )
    shared = root.lab.shared
    (shared / "agent.pyz").write_bytes(build_bundle().data)
    (shared / "node-health").write_text(script)
    for node, count in zip(WORKERS, (0, 4), strict=True):
        wanted = f"expect: {{rdma_count: {count}}}" if count else "expect: {}"
        said = root.on(
            node,
            f"install -D -m 755 {shared}/node-health {PROGRAM}; mkdir -p /etc/rankdeck; echo '{wanted}' >/etc/rankdeck/expect.yaml; "
            f"printf '#!/bin/sh\\nexec python3 {shared}/agent.pyz \"$@\"\\n' >/usr/local/bin/rankdeck-agent; "
            "chmod 755 /usr/local/bin/rankdeck-agent; rankdeck-agent health --expect /etc/rankdeck/expect.yaml; echo code $?",
        )
        assert f"code {2 if count else 0}" in said, said


def test_slurms_health_check_drains_a_bad_node_with_our_reason_and_leaves_those_of_others(
    user: Operator, root: Operator
) -> None:
    _health_program(root)
    lines = f"HealthCheckProgram={PROGRAM}\\nHealthCheckInterval=3\\nHealthCheckNodeState=ANY"
    root.on("n3", f"scontrol update nodename=n1 state=drain reason='{REASON}'")
    with configured(root, lines):
        drained = lambda: "DRAIN" in shown(root, "n2")  # noqa: E731
        assert eventually(drained), shown(root, "n2") + root.on("n2", "tail /var/log/slurmd.log")
        assert "Reason=rankdeck: rdma.count: 0 of 4 RDMA ports" in shown(root, "n2")
        assert f"Reason={REASON} [" in shown(root, "n1")
        assert serve(root, "resume", "n2", "--dry-run")["nodes"] == ["n2"]


def test_a_controller_that_limits_rates_is_lived_with(user: Operator, root: Operator) -> None:
    limit = "SlurmctldParameters=rl_enable,rl_bucket_size=3,rl_refill_rate=1,rl_refill_period=2"
    with configured(root, limit):
        hurried = root.on(
            "n4", "for i in $(seq 8); do runuser -u lab -- squeue -h & done 2>&1; wait"
        )
        job = _script(user, "#!/bin/sh\necho up; sleep 300\n", "-N1 --nodelist=n1")
        runs = lambda: "up" in user.on("n4", f"cat {user.lab.shared}/slurm-{job}.out")  # noqa: E731
        assert eventually(runs), hurried
        done = user.lab.rankdeck("-c", user.file, "logs", job, limit=120)
        assert done.stdout == "[0] up\n", done.stderr
        assert node(user, "n1")["slurm"]["state"] == "mixed"
        (report,) = user.objects("cancel", job, "--yes", "--grace", "2")
        assert (report["state"], report["left"]) == ("cancelled", [])
        limited = root.on("n3", "grep -c 'rate limit exceeded' /var/log/slurmctld.log").strip()
        assert int(limited) > 0, hurried


LABELLED = """\
#!/bin/sh
echo from the batch script
srun --label sh -c 'echo "rank $SLURM_PROCID begins"; echo "odd $SLURM_PROCID" >&2; sleep 6; echo "rank $SLURM_PROCID ends"'
"""


def _script(who: Operator, text: str, options: str) -> str:
    """The id of a job of this script, submitted by hand from the folder that all nodes see."""
    file = who.lab.shared / f"{who.user}.sh"
    file.write_text(text)
    said = who.on("n4", f"cd {who.lab.shared} && sbatch --parsable {options} {file.name}")
    assert said.strip().isdigit(), said
    return said.strip()


def _state(who: Operator, job: str) -> dict[str, Any]:
    """What `jobs` says of the followed job whose Slurm id this is."""
    found = [one for one in who.objects("jobs") if (one["slurm"] or {}).get("id") == job]
    return next((one for one in found if "ranks" in one), {})


def test_a_labelled_job_of_somebody_else_is_read_rank_by_rank_and_no_line_twice(
    user: Operator, root: Operator
) -> None:
    shared = user.lab.shared
    job = _script(root, LABELLED, f"-N2 -n4 -J deep -o {shared}/%x-%j-%u.txt -e {shared}/%j.err")
    assert eventually(lambda: "rank 3 begins" in root.on("n4", f"cat {shared}/deep-{job}-root.txt"))

    done = user.lab.rankdeck("-c", user.file, "logs", job, "--follow", "--json", limit=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    told = {rank: [(one["stream"], one["text"]) for one in lines if one["rank"] == rank] for rank in range(4)}  # fmt: skip
    for rank, said in told.items():
        assert sorted(said) == [("err", f"odd {rank}"), ("out", f"rank {rank} begins"), ("out", f"rank {rank} ends")], done.stderr  # fmt: skip
    assert "Slurm job of root" in done.stderr

    over = lambda: _state(user, job).get("state") == "done"  # noqa: E731
    assert eventually(over), _state(user, job)
    found = _state(user, job)
    assert (found["owner"], found["nodes"]) == ("Slurm job of root", ["n[1-2]"])
    launcher = user.objects("logs", found["job"], "--launcher")
    assert [one["text"] for one in launcher] == ["from the batch script"]


def test_a_job_of_plain_sbatch_is_followed_to_its_exit_code_and_cancelled(user: Operator) -> None:
    failing = _script(user, "#!/bin/sh\necho one; sleep 4; echo two; exit 7\n", "-N1")
    done = user.lab.rankdeck("-c", user.file, "logs", failing, "--follow", limit=120)
    assert done.stdout.splitlines() == ["[0] one", "[0] two"], done.stderr
    failed = lambda: _state(user, failing).get("state") == "failed"  # noqa: E731
    assert eventually(failed), _state(user, failing)
    assert _state(user, failing)["ranks"][0]["exit_code"] == 7

    again = user.lab.rankdeck("-c", user.file, "logs", failing, limit=120)
    assert again.stdout == done.stdout
    own = user.run("--no-preflight", launch="plain", ranks_per_node=1, command=["echo", "ours"])
    assert [one["text"] for one in user.objects("logs", own["slurm"]["id"])] == ["ours", "ours"]
    ids = [one["slurm"]["id"] for one in user.objects("jobs") if one["slurm"] and "ranks" in one]
    assert (ids.count(failing), ids.count(own["slurm"]["id"])) == (1, 1)

    long = _script(user, "#!/bin/sh\necho up; sleep 300\n", "-N1")
    assert eventually(lambda: "up" in user.on("n4", f"cat {user.lab.shared}/slurm-{long}.out"))
    refused = user.lab.rankdeck("-c", user.file, "cancel", long)
    assert (refused.returncode, "is a Slurm job of lab" in refused.stderr) == (2, True)
    (report,) = user.objects("cancel", long, "--yes", "--grace", "2")
    assert (report["state"], report["left"]) == ("cancelled", [])
    # The keeper tells the end once it has read it from Slurm.
    ended = lambda: _state(user, long).get("state") == "cancelled"  # noqa: E731
    assert eventually(ended), _state(user, long)


def test_a_login_without_sbatch_is_a_finding_with_what_to_do(user: Operator) -> None:
    cluster = yaml.safe_load(Path(user.file).read_text())
    cluster["environment"] = {"PATH": "/nowhere"}
    file = user.lab.folder / "without.yaml"
    file.write_text(yaml.safe_dump(cluster))
    job = user.lab.folder / "job.yaml"
    job.write_text("job: a\nlaunch: plain\nranks_per_node: 1\ncommand: [hostname]\n")

    done = user.lab.rankdeck("-c", str(file), "preflight", str(job), "--json", limit=120)

    (told,) = map(json.loads, done.stdout.splitlines())
    (bad,) = [one for one in told["findings"] if one["check"] == "program"]
    assert (bad["level"], bad["text"]) == ("bad", "there is no sbatch in the PATH of this login")
    assert "`environment: {PATH: " in bad["fix"]


def test_what_slurm_grants_instead_of_what_was_asked_is_told(
    user: Operator, root: Operator
) -> None:
    asked = {"time": "5", "args": ["--hold"]}
    job = user.run("--no-preflight", "--detach", launch="plain", nodes=1, ranks_per_node=1,
                   command=["hostname"], slurm=asked)["job"]  # fmt: skip
    found = user.until(job, lambda one: one["slurm"] and one["slurm"]["limit"] == 300)
    assert found["slurm"]["instead"] == []

    root.on("n3", f"scontrol update jobid={found['slurm']['id']} timelimit=2")

    found = user.until(job, lambda one: one["slurm"]["instead"])
    assert found["slurm"]["instead"] == [{"option": "time", "asked": "5", "granted": "2 min 00 s"}]


def test_of_a_plain_array_only_the_tasks_of_the_row_that_was_named_are_cancelled(
    user: Operator,
) -> None:
    number = _submitted(user, "-N1 --mem=50M --array=0-5%2 -o /dev/null")
    rows = lambda: user.on("n4", "squeue -h -o '%i %T'").split("\n")  # noqa: E731
    waiting = f"{number}_[2-5%2]"
    begun = lambda: {f"{number}_0 RUNNING", f"{number}_1 RUNNING"} <= {*rows()}  # noqa: E731
    assert eventually(begun), rows()

    (report,) = user.objects("cancel", waiting, "--yes", "--grace", "2")

    assert (report["state"], report["left"]) == ("cancelled", [])
    assert {*filter(None, rows())} == {f"{number}_0 RUNNING", f"{number}_1 RUNNING"}
    (report,) = user.objects("cancel", f"{number}_1", "--yes", "--grace", "2")
    assert report["left"] == []
    assert {*filter(None, rows())} == {f"{number}_0 RUNNING"}


def test_a_job_of_somebody_else_goes_on_where_slurm_refuses_and_its_locked_output_is_named(
    user: Operator, root: Operator
) -> None:
    job = _script(
        root, "#!/bin/sh\necho secret; sleep 300\n", f"-N1 -o {user.lab.shared}/locked-%j"
    )
    file = user.lab.shared / f"locked-{job}"
    assert eventually(lambda: "secret" in root.on("n4", f"cat {file}; chmod 600 {file}"))

    done = user.lab.rankdeck("-c", user.file, "logs", job, limit=120)
    assert done.stdout == ""
    assert f"its output cannot be read here: {file}: Permission denied" in done.stderr

    done = user.lab.rankdeck("-c", user.file, "cancel", job, "--yes", limit=120)
    assert done.returncode == 1
    assert "for its owner or an operator of Slurm only" in done.stderr
    assert _state(user, job)["state"] == "running"
    assert "RUNNING" in root.on("n3", f"squeue -h -j {job} -o %T")

    root.on("n3", f"scancel {job}")
    ended = lambda: _state(user, job).get("state") == "cancelled"  # noqa: E731
    assert eventually(ended), _state(user, job)


def _submitted(who: Operator, options: str) -> str:
    said = who.on("n4", f"cd /tmp && sbatch --parsable {options} --wrap 'sleep 300'")
    assert said.strip().isdigit(), said
    return said.strip()


_ASKED = re.compile(r"REQUEST_(?:JOB_INFO|NODE_INFO|PARTITION_INFO)\S*\s+\(\s*\d+\)\s+count:(\d+)")


def _calls(sdiag: str) -> int:
    """Questions for jobs, nodes and partitions that the controller has answered."""
    types = sdiag.partition("statistics by message type")[2].partition("statistics by user")[0]
    return sum(map(int, _ASKED.findall(types)))


SPOOF = (
    "x UserId=lab(3000) GroupId=lab(3000) MCS_label=N/A JobState=COMPLETED Reason=None ExitCode=0:0"
)
FAKE = "999|N/A|N/A|RUNNING|lab|debug|1|1|0|0|0|1:00|None|n2|fake"


def test_the_name_of_a_job_lies_neither_about_its_owner_and_state_nor_about_other_jobs(
    user: Operator, root: Operator
) -> None:
    line = f"cd /tmp && sbatch --parsable -J $'{SPOOF}\\n{FAKE}' --wrap 'sleep 600'"
    number = root.on("n4", line).strip()

    listed = lambda: {one["job"]: one for one in user.objects("jobs")}  # noqa: E731
    assert eventually(lambda: number in listed()), listed()
    assert listed()[number]["user"] == "root"
    user.objects("logs", number)
    (followed,) = [one for name, one in listed().items() if name.startswith("x-")]

    assert (followed["owner"], followed["state"]) == ("Slurm job of root", "running")
    assert "999" not in listed()
