"""One node of a job that is followed: its stream, its channel, and the
state that says which step comes next.
"""

import time
from enum import Enum

from rankdeck.backends.node_stream import NodeStream
from rankdeck.remote.shell import Channel

TICK = 1.0
"""Seconds between two looks at how long nodes have been silent."""
_MOST_DOUBLED = 4


class LinkState(Enum):
    """How far the connection with one node of a job is."""

    CONNECTING = "connecting"
    """Nothing has come on the present connection, or there is none."""
    AWAITED = "awaited"
    """Another console is about to start the job there."""
    FOLLOWING = "following"
    """The node sends."""
    LOST = "lost"
    """It does not answer any more; it is tried on."""
    ENDED = "ended"
    """The job is over there, and all its output that was asked for has come."""
    READING_AGAIN = "reading again"
    """The job is over there, and output is fetched that was asked for since."""


_NEXT = {
    LinkState.CONNECTING: (LinkState.FOLLOWING, LinkState.AWAITED, LinkState.LOST, LinkState.ENDED),
    LinkState.AWAITED: (LinkState.CONNECTING, LinkState.FOLLOWING, LinkState.ENDED),
    LinkState.FOLLOWING: (
        LinkState.CONNECTING,
        LinkState.AWAITED,
        LinkState.LOST,
        LinkState.ENDED,
    ),
    LinkState.LOST: (LinkState.FOLLOWING, LinkState.AWAITED, LinkState.ENDED),
    LinkState.ENDED: (LinkState.READING_AGAIN,),
    LinkState.READING_AGAIN: (LinkState.ENDED,),
}
"""State -> the states that may follow."""


class NodeLink:
    """What a follower knows of one node of its job."""

    def __init__(self, stream: NodeStream) -> None:
        self.stream = stream
        self.node = stream.node
        self.state = LinkState.CONNECTING
        self.channel: Channel | None = None
        self.why = ""
        """Why the last channel ended, until the node sends something again."""
        self.heard_at = time.monotonic()
        """When it last sent anything, or when following began, monotonic seconds."""
        self.unknown_since: float | None = None
        """Since when it reports that it does not know the job, while no console starts it there."""
        self.doubted = False
        """Whether its last stream was invalid; believed again once a new one has caught up."""
        self.given_up = False
        """Whether nobody waits for it any more, because the job is over."""
        self._quiet: int | None = None
        """Looks since the node's last frame on any channel; None: it has never sent one."""
        self._quiet_channel = 0
        """Looks since the last frame on the present channel, or since that channel was opened."""
        self._unheard = 0
        """Channels opened since the node's last frame."""

    def go(self, state: LinkState) -> None:
        """Enter a state that may follow the present one."""
        assert state in _NEXT[self.state], f"{self.node}: {self.state} to {state}"
        self.state = state

    @property
    def connected(self) -> bool:
        """Whether the node has sent something since the connection was made."""
        return self.state is LinkState.FOLLOWING

    @property
    def over(self) -> bool:
        """Whether nothing more is awaited from it."""
        return self.state is LinkState.ENDED or self.given_up

    @property
    def behind(self) -> bool:
        """Whether it has not sent all events up to now, though it
        is not known to be unreachable.
        """
        if self.state is LinkState.READING_AGAIN:
            return True
        unreachable = self.state in (LinkState.LOST, LinkState.AWAITED)
        return not (self.stream.caught_up or self.stream.closed or unreachable)

    # ---- silence: looks are counted, so that time for which this console was suspended is none

    def look(self) -> None:
        """Count a look, TICK seconds after the one before."""
        self._quiet_channel += 1
        if self._quiet is not None:
            self._quiet += 1

    def opened(self, channel: Channel) -> None:
        """Note that a channel to the node has just been opened."""
        self.channel, self._quiet_channel = channel, 0
        self._unheard += 1

    def heard(self) -> None:
        """Note that the node has sent a frame."""
        self._quiet = self._quiet_channel = self._unheard = 0

    @property
    def silence(self) -> float:
        """Seconds since the node's last frame on any channel; 0 if it has never sent one."""
        return (self._quiet or 0) * TICK

    @property
    def channel_silence(self) -> float:
        """Seconds since the last frame on the present channel, or since that channel was opened."""
        return self._quiet_channel * TICK

    @property
    def slowness(self) -> int:
        """How much longer than usual its channel may be silent: twice as long
        for each one before it that was never heard.
        """
        return 1 << min(max(self._unheard - 1, 0), _MOST_DOUBLED)
