"""Files: where Rankdeck's and the user's files are; the one way in which they are
written, and the one in which they are read.
"""

import errno
import fcntl
import os
import pwd
import resource
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from rankdeck.errors import RankdeckError, UnknownFileError, find_closest, suggest_or_list

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml")


def find_shipped(name: str) -> Path:
    """The folder `name` that ships with Rankdeck: inside the
    package, or at the root of a checkout.
    """
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / name


def _xdg(variable: str, usual: str) -> Path:
    """An XDG folder: from the variable (a relative path is ignored, as
    specified), else `usual` in the home folder.
    """
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / usual


def config_folder() -> Path:
    """The folder with the user's own settings and cluster files."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "rankdeck"


def console_state_folder() -> Path:
    """The folder in which the console keeps its state: history, log, demo cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "rankdeck" / "console"


def cluster_folders() -> tuple[Path, ...]:
    """The folders in which a cluster's name is searched, the user's own first."""
    return (
        config_folder() / "clusters",
        console_state_folder() / "clusters",
        find_shipped("sample-clusters"),
    )


def job_folders(cluster_file: str = "") -> tuple[Path, ...]:
    """The folders in which a job's name is searched: beside the cluster
    file, the user's own, the samples.
    """
    beside = (Path(cluster_file).parent / "jobs",) if cluster_file else ()
    folders = (*beside, config_folder() / "jobs", find_shipped("sample-clusters") / "jobs")
    return tuple(dict.fromkeys(folders))


def find_cluster(name_or_path: str) -> Path:
    """The file of a cluster given by path or by name; raises UnknownFileError."""
    return _find("cluster", name_or_path, cluster_folders())


def demo_folder() -> Path:
    """The folder with the files of the demo cluster."""
    return console_state_folder().absolute() / "demo"


def said_for(file: str) -> str:
    """The argument of `-c` for a cluster file that works in every folder: its
    name if that finds it, else its path.
    """
    path = Path(file).absolute()
    if path.parent == demo_folder():
        return "demo"
    try:
        return path.stem if find_cluster(path.stem).samefile(path) else str(path)
    except (UnknownFileError, OSError):
        return str(path)


def command_of(verb: str, file: str) -> str:
    """The start of a command line for this cluster file, valid in every
    folder; without `-c` if `file` is "".
    """
    return f"rankdeck {verb} -c {quote(said_for(file))}" if file else f"rankdeck {verb}"


def find_job(name_or_path: str, cluster_file: str = "") -> Path:
    """The file of a job given by path or by name; raises UnknownFileError."""
    return _find("job", name_or_path, job_folders(cluster_file))


def find_documents(name_or_path: str) -> tuple[Path, ...]:
    """The cluster file and the job file of this name, as far as they exist; the path
    itself if it is one, or if there is neither.
    """
    found: dict[Path, None] = {}
    for find in (find_cluster, find_job):
        with suppress(UnknownFileError):
            found[find(name_or_path)] = None
    return tuple(found) or (expand_path(name_or_path),)


def names_in(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names by which the YAML files in these folders are found, each once."""
    files = (file for folder in folders for file in _yaml_files(folder))
    return tuple(dict.fromkeys(file.stem for file in files))


def _find(kind: str, name_or_path: str, folders: Sequence[Path]) -> Path:
    given = expand_path(name_or_path)
    if given.suffix in _SUFFIXES or len(given.parts) > 1 or _is_file(given):
        near = _closest_file(given) if is_missing(given) else None
        if near:
            raise UnknownFileError(f"no file `{name_or_path[:200]}`; did you mean `{near}`?")
        return given
    for folder in folders:
        for suffix in _SUFFIXES:
            if _is_file(folder / f"{name_or_path}{suffix}"):
                return folder / f"{name_or_path}{suffix}"
    known = names_in(folders)
    hint = suggest_or_list(name_or_path, known)
    raise UnknownFileError(
        f"no {kind} `{name_or_path[:60]}` in {folders[0]} or among the samples{hint}"
    )


def _closest_file(path: Path) -> Path | None:
    """The YAML file beside this one whose name is close to its name."""
    files = {file.stem: file for file in _yaml_files(path.parent)}
    return files.get(find_closest(path.stem, files))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its folder is not ours to look into, or the name is too long
        return False


def _yaml_files(folder: Path) -> list[Path]:
    try:
        files = list(folder.iterdir())
    except OSError:
        return []
    return sorted(file for file in files if file.suffix in _SUFFIXES)


WIDER = 0o077
"""Mode bits of the group and others."""


def make_files_private() -> None:
    """Make every file and folder that this process creates from now on private to its owner.

    Also disables core dumps, because the process has keys and passwords in memory.
    """
    os.umask(WIDER)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def create_private_folder(path: Path) -> None:
    """Create a folder that only its owner can use; an existing one is made private.

    Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
        path.chmod(0o700)


def private_file(path: Path) -> None:
    """Create an empty file that only its owner can use; an existing
    one is made private. Raises OSError.

    An existing file is not opened: closing it would release the locks that this process has on it,
    and two writers of an SQLite file would destroy it.
    """
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        keep_from_others(path)


def keep_from_others(path: Path) -> None:
    """Remove all rights of group and others on a file, if it exists and
    is the user's own; raises OSError.
    """
    with suppress(FileNotFoundError):
        seen = path.stat()
        if seen.st_uid == os.geteuid() and seen.st_mode & WIDER:
            path.chmod(seen.st_mode & 0o700)


@contextmanager
def replace_file(path: Path, mode: int = 0o600) -> Generator[BinaryIO]:
    """A new file that gets the name `path` once the block ends without an
    error; after an error nothing of it stays.

    All that is written where others may write goes through here: nothing is written into a pipe
    that lies at `path` or through a link, and no file of another user is replaced. Raises OSError,
    which says what is there.
    """
    _check_kind(path)
    part = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}")
    try:
        with open(part, "xb", opener=_open_private) as file:
            # Not the user's id: some network file systems give every file another owner.
            owner = os.fstat(file.fileno()).st_uid
            _check_owner(path, owner)
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            if _check_owner(path, owner):
                # Else a power cut could leave neither the old file nor the new one.
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _check_kind(path: Path) -> os.stat_result | None:
    """What lies at `path`, None if nothing does; raises OSError if
    that is neither a file nor a link.
    """
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(errno.EINVAL, _NO_PATH) from error
    if not stat.S_ISLNK(seen.st_mode):
        _check_regular(seen)
    return seen


