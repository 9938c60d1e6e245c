"""The folder in which the agent keeps the run folders of this machine."""

import errno
import os
from pathlib import Path

_MAKE_ROOM = "make room there, then try again"
_MAKE_WAY = "a file has its name, or a link that leads nowhere: remove that, or make the folder that it names"
_WHAT_TO_DO = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: f"your quota is used up (`quota -s`): {_MAKE_ROOM}",
    errno.EROFS: "mount it for writing, or name another folder in RANKDECK_STATE in the node's login environment",
    errno.EACCES: "give it to the login user",
    errno.EEXIST: _MAKE_WAY,
    errno.ENOTDIR: _MAKE_WAY,
}


def agent_state_folder() -> Path:
    """The folder for the run folders of this machine: RANKDECK_STATE, else
    `rankdeck` in XDG_STATE_HOME or ~/.local/state.
    """
    chosen = os.environ.get("RANKDECK_STATE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(base) / "rankdeck"


def unwritable_folder(path: Path, error: OSError) -> str:
    """A sentence about a folder that cannot be written: which, why, and what to do."""
    do = _WHAT_TO_DO.get(error.errno or 0)
    why = error.strerror or str(error)
    return f"{path} cannot be written: {why}" + (f"; {do}" if do else "")
