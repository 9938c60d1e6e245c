"""A node whose agent is a program that lies, behind a real SSH server."""

import asyncio
import time
from contextlib import aclosing

import pytest
from tests.support.jobs import console

from rankdeck.backends import follow
from rankdeck.backends.follow import SshFollower
from rankdeck.backends.recording import record
from rankdeck.model.job import NodeEvent
from rankdeck.remote.agent import Agents, bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SILENT = "import time; time.sleep(600)"
ENDLESS = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
HALF = """import sys; sys.stdout.write('{"kind":"data","r":0,"s":"out","o":0,"n":99,"at":1.7e9}\\nx')"""
MIXED = """import sys, time
now = '{"kind":"now","at":%f}' % time.time()
for line in (now, 'no frame', '{"kind":5}', now):
    print(line, flush=True)
time.sleep(600)"""


def put(home, program):
    """Lay the program where the agent lies; the console looks at its size alone."""
    folder = home / ".cache/rankdeck"
    folder.mkdir(parents=True, exist_ok=True)
    agent = bundle()
    (folder / agent.name).write_bytes(f"{program}\n#".encode().ljust(len(agent.data), b"x"))


async def told_of(tmp_path, program, kinds, limit=40.0):
    """The first event of one of these kinds about a node with that agent, and all before it."""
    async with console(tmp_path, ("n1", "n2")) as one:
        job = await one.launch("sleep 600")
        put(one.nodes.sshd["n2"].home, program)
        plan = one.jobs.job(job).plan
        follower = SshFollower(one.connections, Agents(one.connections), plan, {}, lost_after=2)
        heard = []
        try:
            async with asyncio.timeout(limit), aclosing(aiter(follower)) as events:
                async for event in events:
                    if isinstance(event, NodeEvent) and event.node == "n2":
                        heard.append(event)
                        if event.kind in kinds:
                            await follower.close()
        finally:
            put_back(one.nodes.sshd["n2"].home)
    return heard


def put_back(home):
    agent = bundle()
    (home / ".cache/rankdeck" / agent.name).write_bytes(agent.data)


async def test_an_agent_that_says_nothing_does_not_answer(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(follow, "SILENT_AFTER", 3)

    heard = await told_of(tmp_path, SILENT, ("lost",))

    assert "said nothing for 3 s" in heard[-1].fields["text"]
    assert not [event for event in heard if event.kind == "connected"]


@pytest.mark.parametrize("program", [ENDLESS, HALF])
async def test_an_agent_that_never_sends_a_whole_frame_does_not_answer(tmp_path, program) -> None:
    heard = await told_of(tmp_path, program, ("lost",))

    assert "does not answer" in heard[-1].fields["text"]
    assert not [event for event in heard if event.kind == "connected"]


async def test_a_line_between_frames_that_is_none_is_said_once(tmp_path) -> None:
    heard = await told_of(tmp_path, MIXED, ("trouble",))

    assert heard[-1].fields["text"] == "sent a line that is no frame: left out"


@pytest.mark.parametrize("program", [ENDLESS, HALF])
async def test_a_report_ends_though_a_node_tells_nothing_sound(tmp_path, program) -> None:
    async with console(tmp_path, ("n1", "n2")) as one:
        job = await one.launch("for i in 1 2 3; do echo $i; sleep 0.1; done; sleep 600")
        put(one.nodes.sshd["n2"].home, program)
        pieces, began = [], time.monotonic()
        try:
            recording = await record(one.backend, one.jobs.job(job), pieces.append, None)
        finally:
            put_back(one.nodes.sshd["n2"].home)

    assert time.monotonic() - began < 80
    assert {piece.node for piece in pieces} == {"n1"}
    assert "does not answer" in recording.missing["n2"]
