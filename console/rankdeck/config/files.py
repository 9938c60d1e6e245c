"""Files: where Rankdeck's and the user's files are; writes private files, reads files of others without blocking."""

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
    """The folder `name` that ships with Rankdeck: inside the package, or at the root of a checkout."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / name


def _xdg(variable: str, usual: str) -> Path:
    """An XDG folder: from the variable (a relative path is ignored, as specified), else `usual` in the home folder."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / usual


def config_folder() -> Path:
    """The folder with the user's own settings and cluster files."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "rankdeck"


def state_folder() -> Path:
    """The folder in which the console keeps its state: history, log, demo cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "rankdeck" / "console"


def cluster_folders() -> tuple[Path, ...]:
    """The folders in which a cluster's name is searched, the user's own first."""
    return (config_folder() / "clusters", state_folder() / "clusters", shipped("sample-clusters"))


def job_folders(cluster_file: str = "") -> tuple[Path, ...]:
    """The folders in which a job's name is searched: beside the cluster file, the user's own, the samples."""
    beside = (Path(cluster_file).parent / "jobs",) if cluster_file else ()
    folders = (*beside, config_folder() / "jobs", shipped("sample-clusters") / "jobs")
    return tuple(dict.fromkeys(folders))


def find_cluster(name_or_path: str) -> Path:
    """The file of a cluster given by path or by name; raises UnknownFileError."""
    return _find("cluster", name_or_path, cluster_folders())


def demo_folder() -> Path:
    """The folder with the files of the demo cluster."""
    return state_folder().absolute() / "demo"


def said_for(file: str) -> str:
    """The argument of `-c` for a cluster file that works in every folder: its name if that finds it, else its path."""
    path = Path(file).absolute()
    if path.parent == demo_folder():
        return "demo"
    try:
        return path.stem if find_cluster(path.stem).samefile(path) else str(path)
    except (UnknownFileError, OSError):
        return str(path)


def command_of(verb: str, file: str) -> str:
    """The start of a command line for this cluster file, valid in every folder; without `-c` if `file` is ""."""
    return f"rankdeck {verb} -c {quote(said_for(file))}" if file else f"rankdeck {verb}"


def find_job(name_or_path: str, cluster_file: str = "") -> Path:
    """The file of a job given by path or by name; raises UnknownFileError."""
    return _find("job", name_or_path, job_folders(cluster_file))


def names_in(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names by which the YAML files in these folders are found, each once."""
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
"""Mode bits of the group and others."""


def keep_private() -> None:
    """Make every file and folder that this process creates from now on private to its owner.

    Also disables core dumps, because the process has keys and passwords in memory.
    """
    os.umask(WIDER)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def private_folder(path: Path) -> None:
    """Create a folder that only its owner can use; an existing one is made private. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def private_file(path: Path) -> None:
    """Create an empty file that only its owner can use; an existing one is made private. Raises OSError.

    An existing file is not opened: closing it would release the locks that this process has on it, and
    two writers of an SQLite file would destroy it.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        keep_from_others(path)


def keep_from_others(path: Path) -> None:
    """Remove all rights of group and others on a file, if it exists and is the user's own; raises OSError."""
    with suppress(FileNotFoundError):
        seen = path.stat()
        if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
            path.chmod(seen.st_mode & 0o700)


def write_private(path: Path, text: str, *, program: bool = False) -> None:
    """Write a file that only its owner can use (`program`: and run); raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        os.fchmod(handle, 0o700 if program else 0o600)
        file.write(text)


def write_new(path: Path, lines: Iterable[str], *, program: bool = False) -> None:
    """Write these lines to a new private file; raises OSError, also if the file exists."""
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
    """The content of a regular file of at most `limit` bytes; raises OSError, which says what else it is."""
    # A pipe or device must not even be opened: opening it may block or have an effect.
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
