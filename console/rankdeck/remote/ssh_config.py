"""The settings of ssh_config for a host, as OpenSSH itself resolves them (`ssh
-G`), or None without the program `ssh`.

One call answers for all hosts that the files treat alike (`ssh_files.py`). Answers are kept until a
file changes; where a program or the network decides (`Match exec`), for half a minute.
"""

import asyncio
import os
import pwd
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rankdeck.config.files import expand_path
from rankdeck.errors import RankdeckError
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.ssh_files import Alike, SshFiles
from rankdeck.values import Value, replace

AT_ONCE = 4
"""Most calls of `ssh -G` at a time."""
LIMIT = 20.0
"""Seconds that one call may take: a `Match exec` or a name server may be slow."""
KEPT = 30.0
"""Seconds for which an answer is kept that does not depend on files alone."""
_MOST = 1 << 20
_SYSTEM = Path("/etc/ssh/ssh_config")
_READING = "debug1: Reading configuration data "
_CHATTER = ("debug", "OpenSSH_", "Pseudo-terminal ")
"""How lines begin that `ssh -v -G` writes also when all is well."""
_ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms")
_NO_ACCOUNT = "No user exists for uid"


class SshConfigError(RankdeckError):
    """OpenSSH refuses its configuration; the text is its own words."""


class HostSettings(Value, kw_only=True):
    """How OpenSSH would log in to one host.

    Paths are as OpenSSH prints them: `~` and tokens may be in them.
    """

    original: str
    """The host as it was asked about."""
    host: str
    port: int
    user: str
    values: Mapping[str, tuple[str, ...]]
    """Option in lower case -> its values."""
    usual: Mapping[str, tuple[str, ...]]
    """The same without any configuration, for the algorithms."""

    def one(self, option: str) -> str:
        """The value of an option; "" if it is not set or `none`."""
        found = self.values.get(option, ("",))[0]
        return "" if found.lower() == "none" else found

    def many(self, option: str) -> tuple[str, ...]:
        """All values of an option that may be given several times, without `none`."""
        return tuple(one for one in self.values.get(option, ()) if one.lower() != "none")

    def yes(self, option: str) -> bool:
        """Whether an option is switched on."""
        return self.one(option).lower() in ("yes", "true")

    def seconds(self, option: str) -> float:
        """An option in seconds; 0.0 if it is not set."""
        found = self.one(option)
        return float(found) if found.isdecimal() and len(found) < 10 else 0.0

    def paths(self, option: str) -> tuple[str, ...]:
        """The files of an option that lists them on one line; blanks are part
        of a name that goes on behind them.
        """
        found: list[str] = []
        for word in self.one(option).split(" "):
            if found and word[:1] not in ("/", "~"):
                found[-1] += f" {word}"
            else:
                found.append(word)
        return tuple(filter(None, found))

    def algorithms(self, option: str) -> tuple[str, ...]:
        """The algorithms of an option, if the configuration says other
        ones than OpenSSH itself; else ().
        """
        chosen = self.one(option)
        usual = self.usual.get(option, ("",))[0]
        return () if chosen == usual else tuple(filter(None, chosen.split(",")))

    @property
    def alias(self) -> str:
        """The name under which known_hosts has the host."""
        return self.one("hostkeyalias")

    def filled(self, text: str) -> str:
        """A text in which tokens such as %h stand for something.

        Raises SshConfigError for an unknown one.
        """
        account = pwd.getpwuid(os.getuid())
        name = os.uname().nodename
        tokens = {
            "%": "%", "h": self.host, "n": self.original, "p": str(self.port), "r": self.user,
            "k": self.alias or self.original, "d": account.pw_dir, "u": account.pw_name,
            "i": str(account.pw_uid), "l": name, "L": name.partition(".")[0], "j": self.one("proxyjump"),
        }  # fmt: skip
        parts = text.split("%")
        filled, rest = [parts[0]], iter(parts[1:])
        for part in rest:
            if part == "":  # %%, which split in two
                filled.append("%" + next(rest, ""))
            elif part[0] in tokens:
                filled.append(tokens[part[0]] + part[1:])
            else:
                raise SshConfigError(f"ssh_config: `%{part[0]}` in `{text[:80]}` is not supported")
        return "".join(filled)

    def path(self, named: str) -> Path:
        """The file that OpenSSH means by a path in its settings. Raises SshConfigError."""
        filled = self.filled(named)
        if filled == "~" or filled.startswith("~/"):
            return Path(pwd.getpwuid(os.getuid()).pw_dir + filled[1:])
        return Path(os.path.expandvars(str(expand_path(filled))))


class _Asked(Value):
    """What is asked of OpenSSH about: the host itself, or all that are treated alike."""

    whom: str | Alike
    user: str
    port: int
    jump: str


class _Answer(Value):
    settings: HostSettings
    at: float


