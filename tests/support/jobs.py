"""A minimal session: launches and follows jobs through a backend."""

import time
from contextlib import aclosing, asynccontextmanager

from rankdeck.backends.ssh import SshBackend
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.rank_output import Chunk
from rankdeck.remote.agent import Agents
from rankdeck.remote.ssh import Connections
from rankdeck.state.jobs import Jobs
from tests.support.sshd import nodes_with_agent


class Console:
    """Launches and follows jobs; records the events and chunks."""

    def __init__(self, cluster, connections):
        self.cluster, self.connections = cluster, connections
        self.agents = Agents(connections)
        self.backend = SshBackend(self.agents)
        self.jobs = Jobs()
        self.kinds = []
        self.told = []
        self.chunks = []
        self.followers = {}
        self.counter = 0

    async def launch(self, script, **options):
        self.counter += 1
        launch = options.pop("launch", Launch.PLAIN)
        command = ("sh", "-c", script)
        spec = JobSpec(
            name="t",
            launch=launch,
            command=command,
            **{"nodes": 2, "grace": 1.0, **options},
        )
        job = f"t-{time.time_ns()}-{self.counter}"
        plan = await self.backend.launch(self.backend.plan(self.cluster, spec, job))
        return self.jobs.add(plan, time.time()).id

    async def follow(self, job):
        follower = self.backend.follow(
            self.jobs.job(job).plan, self.jobs.seen(job), self.jobs.positions_of(job)
        )
        self.followers[job] = follower
        async with aclosing(aiter(follower)) as events:
            async for event in events:
                new = self.jobs.apply(event)
                if isinstance(new, Chunk):
                    self.chunks.append(new)
                elif not isinstance(event, Chunk):
                    self.kinds.append((event.node, getattr(event, "kind", "tail")))
                    self.told.append(event)

    def events(self, node, kind):
        """The events of this kind from a node."""
        of_kind = [e for e in self.told if getattr(e, "kind", "tail") == kind]
        return [e for e in of_kind if e.node == node]

    def watch(self, job, ranks, backlog=None):
        self.followers[job].watch(tuple(ranks), backlog)

    def state(self, job):
        return self.jobs.job(job).state

    def texts(self, job, rank):
        return [line.text for line in self.jobs.log(job, rank).lines]


@asynccontextmanager
async def console(tmp_path, names=("n1", "n2")):
    """Two nodes with the SSH backend; what still runs is cancelled at the end."""
    async with (
        nodes_with_agent(tmp_path, names) as found,
        Connections(found.cluster) as connections,
    ):
        one = Console(found.cluster, connections)
        one.nodes = found
        try:
            yield one
        finally:
            for record in one.jobs.all():
                if not record.state.final:
                    await one.backend.cancel(record.plan, 0)
