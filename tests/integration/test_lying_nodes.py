"""A node whose agent is a program that lies, behind a real SSH server."""

import asyncio
import sys
from contextlib import aclosing

import pytest
from tests.support.jobs import console

from rankdeck.backends import follow
from rankdeck.backends.follow import SshFollower
from rankdeck.backends.remote_log import record_job
from rankdeck.backends.ssh import SshBackend
from rankdeck.model.job_events import NodeEvent
from rankdeck.remote.agent import Agents
from rankdeck.state.lines import JobPositions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SILENT = "import time; time.sleep(600)"
ENDLESS = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
HALF = """import sys; sys.stdout.write('{"kind":"data","r":0,"s":"out","o":0,"n":99,"at":1.7e9}\\nx')"""
MIXED = """import sys, time
now = '{"kind":"now","at":%f}' % time.time()
for line in (now, 'no frame', '{"kind":5}', now):
    print(line, flush=True)
time.sleep(600)"""
SLOW = """import os, sys, time
time.sleep(5)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""


def lying_python(home, program):
    """A Python that runs this program where it should run the
    agent; tells the truth of the file.
    """
    python, script = home / "python", home / "liar.py"
    script.write_text(program)
    python.write_text(
        f'#!/bin/sh\ncase "$HOME:$1 $2" in {home}:"-ES "*.pyz) exec {sys.executable} {script} "$@";; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    return str(python)


async def told_of(tmp_path, program, kinds, limit=40.0, patience=1.0):
    """The first event of one of these kinds about a node with that agent, and all before it."""
    async with console(tmp_path, ("n1", "n2")) as one:
        job = await one.launch("sleep 600")
        agents = Agents(
            one.connections, lying_python(one.nodes.sshd["n2"].home, program), patience=patience
        )
        plan = one.jobs.job(job).plan
        follower = SshFollower(agents, plan, {}, JobPositions().of, lost_after=2)
        heard = []
        async with asyncio.timeout(limit), aclosing(aiter(follower)) as events:
            async for event in events:
                if isinstance(event, NodeEvent) and event.node == "n2":
                    heard.append(event)
                    if event.kind in kinds:
                        await follower.close()
    return heard


async def test_an_agent_that_says_nothing_does_not_answer(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(follow, "SILENT_AFTER", 3)

    heard = await told_of(tmp_path, SILENT, ("lost",))

    assert "said nothing for 3 s" in heard[-1].body.why
    assert not [event for event in heard if event.kind == "connected"]


@pytest.mark.parametrize("patience", [1.0, 6.0], ids=["each-longer", "patience"])
async def test_an_agent_that_starts_slowly_is_heard_at_last(
    tmp_path, monkeypatch, patience
) -> None:
    monkeypatch.setattr(follow, "SILENT_AFTER", 2)

    heard = await told_of(tmp_path, SLOW, ("connected",), 240.0, patience)

    assert heard[-1].kind == "connected"


@pytest.mark.left_out("import sys; *")
@pytest.mark.parametrize("program", [ENDLESS, HALF])
async def test_an_agent_that_never_sends_a_whole_frame_does_not_answer(tmp_path, program) -> None:
    heard = await told_of(tmp_path, program, ("lost",))

    assert "does not answer" in heard[-1].body.sentence
    assert not [event for event in heard if event.kind == "connected"]


async def test_a_line_between_frames_that_is_none_is_said_once(tmp_path) -> None:
    heard = await told_of(tmp_path, MIXED, ("refused",))

    assert heard[-1].body.text == "sent a line that is no frame: left out"


@pytest.mark.left_out("import sys; *")
@pytest.mark.parametrize("program", [ENDLESS, HALF])
async def test_a_report_ends_though_a_node_tells_nothing_sound(tmp_path, program) -> None:
    async with console(tmp_path, ("n1", "n2")) as one:
        job = await one.launch("for i in 1 2 3; do echo $i; sleep 0.1; done; sleep 600")
        python = lying_python(one.nodes.sshd["n2"].home, program)
        backend = SshBackend(Agents(one.connections, python))
        pieces = []
        recording = await record_job(backend, one.jobs.job(job), pieces.append, None)

    assert {piece.node for piece in pieces} == {"n1"}
    assert "does not answer" in recording.missing["n2"]
