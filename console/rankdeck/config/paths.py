"""Paths: files that ship with Rankdeck, and the user's own folders."""

import os
from collections.abc import Sequence
from pathlib import Path

from rankdeck.config.document import suggest
from rankdeck.errors import UnknownFileError

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
    return (
        config_folder() / "clusters",
        state_folder() / "clusters",
        shipped("sample-clusters"),
    )


def job_folders(cluster_file: str = "") -> tuple[Path, ...]:
    """Where a job's name is looked up: beside the cluster file, the user's own, the samples."""
    beside = (Path(cluster_file).parent / "jobs",) if cluster_file else ()
    folders = (*beside, config_folder() / "jobs", shipped("sample-clusters") / "jobs")
    return tuple(dict.fromkeys(folders))


def find_cluster(name_or_path: str) -> Path:
    """The file of a cluster given by path or by name; raises UnknownFileError."""
    return _find("cluster", name_or_path, cluster_folders())


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
    hint = suggest(name_or_path, known) or f"; there are: {', '.join(known) or 'none'}"
    raise UnknownFileError(
        f"no {kind} `{name_or_path[:60]}` in {folders[0]} or among the samples{hint}"
    )


def _yaml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
