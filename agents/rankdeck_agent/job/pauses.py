"""How long the ranks of a job have been silent, beside their usual pauses. No I/O."""

from rankdeck_agent.wire.black_box import SILENCE


class Pauses:
    """The silences of a job, each judged by the longest after which it went on."""

    def __init__(self, longest: float) -> None:
        """`longest`: seconds after which every silence is unusual, however long others were."""
        self._longest = longest
        self._began = False
        self._since = self._pause = 0.0
        """When they wrote last, and their longest pause so far."""
        self.depth = 0
        """0: they wrote just now, or never; 1: they are silent for longer than usual; 2: for the
        longest time.
        """

    def note(self, now: float, *, wrote: bool) -> None:
        """Note whether they have written since the last call; `now` in monotonic seconds."""
        if wrote:
            self._pause = max(self._pause, now - self._since) if self._began else 0.0
            self._began, self._since = True, now
        # A job that pauses often is asked seldom.
        unusual = min(self._longest, max(SILENCE, 2 * self._pause))
        lasts = now - self._since if self._began else 0.0
        self.depth = (lasts >= unusual) + (lasts >= self._longest)