class SshConfig:
    """Asks OpenSSH about hosts; `file` is read instead of the usual files, if given."""

    def __init__(self, file: str = "") -> None:
        self._program = shutil.which("ssh")
        self._file = file
        self._files: SshFiles | None = None
        self._answers: dict[_Asked, _Answer] = {}
        self._usual: Mapping[str, tuple[str, ...]] | None = None
        self._locks: dict[_Asked, asyncio.Lock] = {}
        self._reading = asyncio.Lock()
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._alone = False
        """OpenSSH reads files that we do not know, or resolves a name in another way."""
        self.calls = 0
        """How often OpenSSH was asked."""

    async def of(
        self, host: str, port: int = 0, user: str = "", jump: str = ""
    ) -> HostSettings | None:
        """The settings for a host; port, user and jump host win over the files, if given.

        None if there is no program `ssh`, or it refuses to run for an account
        without a name. Raises SshConfigError.
        """
        if self._program is None:
            return None
        files = await self._current()
        alike = None if self._alone else files.alike(host)
        asked = _Asked(host if alike is None else alike, user, port, jump)
        async with self._locks.setdefault(asked, asyncio.Lock()):
            answer = self._answers.get(asked)
            if answer is None or not (files.lasting or time.monotonic() - answer.at < KEPT):
                answer = await self._ask(files, host, asked)
        if answer is None or alike is None or answer.settings.original == host:
            return answer and answer.settings
        if self._alone:  # found out by this very answer
            return await self.of(host, port, user, jump)
        return replace(answer.settings, original=host, host=alike.host_name(host).lower())

    async def control_path(self, host: str, port: int, user: str) -> str:
        """The socket of a master connection to this very host (ControlPath); "" for none.

        Raises SshConfigError.
        """
        if self._program is None:
            return ""
        async with self._gate:
            values, _ = await self._call(self._arguments(host, _Asked(host, user, port, "")))
        found = values.get("controlpath", ("none",))[0]
        return "" if found.lower() == "none" else found

    async def _current(self) -> SshFiles:
        """The files as they are now; forgets all answers when one has changed."""
        async with self._reading:
            if self._files is None or self._files.changed:
                self._files = await asyncio.to_thread(SshFiles, self._tops())
                self._answers.clear()
                self._alone = False
        return self._files

    def _tops(self) -> Sequence[tuple[Path, Path]]:
        own = Path(_home(), ".ssh")
        if self._file:
            return [(Path(self._file), own)]
        return [(own / "config", own), (_SYSTEM, _SYSTEM.parent)]

    async def _ask(self, files: SshFiles, host: str, asked: _Asked) -> _Answer | None:
        async with self._gate:
            if self._usual is None:
                self._usual, _ = await self._call(["-F", "none", "localhost"])
            values, read = await self._call(self._arguments(host, asked))
        if not values:
            return None
        settings = _settings(host, values, self._usual)
        if isinstance(asked.whom, Alike) and not (
            files.covers(read) and asked.whom.host_name(host).lower() == settings.host
        ):
            self._alone = True
        answer = _Answer(settings, time.monotonic())
        self._answers[asked] = answer
        return answer

    def _arguments(self, host: str, asked: _Asked) -> list[str]:
        argv = ["-F", self._file] if self._file else []
        argv += ["-p", str(asked.port)] if asked.port else []
        argv += ["-l", asked.user] if asked.user else []
        argv += ["-J", asked.jump] if asked.jump else []
        return [*argv, "--", host]

    async def _call(
        self, arguments: Sequence[str]
    ) -> tuple[Mapping[str, tuple[str, ...]], Sequence[str]]:
        """The options that OpenSSH prints, and the files that it read;
        no options if it cannot run here.
        """
        self.calls += 1
        code, out, err = await _run([str(self._program), "-v", "-G", *arguments])
        said = err.decode("utf-8", "replace").splitlines()
        if code:
            words = [
                line.strip() for line in said if line.strip() and not line.startswith(_CHATTER)
            ]
            if any(line.startswith(_NO_ACCOUNT) for line in words):
                return {}, ()
            why = clean_line("; ".join(words[:2]), 300) or f"exit status {code}"
            raise SshConfigError(f"OpenSSH refuses its configuration: {why}")
        read = [line.removeprefix(_READING) for line in said if line.startswith(_READING)]
        return _options(out.decode("utf-8", "surrogateescape").splitlines()), read


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return str(Path.home())


def _options(lines: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        option, _, value = line.partition(" ")
        found.setdefault(option.lower(), []).append(value)
    return {option: tuple(values) for option, values in found.items()}


def _settings(
    host: str, values: Mapping[str, tuple[str, ...]], usual: Mapping[str, tuple[str, ...]]
) -> HostSettings:
    port = values.get("port", ("22",))[0]
    return HostSettings(
        original=host,
        host=values.get("hostname", (host,))[0],
        port=int(port) if port.isdecimal() and len(port) < 6 else 22,
        user=values.get("user", ("",))[0],
        values=values,
        usual={option: usual.get(option, ()) for option in _ALGORITHMS},
    )


async def _run(argv: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Exit status, stdout and stderr of a program without a terminal; raises
    SshConfigError if it takes too long.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise SshConfigError(f"{argv[0]} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(LIMIT):
            out, err = await _both(process)
    except TimeoutError as error:
        _end(process)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await process.wait()
        raise SshConfigError(f"`ssh -G` gave no answer within {LIMIT:.0f} s") from error
    finally:
        _end(process)
    return process.returncode or 0, out, err


async def _both(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Stdout and stderr up to _MOST bytes each; a program that writes more is ended."""
    async with asyncio.TaskGroup() as tasks:
        out = tasks.create_task(_upto(process, process.stdout))
        err = tasks.create_task(_upto(process, process.stderr))
    await process.wait()
    return out.result(), err.result()


async def _upto(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    found = bytearray()
    while stream and (data := await stream.read(1 << 16)):
        found += data
        if len(found) > _MOST:
            _end(process)
            break
    return bytes(found)


def _end(process: asyncio.subprocess.Process) -> None:
    """End the program and all that it started, if it still runs."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