def _check_owner(path: Path, owner: int) -> bool:
    """Whether something lies at `path`; raises OSError if that must not
    be replaced by a file of this owner.
    """
    seen = _check_kind(path)
    if seen and seen.st_uid != owner:
        raise OSError(errno.EPERM, f"belongs to {_user(seen.st_uid)}, so it is not replaced")
    return seen is not None


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"


def write_user_file(path: Path, text: str, *, program: bool = False) -> None:
    """Write a file that only its owner can use (`program`: and run), in
    place of an older one; raises OSError.
    """
    with replace_file(path, 0o700 if program else 0o600) as file:
        file.write(text.encode("utf-8", "replace"))


def write_new(path: Path, lines: Iterable[str], *, program: bool = False) -> None:
    """Write these lines to a new private file; raises OSError, also if the file exists."""
    path.touch(mode=0o600, exist_ok=False)
    try:
        write_user_file(path, "".join(f"{line}\n" for line in lines), program=program)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append to a file of the user, also through a link; a new one is private. Raises OSError.

    It is not replaced: two consoles may append at once, and the file may
    be a link to where the user keeps it.
    """
    text = "".join(f"{line}\n" for line in lines)
    with suppress(FileNotFoundError):
        _check_regular(path.stat())
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        seen = os.fstat(file.fileno())
        _check_regular(seen)
        whole = not seen.st_size or os.pread(file.fileno(), 1, seen.st_size - 1) == b"\n"
        file.write(f"{'' if whole else chr(10)}{text}".encode())


LIMIT = 8 << 20
_NO_PATH = "its path has a character that no path may have"
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BufferedReader:
    """A regular file, opened to read bytes; raises OSError, which says what else it is."""
    try:
        # A pipe or device must not even be opened: opening it may block or have an effect.
        _check_regular(path.stat())
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, _NO_PATH) from error
    file = os.fdopen(handle, "rb")
    try:
        _check_regular(os.fstat(handle))
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, limit: int = LIMIT) -> bytes:
    """The content of a regular file of at most `limit` bytes; raises
    OSError, which says what else it is.
    """
    with open_regular(path) as file:
        too_large = os.fstat(file.fileno()).st_size > limit
        raw = b"" if too_large else file.read(limit + 1)
    if too_large or len(raw) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit >> 10} KiB")
    return raw


def _check_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in _KINDS if test(found.st_mode)), "no file")
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file")


@contextmanager
def lock_if_free(path: Path) -> Generator[bool]:
    """Hold the lock of a file of ours until the block ends; yields
    False if another process holds it.

    Raises OSError if there is no such file, or it cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        free = False
    else:
        free = True
    try:
        yield free
    finally:
        os.close(handle)


def is_missing(path: Path) -> bool:
    """Whether there is no such file; False if that cannot be known, so that reading it says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def write_user_files(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write files (name -> text) into a folder, which is made where it is missing; all of it can be
    read only by its owner. Returns their paths. Raises RankdeckError.
    """
    place = folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            place = folder / name
            write_user_file(place, text)
    except OSError as error:
        raise RankdeckError(f"{place}: cannot be written: {error.strerror or error}") from error
    return tuple(folder / name for name in texts)


def shown_path(path: Path) -> str:
    """The path as a person would type it here: from this folder, else from home, else whole."""
    for base, before in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{before}{path.relative_to(base)}"
    return str(path)


def expand_path(named: str) -> Path:
    """The path that the user means, with `~` for the home folder; `~name`
    stays as it is if there is no such user.
    """
    path = Path(named)
    with suppress(RuntimeError):
        return path.expanduser()
    return path


def real_path(path: Path) -> Path:
    """The absolute path without links.

    What can never be opened, such as a loop of links, raises nothing.
    """
    try:
        # `Path.resolve` raises RuntimeError for a loop before Python 3.13.
        return Path(os.path.realpath(path))
    except ValueError:
        return path.absolute()
