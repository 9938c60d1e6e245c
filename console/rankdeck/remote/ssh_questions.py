"""What the program ssh asks while it logs in: its questions come by
SSH_ASKPASS and go to the operator.
"""

import asyncio
import json
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rankdeck.model.safe_text import clean_line
from rankdeck.remote.identities import KeyFile
from rankdeck.remote.locked_keys import KeyRing
from rankdeck.remote.login_errors import Destination
from rankdeck.remote.questions import PASSWORDS, QUESTIONS, Conversation, Prompt, clean_lines
from rankdeck.remote.smart_cards import LockedKeyError
from rankdeck.remote.user_ssh import text_file

log = logging.getLogger(__name__)
_ASK = """\
import json, os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["RANKDECK_QUESTIONS"])
asked = os.fsencode(sys.argv[1]).decode("utf-8", "replace")
link.sendall(json.dumps([os.environ.get("SSH_ASKPASS_PROMPT", ""), asked]).encode() + b"\\n")
answer = json.loads(link.makefile().readline() or "null")
if answer is None:
    sys.exit(1)
sys.stdout.write(answer + "\\n")
"""
"""The program that ssh starts for each question: hands it over and
prints the answer; fails if there is none.
"""
_MOST_SAID = 8192
_LONGEST_PATH = 100
"""ssh cuts the path of a key after so many characters."""
_METHODS = re.compile(r"Permission denied \(([^)]*)\)")
_WHOM = r"(?P<whom>[^\s@()]+@[^\s()]+)"
_PASSPHRASE = re.compile(r"Enter passphrase for (?:[\w-]+ )?(?:key )?'(?P<key>.+)': ?", re.DOTALL)
_PIN = re.compile(r"Enter PIN .+: ?", re.DOTALL)
_PASSWORD = re.compile(rf"{_WHOM}'s password: ?")
_YES_OR_NO = re.compile(r".*(?:\(yes/no|type 'yes').*", re.DOTALL)
_QUESTION = re.compile(rf"(?:\({_WHOM}\) )?(?P<text>.*)", re.DOTALL)


