"""Files: those that ship with Rankdeck, the folders of the user; private ones written, those of others read without blocking."""

import os
import resource
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

from rankdeck.errors import UnknownFileError, suggest_or_list

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml")


def shipped(name: str) -> Path:
    """The folder `name` that ships with us: inside the package, or at the root of a checkout."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / name


def _xdg(variable: str, usual: str) -> Path:
    """An XDG folder; a relative value is ignored, as the specification says."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / usual


def config_folder() -> Path:
    """The user's own settings and cluster files."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "rankdeck"


def state_folder() -> Path:
    """What the console keeps: history, log, known demo cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "rankdeck" / "console"


def cluster_folders() -> tuple[Path, ...]:
    """Where a cluster's name is looked up, the user's own first."""
    return (config_folder() / "clusters", state_folder() / "clusters", shipped("sample-clusters"))


def job_folders(cluster_file: str = "") -> tuple[Path, ...]:
    """Where a job's name is looked up: beside the cluster file, the user's own, the samples."""
    beside = (Path(cluster_file).parent / "jobs",) if cluster_file else ()
    folders = (*beside, config_folder() / "jobs", shipped("sample-clusters") / "jobs")
    return tuple(dict.fromkeys(folders))


def find_cluster(name_or_path: str) -> Path:
    """The file of a cluster given by path or by name; raises UnknownFileError."""
    return _find("cluster", name_or_path, cluster_folders())


def demo_folder() -> Path:
    """The files of the embedded cluster."""
    return state_folder().absolute() / "demo"


def said_for(file: str) -> str:
    """What to say behind `-c` for a cluster file, from whatever folder: its name where that leads there, else its path."""
    path = Path(file).absolute()
    if path.parent == demo_folder():
        return "demo"
    try:
        return path.stem if find_cluster(path.stem).samefile(path) else str(path)
    except (UnknownFileError, OSError):
        return str(path)


def command_of(verb: str, file: str) -> str:
    """How a command about the cluster of this file begins, in whatever folder it is typed; "" has no file."""
    return f"rankdeck {verb} -c {quote(said_for(file))}" if file else f"rankdeck {verb}"


def find_job(name_or_path: str, cluster_file: str = "") -> Path:
    """The file of a job given by path or by name; raises UnknownFileError."""
    return _find("job", name_or_path, job_folders(cluster_file))


def names_in(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names under which the files in these folders are found, each once."""
    files = (file for folder in folders for file in _yaml_files(folder))
    return tuple(dict.fromkeys(file.stem for file in files))


def _find(kind: str, name_or_path: str, folders: Sequence[Path]) -> Path:
    given = Path(name_or_path).expanduser()
    if given.suffix in _SUFFIXES or len(given.parts) > 1 or given.is_file():
        return given
    for folder in folders:
        for suffix in _SUFFIXES:
            if (folder / f"{name_or_path}{suffix}").is_file():
                return folder / f"{name_or_path}{suffix}"
    known = names_in(folders)
    hint = suggest_or_list(name_or_path, known)
    raise UnknownFileError(
        f"no {kind} `{name_or_path[:60]}` in {folders[0]} or among the samples{hint}"
    )


def _yaml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)


WIDER = 0o077
"""What the group and others may do with a file."""


def keep_private() -> None:
    """From now on every file and folder that this process makes is its owner's alone.

    It leaves no core either: its memory has keys and passwords.
    """
    os.umask(WIDER)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def private_folder(path: Path) -> None:
    """A folder of the owner alone; one that others may read is narrowed. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def private_file(path: Path) -> None:
    """A file of the owner alone, empty if it was not there; raises OSError.

    One that exists is not opened: closing it would end the locks that this process has on it, and
    two writers of a SQLite file would destroy it.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        keep_from_others(path)


def keep_from_others(path: Path) -> None:
    """Take from group and others what they may do with a file, if it is there; raises OSError."""
    with suppress(FileNotFoundError):
        seen = path.stat()
        if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
            path.chmod(seen.st_mode & 0o700)


def write_private(path: Path, text: str, *, program: bool = False) -> None:
    """Write a file of the owner alone; raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        os.fchmod(handle, 0o700 if program else 0o600)
        file.write(text)


def write_new(path: Path, lines: Iterable[str], *, program: bool = False) -> None:
    """These lines into a file of the owner alone that is not there yet; raises OSError."""
    path.touch(mode=0o600, exist_ok=False)
    write_private(path, "".join(f"{line}\n" for line in lines), program=program)


LIMIT = 8 << 20
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular(path: Path, limit: int = LIMIT) -> bytes:
    """The bytes of a regular file of at most `limit`; raises OSError that says what else it is."""
    # A pipe or device must not even be opened: that alone may block, or do something.
    _check(path.stat(), limit)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        _check(os.fstat(stream.fileno()), limit)
        raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise OSError(0, _too_large(limit))
    return raw


def _check(found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in _KINDS if test(found.st_mode)), "no file")
        raise OSError(0, f"is {kind}, not a regular file")
    if found.st_size > limit:
        raise OSError(0, _too_large(limit))


def _too_large(limit: int) -> str:
    return f"larger than {limit >> 10} KiB"
