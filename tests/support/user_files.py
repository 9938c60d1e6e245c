"""Every reader of a file that a user has or got from somebody, and
files that were made to hurt it.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rankdeck.acceptance.measure import RawOutputs
from rankdeck.acceptance.output_text import LARGEST
from rankdeck.acceptance.store import read_baselines
from rankdeck.acceptance.values import Result, Stage
from rankdeck.cli.check import look_at
from rankdeck.cli.choose import read_file_or_stdin
from rankdeck.cli.output import UsageError
from rankdeck.cli.site_lists import import_nodes
from rankdeck.config.clusters import read_accounts, read_cluster
from rankdeck.config.files import LIMIT
from rankdeck.config.jobs import read_job
from rankdeck.config.user import read_settings
from rankdeck.demo.cluster import read_record
from rankdeck.errors import BrokerError, ConfigError
from rankdeck.images.copy import LocalFile, sha256_of
from rankdeck.model.cluster import Broker, Cluster, Metrics, Node, Switch
from rankdeck.preflight.findings import Change
from rankdeck.preflight.findings import make_finding as finding
from rankdeck.preflight.job_file_patch import patch_job_file
from rankdeck.prometheus.site_past import _head, _tls
from rankdeck.remote.host_keys import HostKeys
from rankdeck.remote.identities import Identities
from rankdeck.state.own_messages import read_messages
from rankdeck.telemetry.agent_configs import agent_config
from rankdeck.telemetry.gnmi import SwitchError, _certificates
from rankdeck.ui import themes
from rankdeck.ui.fleet_views import ViewError, Views
from rankdeck_agent.rules.levels import Level
from tests.support.bombs import LAUGHS

HEAD = "job: x\nlaunch: plain\ncommand: [a]\n"
CLUSTER = "cluster: c\nnodes: [n1]\n"


@dataclass(frozen=True)
class Reader:
    """One use of a file; it returns, or raises one of its `own` errors."""

    read: Callable[[Path], object]
    own: tuple[type[Exception], ...] = ()


def written_beside(path: Path, text: str) -> Path:
    """A file beside it with this text, in which {} stands for its path."""
    other = path.with_name("names-it.yaml")
    other.write_text(text.format(path))
    return other


def import_baselines(path: Path) -> object:
    return read_baselines("c", str(path), read_file_or_stdin(str(path), LIMIT))


async def copied(path: Path) -> None:
    async def drop(_data: bytes) -> None:
        return

    await LocalFile(path).pump(0, drop)


def broker(path: Path, **more: str) -> object:
    at = Broker(host="h", port=8883, tls=True, **{key: str(path) for key in more})
    return agent_config(Cluster(name="c", nodes=(Node(name="n1"),), broker=at), at, "n1")


def fix(path: Path) -> str:
    change = Change("mpi.flavour", "openmpi4")
    return patch_job_file(path, [finding(Level.BAD, "mpi", "", "x", "y", change)])


READERS: dict[str, Reader] = {
    "check": Reader(look_at, (ConfigError,)),
    "a cluster file": Reader(read_cluster, (ConfigError,)),
    "a job file": Reader(read_job, (ConfigError,)),
    "preflight --fix": Reader(fix, (ConfigError,)),
    "a file of a job": Reader(
        lambda path: read_job(written_beside(path, HEAD + "files: {{a: {{from: '{}'}}}}\n")),
        (ConfigError,),
    ),
    "an ssh_config": Reader(
        lambda path: read_cluster(written_beside(path, CLUSTER + "ssh: {{config: '{}'}}\n")),
        (ConfigError,),
    ),
    "settings": Reader(read_settings, (ConfigError,)),
    "own messages": Reader(read_messages, (ConfigError,)),
    "a theme": Reader(themes.read_theme, (ConfigError,)),
    "the themes of a folder": Reader(lambda path: themes.load_themes([path.parent])),
    "saved views": Reader(lambda path: Views(path).all(), (ViewError,)),
    "accounts of agents": Reader(lambda path: read_accounts(str(path)), (BrokerError,)),
    "certificates of a broker": Reader(lambda path: broker(path, ca_file=""), (BrokerError,)),
    "the password of a broker": Reader(lambda path: broker(path, password_file=""), (BrokerError,)),
    "certificates of a switch": Reader(
        lambda path: _certificates(Switch(name="s", ca_file=str(path))), (SwitchError,)
    ),
    "certificates of Prometheus": Reader(
        lambda path: _tls(Metrics(host="h", port=1, tls=True, ca_file=str(path))),
        (OSError, ValueError),
    ),
    "a token of Prometheus": Reader(
        lambda path: _head(Metrics(host="h", port=1, token_file=str(path)), "/", 0),
        (OSError, ValueError),
    ),
    "known hosts": Reader(lambda path: HostKeys([path]).known()),
    "a key": Reader(
        lambda path: asyncio.run(Identities().own(str(path))),
        (asyncssh.KeyImportError,),
    ),
    "an output to read": Reader(lambda path: read_file_or_stdin(str(path), LARGEST), (UsageError,)),
    "a list of nodes": Reader(lambda path: import_nodes(str(path), ""), (UsageError, ConfigError)),
    "exported baselines": Reader(import_baselines, (UsageError, ConfigError)),
    "a kept output": Reader(
        lambda path: RawOutputs(path.parent).read(
            Result(stage=Stage.SINGLE, recipe="r", sender="n1", raw=str(path)), 9999
        )
    ),
    "a file to copy": Reader(lambda path: asyncio.run(copied(path)), (OSError,)),
    "an image to compare": Reader(lambda path: asyncio.run(sha256_of(path)), (OSError,)),
    "the record of a demo node": Reader(read_record),
}
"""How the file is used -> how it is read then."""


def lay(kind: str, path: Path) -> None:
    """Put what `kind` names at this path."""
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "100 MB":
        path.touch()
        os.truncate(path, 100_000_000)
    elif kind == "not readable":
        path.write_text(HEAD)
        path.chmod(0)
    elif kind in LINKS:
        path.symlink_to(LINKS[kind])
    elif kind in TEXTS:
        path.write_bytes(TEXTS[kind])


LINKS = {
    "a device": "/dev/zero",
    "a terminal": "/dev/tty",
    "a loop of links": "file.yaml",
    "a link to nothing": "nothing",
    "a link to a folder": "/",
    "a file of the kernel": "/proc/self/mem",
}
TEXTS = {
    "nothing in it": b"",
    "brackets": b"[" * 10_000,
    "braces": b'{"a":' * 10_000,
    "a deep list in a table": b'{"a": {"sort": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
    "a deep list in blocks": b"- " * 10_000,
    "aliases that multiply": LAUGHS.encode(),
    "an alias of itself": b"a: &x [*x]\n",
    "a date that is none": HEAD.encode() + b"env: {A: 2001-99-99}\nnodes: 2001-99-99\n",
    "a long number": HEAD.encode() + b"nodes: " + b"9" * 6000 + b"\n",
    "a long number in JSON": b'{"a": ' + b"9" * 6000 + b"}",
    "a number of base 60": HEAD.encode() + b"nodes: " + b"9:" * 2000 + b"9\n",
    "bytes that are no text": b'{"a": "\xff\xfe\x00"}',
    "NUL bytes": b"a: b\0c\n" * 100,
    "UTF-16": HEAD.encode("utf-16"),
    "half a character": HEAD.encode() + b"\xe2\x82",
    "half a pair": b'{"a": {"filter": "\\ud800"}}',
    "a word of a megabyte": b"a" * 1_000_000,
    "a comment that is not ASCII": "# Schlüssel\n".encode() * 9,
    "a tag": b"!!python/object/apply:os.system [touch X]\n",
    "keys that are lists": b"? [a, b]\n: c\n",
    "a merge of itself": b"a: &a {<<: *a}\n",
}
"""Name -> content."""
KINDS = (
    "nothing", "a pipe", "a folder", "a socket", *LINKS, "100 MB", "not readable", *TEXTS,
)  # fmt: skip
NAMES = ("~nobody-has-this-name/x", "a\\0b", "x" * 5000, "loop/x", "loop/../x")
"""Paths, as written in YAML, that name nothing that can be read; `loop` is a link to itself."""