class SshConversation:
    """The questions of one login by ssh, and of its jump hosts, and who answers them.

    ssh would send an empty password where it gets none: so it is ended.
    """

    def __init__(
        self,
        own: Conversation,
        names: Sequence[str],
        files: Sequence[KeyFile],
        ring: KeyRing,
        talk_with: Callable[[str], Conversation],
    ) -> None:
        """`own`: with the node, which has these names; `talk_with`: with
        another machine or card, by its name.
        """
        self.own, self._names, self._files, self._ring = own, names, files, ring
        self._talk_with = talk_with
        self._others: dict[str, Conversation] = {}
        self._last: Conversation | None = None
        self.locked: list[str] = []
        """Why keys were not opened."""
        self._seen: set[str] = set()
        """The questions of this run of ssh: one that comes again was answered wrongly."""
        self._begun: set[int] = set()
        self.stop: Callable[[], None] = lambda: None
        """Ends this run of ssh."""
        self.stopped = False
        self._said: BinaryIO | None = None
        self._read = 0
        self._replies: Sequence[
            tuple[re.Pattern[str], Callable[[re.Match[str]], Awaitable[str | None]]]
        ] = (
            (_PASSPHRASE, self._open_key),
            (_PIN, self._give_pin),
            (_PASSWORD, self._give_password),
            (_YES_OR_NO, self._say_yes_or_no),
            (_QUESTION, self._reply),
        )

    def begin(self, said: BinaryIO, stop: Callable[[], None]) -> None:
        """Another run of ssh begins: `said` gets its stderr, `stop` ends it."""
        self._said, self._read, self.stop = said, 0, stop
        self._seen.clear()
        self._begun.clear()

    async def answer(self, asked: str) -> str | None:
        """The answer to a question of ssh; None: it goes on without one, or was ended."""
        for pattern, reply in self._replies:
            if hit := pattern.fullmatch(asked):
                return await reply(hit)
        return None

    @property
    def worth_another_try(self) -> bool:
        """Whether the last run failed for an answer of the operator, who may give another one."""
        return self._last is not None and not self.stopped and self._last.may_ask_again

    def end(self, *, accepted: bool) -> None:
        """The login is over.

        Who was asked last has refused it, if it failed; those before have let it pass.
        """
        for talk in (self.own, *self._others.values()):
            if accepted or talk is not self._last:
                talk.accepted()
            else:
                talk.end()

    async def note_refusal(self, said: str) -> None:
        """Note what was wanted by a server that has refused the
        login, where nobody could be asked.
        """
        if self.own.can_ask:
            return
        for file in self._files:
            if file.sealed:
                with suppress(LockedKeyError):
                    await self._open(file)
        for way, word in ((PASSWORDS, "password"), (QUESTIONS, "keyboard-interactive")):
            if any(word in hit[1].split(",") for hit in _METHODS.finditer(said)):
                self.own.wanted.add(way)

    @property
    def declined(self) -> str:
        """Why there is no login if the operator did not want to answer; "" otherwise."""
        return next((t.stopped for t in (self.own, *self._others.values()) if t.stopped), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was wanted and not given, for the sentence when the login is refused."""
        wanted = [talk.remark for talk in (self.own, *self._others.values())]
        return (*filter(None, wanted), *self.locked[:2])

    def _words(self) -> str:
        """What ssh, and the server through it, has said since the last question."""
        if self._said is None:
            return ""
        new = os.pread(self._said.fileno(), _MOST_SAID, self._read)
        self._read += len(new)
        return clean_lines(new.decode("utf-8", "replace"))

    def _of(self, whom: str | None) -> Conversation:
        if whom is None or whom.rpartition("@")[2].lower() in self._names:
            talk = self.own
        else:
            talk = self._others.setdefault(whom, self._talk_with(whom))
        self._last = talk
        return talk

    async def _open_key(self, hit: re.Match[str]) -> str | None:
        named = hit["key"]
        sealed = (file for file in self._files if file.sealed)
        file = next((one for one in sealed if str(one.path)[:_LONGEST_PATH] == named), None)
        if file is None:
            return await self._give_pin(hit)
        with suppress(LockedKeyError):
            return await self._open(file)
        return None

    async def _open(self, file: KeyFile) -> str:
        """The passphrase of a key file. Raises LockedKeyError, and notes it."""
        try:
            return (await self._ring.open(file, self.own)).passphrase
        except LockedKeyError as error:
            self.locked.append(str(error))
            raise

    async def _give_pin(self, hit: re.Match[str]) -> str | None:
        asked = clean_line(hit[0].strip(), 300)
        if asked in self._seen:
            return None  # the card has refused it, and locks itself after a few
        self._seen.add(asked)
        return await self._of(asked).password(f"{asked} ")

    async def _give_password(self, hit: re.Match[str]) -> str | None:
        return self._or_stop(await self._of(hit["whom"]).password())

    async def _say_yes_or_no(self, hit: re.Match[str]) -> str | None:
        with suppress(TimeoutError):
            prompt = Prompt(clean_lines(hit[0]), echo=True)
            answers = await self.own.ask(self._words(), (prompt,), again=False)
            return answers[0] if answers else None
        return None

    async def _reply(self, hit: re.Match[str]) -> str | None:
        talk, text = self._of(hit["whom"]), hit["text"]
        if hit[0] in self._seen:
            self._seen.clear()
            self._begun.discard(id(talk))
        self._seen.add(hit[0])
        if id(talk) not in self._begun and not await talk.begin():
            return self._or_stop(None)
        self._begun.add(id(talk))
        answers = await talk.reply(self._words(), [(text, False)])
        return self._or_stop(answers[0] if answers else None)

    def _or_stop(self, answer: str | None) -> str | None:
        if answer is None:
            self.stopped = True
            self.stop()
        return answer


class AskProgram:
    """The program for SSH_ASKPASS, in memory, and a socket at which the
    questions of one run of ssh arrive.
    """

    def __init__(self, path: Path, talk: SshConversation) -> None:
        self._path, self._talk = path, talk
        python = f"exec {shlex.quote(sys.executable)} -IS -c {shlex.quote(_ASK)}"
        self._file: BinaryIO = text_file(f'#!/bin/sh\n{python} "$1"\n')
        os.fchmod(self._file.fileno(), 0o700)
        self._arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment of an ssh that asks here."""
        program = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        # Before 8.4, ssh knows no SSH_ASKPASS_REQUIRE: it asks so if it has
        # no terminal, and there is a DISPLAY.
        return {
            **os.environ,
            "SSH_ASKPASS": program,
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY") or "none:0",
            "RANKDECK_QUESTIONS": str(self._path),
        }

    async def wait_for(self, process: asyncio.subprocess.Process, said: BinaryIO) -> int:
        """Answer what the program asks until it ends; returns its exit status."""
        self._talk.begin(said, lambda: end_group(process))
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve())
            code = await process.wait()
            serving.cancel()
        return code

    async def _serve(self) -> None:
        while True:
            reader, writer = await self._arrived.get()
            try:
                with suppress(OSError, ValueError):  # ValueError: a line that is too long
                    kind, asked = json.loads(await reader.readline())
                    await self._handle(writer, kind, asked)
            finally:
                writer.close()

    async def _handle(self, writer: asyncio.StreamWriter, kind: str, asked: str) -> None:
        if kind == "none":  # no question: a security key waits to be touched
            log.warning("%s", clean_line(asked, 300))
            return
        answer = await self._talk.answer(asked)
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()

    async def __aenter__(self) -> "AskProgram":
        self._server = await asyncio.start_unix_server(
            lambda reader, writer: self._arrived.put_nowait((reader, writer)), self._path
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._file.close()
        self._path.unlink(missing_ok=True)


def end_group(process: asyncio.subprocess.Process) -> None:
    """End a program that still runs, and all processes in its group."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def same_machine(to: Destination, alias: str) -> Sequence[str]:
    """The names by which ssh speaks of the host of a login."""
    return tuple(filter(None, (to.host.lower(), alias.lower())))
