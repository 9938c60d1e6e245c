"""How long the ranks of a job have been silent, beside their usual pauses. No I/O."""

from typing import Optional

from rankdeck_agent.wire.black_box import SILENCE


class Pauses:
    """The silences of a job, each judged by the longest after which it went on.

    The first lasts from when all ranks run to what they write first: it does not count as a pause,
    since programs load and read for long before they write.
    """

    def __init__(self, longest: float) -> None:
        """`longest`: seconds after which every silence is unusual, however long others were."""
        self._longest = longest
        self._since: Optional[float] = None
        """When they wrote last, or began; None: not all of them run yet."""
        self._wrote = False
        self._pause = 0.0
        """Their longest pause so far."""
        self.depth = 0
        """0: they wrote just now, or do not run; 1: they are silent for longer than usual; 2: for
        the longest time.
        """

    def note(self, now: float, *, wrote: bool, begun: bool) -> None:
        """Note whether they have written since the last call, and whether all of them have begun;
        `now` in monotonic seconds.
        """
        if wrote:
            if self._wrote and self._since is not None:
                self._pause = max(self._pause, now - self._since)
            self._wrote = True
        if wrote or (begun and self._since is None):
            self._since = now
        # A job that pauses often is asked seldom.
        unusual = min(self._longest, max(SILENCE, 2 * self._pause))
        lasts = 0.0 if self._since is None else now - self._since
        self.depth = (lasts >= unusual) + (lasts >= self._longest)
