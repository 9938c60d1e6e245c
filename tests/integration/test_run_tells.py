"""What `rankdeck run` says on stderr while the job still runs."""

import pytest
from tests.integration import test_main_path
from tests.integration.test_main_path import Console
from tests.support.rest import rest_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
console = test_main_path.console
FAILS = """
job: early
launch: plain
nodes: 2
ranks_per_node: 2
command: [sh, -c, '[ $RANK = 2 ] && { sleep 1; kill -SEGV $$; }; exec sleep 60']
grace: 1
abort: {countdown: 12}
"""


def test_run_tells_the_first_failure_and_the_countdown_while_others_still_run(
    console: Console,
) -> None:
    file = console.file("early.yaml", FAILS)
    with console.start("run", file, "--no-preflight") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and not lines[-1].startswith("stopping"):
            lines.append(process.stderr.readline())
        # It is told while the others run: `jobs` still finds them.
        job = next(job for job in console.objects("jobs") if job["name"] == "early")
        _, rest = rest_of(process, 300)

    assert "first failure so far: rank 2 on sakura, signal 11 (SIGSEGV)\n" in lines
    assert lines[-1].startswith("stopping the other ranks in ")
    assert "Ctrl-C" in lines[-1]
    assert job["state"] == "running"
    assert rest.startswith("stopping the other ranks now\n"), rest
    assert rest.count("first failure") == 1


def test_run_with_json_tells_nothing_on_the_way(console: Console) -> None:
    file = console.file("early-json.yaml", FAILS.replace("job: early", "job: json"))

    ran = console.run("run", file, "--no-preflight", "--json")

    assert "so far" not in ran.stderr
    assert "stopping" not in ran.stderr


LONG = """
job: long
launch: plain
nodes: 1
ranks_per_node: 1
command: [sh, -c, 'seq 1 125000 | sed "s/^/line /"; exec sleep 60']
grace: 1
"""


@pytest.mark.kept
def test_an_attach_prints_every_line_from_the_first(
    console: Console,
) -> None:
    file = console.file("long.yaml", LONG)
    console.run("run", file, "--no-preflight", "--detach")

    with console.start("attach", "long") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(125_000)]
        console.run("cancel", "long")
        process.communicate(timeout=300)

    assert lines == [f"[0] line {number}\n" for number in range(1, 125_001)]
