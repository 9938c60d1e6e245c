"""The keeper of Kubernetes jobs where the server is slow, lies or talks
nonsense, and where a node falls silent.
"""

import re
from pathlib import Path

import pytest
from tests.support.kubernetes.kept import JOB, Kept
from tests.support.kubernetes.pretend import Script
from tests.support.polling import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
PODS = "/api/v1/namespaces/default/pods"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


@pytest.fixture
def keeper(kubernetes, kubectl, tmp_path):
    """A keeper that is not started yet, with a double of pretended pods."""
    made = []

    def make(**settings):
        made.append(Kept(kubernetes(processes=False), kubectl, tmp_path / "keeper", **settings))
        made[-1].speak()
        return made[-1]

    (tmp_path / "keeper").mkdir()
    yield make
    for one in made:
        one.down()


def test_a_slow_server_only_makes_it_slow(keeper):
    kept = keeper()
    kept.double.slow(0.7)
    assert kept.start().wait() == 0, kept.said()
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank)


@pytest.mark.kept
def test_a_silent_node_is_told_and_its_job_can_still_be_cancelled(keeper):
    kept = keeper()
    kept.speak(lasting=600)
    kept.start()
    kept.runs()
    (node,) = {
        p["spec"]["nodeName"] for p in kept.double.all("pods") if "-0-" in p["metadata"]["name"]
    }
    kept.double.lose_node(node)
    wait_until(lambda: "Node is not ready" in kept.said(), 30, "a word about the node")
    assert kept.term(60) == 1
    left = kept.said().split("not gone:")[1]
    assert f"{JOB}-0-" in left
    assert node in left
    assert f"{JOB}-1-" not in left


ODD = {
    "a list": [1, 2, 3],
    "a number": 7,
    "items of other types": {"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [1, "x", None, {}]},
    "metadata of other types": {"kind": "PodList", "metadata": [], "items": [{"metadata": "x", "spec": 3, "status": []}]},
    "text": "<html>captive portal</html>",
    "controls": {"kind": "PodList", "metadata": {"resourceVersion": "\x1b[2J\x00"}, "items": [
        {"metadata": {"name": "\x1b]0;gotcha\x07", "uid": "\x9b31m", "labels": {"a": "\r\n"}},
         "status": {"phase": "\x1b[2J", "containerStatuses": [{"name": 7, "state": {"waiting": {"message": "\x1b[31m"}}}]}}]},
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_answers_are_survived_and_nothing_odd_is_shown(what, keeper):
    kept = keeper()
    kept.speak(lasting=4.0)
    kept.double.answer("GET", PODS, 200, ODD[what])
    kept.start()
    wait_until(lambda: any(path == PODS for _, path in kept.double.api.requests), 60, "a list")
    wait_until(lambda: sum(path == PODS for _, path in kept.double.api.requests) >= 1, 60)
    kept.double.api.faults.answers.clear()
    kept.double.cut_watches()
    kept.double.forget_history()
    kept.double.cut_watches()
    kept.wait(60)
    assert not CONTROLS.search(kept.said()), kept.said()
    assert "Traceback" not in kept.said()


@pytest.mark.kept
def test_an_answer_without_an_end_of_sense_is_bounded(keeper):
    kept = keeper()
    kept.speak(lasting=600)
    kept.double.answer("GET", PODS, 200, b'{"kind": "PodList", "items": ["' + b"x" * (65 << 20))
    kept.start()
    wait_until(lambda: "over 64 MB" in kept.said(), 90, "the limit in words")
    status = Path(f"/proc/{kept.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
    assert peak < 300, f"{peak} MiB"
    kept.double.api.faults.answers.clear()
    assert kept.term() != 0


@pytest.mark.kept
def test_hostile_lines_of_a_pod_change_no_other_ranks_output(keeper):
    kept = keeper()
    kept.speak(lasting=3.0)
    kept.speak(rank=1, lasting=3.0)
    kept.double.script(f"{JOB}-1-.*", SHOUTING)
    kept.start().wait()
    said = kept.lines(0)
    assert said == [f"line {n + 1}" for n in range(len(said))], said[:5]


ODD_LINES = (
    "[rank 0 out] forged",
    "[rank 0 exit] 9",
    "[rank 999999 out] nobody",
    "\x1b[2J",
    "x" * 300000,
)
SHOUTING = Script("[rank 1 out] line {n}", 0.05, 3.0, 0, ("[rank 1 start] h", *ODD_LINES))


def test_ranks_of_pods_that_name_none_are_told_as_begun(keeper):
    kept = keeper()
    kept.double.script(f"{JOB}-.*", Script("a line", 0.1, 600))
    kept.start()
    wait_until(lambda: (kept.folder.place(1) / "started").exists(), 60, "rank 1")
    assert kept.lines(1)[0] == "a line"
    kept.term()
