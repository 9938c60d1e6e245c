"""When silent ranks of a Slurm job are asked where they stand, while perhaps no console looks."""

import os
from math import inf

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.pauses import Pauses
from rankdeck_agent.schedulers.slurm.keeper_lease import slurm_command

SILENCE_CALLS = 10
"""Calls to the controller for the questions in one silence, each a step of srun: three to begin it,
two for its end, by sdiag.
"""


class SilenceWatch:
    """The silences of one job.

    Each question is a step in Slurm's accounting: so a job is asked only in silences that are twice
    as long as all before.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._pauses = Pauses(inf)
        self._asked = False
        """Whether its ranks were asked in this silence."""

    @property
    def due(self) -> bool:
        """Whether the ranks are to be asked now."""
        return bool(self._pauses.depth) and not self._asked

    def note(self, now: float, *, wrote: bool, begun: bool) -> None:
        """See Pauses."""
        self._pauses.note(now, wrote=wrote, begun=begun)
        if wrote and self._asked:
            from rankdeck_agent.job.black_box import Ring

            self._asked = False
            Ring(self._folder).note_resumed()

    def ask(self) -> None:
        """Have the ranks asked by another process, which may take a minute; it is no child of this
        one, and writes its complaints where this one does. Raises OSError.
        """
        self._asked = True
        argv = slurm_command("silence", self._folder.job, self._folder.node)
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            if os.fork() == 0:
                os.execv(argv[0], argv)
        finally:
            os._exit(0)
