"""Questions to the operator: an unknown host key, a password, what a server asks at a login.

One at a time, in memory only.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from rankdeck.errors import HostKeyError
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value

Confirm = Callable[[HostKeyError], Awaitable[bool]]
"""Awaited with the error for an unknown host key; returns whether the operator accepts the key."""
ANSWER_LIMIT = 120.0
"""Seconds for an answer at a login: servers end it after as long (LoginGraceTime)."""
KEY_LIMIT = 600.0
"""Seconds for the answer whether a host key is right, which may have to be looked up."""
MOST_TRIES = 3
"""Most answers of the operator for one account that are refused, unless
ssh_config says less: then nothing more is asked.
"""
_MOST_PROMPTS = 16
_MOST_LINES, _LONGEST_LINE = 20, 300
_PASSWORD = re.compile(r"(?:\([^)]*\) *)?(?:\S+'s )?password(?: for \S+)?:? *", re.IGNORECASE)
"""The question for the password of an account; not one for a one-time password."""


class Prompt(Value):
    """One thing to type."""

    text: str
    """The server's words, perhaps on several lines; safe to show."""
    echo: bool = False
    """Whether what is typed may be seen."""


class LoginQuestion(Value):
    """What a server wants to know before it lets somebody in."""

    node: str
    whom: str
    """User and place of the login."""
    words: str
    """What the server says first, "" if nothing; safe to show."""
    prompts: tuple[Prompt, ...]
    again: bool
    """Whether the last answer was refused."""
    more: int = 0
    """How many more logins will ask, as far as is known, where each wants an answer of its own."""

    @property
    def warning(self) -> str:
        """How many more questions will come, and how there would be
        one; "" if there will be none.
        """
        if not self.more:
            return ""
        return (
            f"Each login wants an answer of its own; up to {self.more} more will ask. For one"
            " question, have ssh hold a connection to a login host open (ControlMaster,"
            " ControlPersist), reach the nodes through it (ProxyJump), and write `ssh:"
            " {transport: openssh}`."
        )


Answers = tuple[str, ...] | None
"""An answer to each prompt; None: the operator gives none."""
Answer = Callable[[LoginQuestion], Awaitable[Answers]]
"""Raises TimeoutError if nobody answers."""


class Operator(Value):
    """How the person at a terminal is asked."""

    confirm: Confirm
    answer: Answer | None
    """None: nobody can be asked for more than yes or no."""


class Questions:
    """Hands questions to a front end that shows what is `pending`, one at a time."""

    def __init__(self) -> None:
        self.pending: HostKeyError | LoginQuestion | None = None
        self._answer: asyncio.Future[Answers] | None = None
        self._asking = asyncio.Lock()

    async def confirm(self, error: HostKeyError) -> bool:
        """Wait for `answer` to the question whether to accept a key."""
        return await self.ask(error) is not None

    async def ask(self, question: HostKeyError | LoginQuestion) -> Answers:
        """Set `pending` to the question and wait for `answer`."""
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self.pending = question
            try:
                return await self._answer
            finally:
                self.pending = None

    def answer(self, answers: Answers) -> None:
        """Answer the pending question, if there is one; () accepts a key,
        None refuses it or gives no answer.
        """
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answers)


_LIMITS: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("limits", default=())
"""The limits that the running task stands under."""


class Waits:
    """The limits of all waits for nodes: they stand still while the
    operator is asked, and each while its task waits for a turn.
    """

    def __init__(self) -> None:
        self._left: dict[asyncio.Timeout, float] = {}
        """Each limit, and the seconds that are left of it when it begins to stand still."""
        self._stops: dict[asyncio.Timeout, int] = {}
        """For how many reasons each limit stands still."""
        self._pauses = 0

    @asynccontextmanager
    async def limited(self, limit: float) -> AsyncGenerator[None]:
        """As `asyncio.timeout`."""
        async with asyncio.timeout(limit) as timeout:
            self._left[timeout], self._stops[timeout] = limit, self._pauses
            if self._pauses:
                timeout.reschedule(None)
            token = _LIMITS.set((*_LIMITS.get(), timeout))
            try:
                yield
            finally:
                _LIMITS.reset(token)
                del self._left[timeout], self._stops[timeout]

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let all limits stand still until the end of the block."""
        self._stop(self._left)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self._resume(self._left)

    @contextmanager
    def queued(self) -> Generator[None]:
        """Let the limits around this block stand still: a turn is
        waited for, not a node.
        """
        around = _LIMITS.get()
        self._stop(around)
        try:
            yield
        finally:
            self._resume(around)

    def _stop(self, limits: Iterable[asyncio.Timeout]) -> None:
        now = asyncio.get_running_loop().time()
        for limit in limits:
            if limit not in self._stops:
                continue  # of a task that has ended, which started this one
            self._stops[limit] += 1
            if self._stops[limit] == 1 and not limit.expired():
                self._left[limit] = (limit.when() or now) - now
                limit.reschedule(None)

    def _resume(self, limits: Iterable[asyncio.Timeout]) -> None:
        now = asyncio.get_running_loop().time()
        for limit in limits:
            if limit not in self._stops:
                continue
            self._stops[limit] -= 1
            if not self._stops[limit] and not limit.expired():
                limit.reschedule(now + self._left[limit])


WAITS = Waits()


class Asker:
    """Asks the operator for all logins of a cluster, one question at a
    time, and keeps what was answered.
    """

    def __init__(self, answer: Answer | None) -> None:
        """`answer`: who answers what servers ask at a login; None: nobody."""
        self._answer = answer
        self.asking = asyncio.Lock()
        """Held while a question is shown."""
        self.under_way = 0
        """How many nodes are being logged in to, or wait for it."""
        self._accounts: dict[tuple[str, str], Account] = {}
        """(jump host or card, or "" for the nodes; user) -> what the operator answered."""

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return self._answer is not None

    def conversation(self, place: str, user: str, node: str, whom: str) -> "Conversation":
        """One login; `place`: "" for one to a node."""
        account = self._accounts.setdefault((place, user), Account())
        talk = Conversation(account, self._ask if self._answer else None, node, whom)
        talk.others = lambda: self.under_way - 1
        return talk

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count a login until the end of the block."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _ask(self, question: LoginQuestion) -> Answers:
        """What the operator answers. Raises TimeoutError if nobody does."""
        async with self.asking, asyncio.timeout(ANSWER_LIMIT):
            return await self._answer(question) if self._answer is not None else None


class Account:
    """What the operator has answered for one user of the nodes, or of a jump host."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by a login from its question until the server has judged the
        answer: a wrong password goes to one node.
        """
        self.password: str | None = None
        """The one that a server has accepted."""
        self.refusals = 0
        self.used_once = 0
        """How many answers were accepted that are of use only once, such as codes."""
        self.declined = False
        """Whether the operator gave no answer: nothing more is asked."""


PASSWORDS, QUESTIONS = "a password", "answers to its questions (a password or code)"
"""The two ways to ask, in words."""


def clean_lines(text: str) -> str:
    """Words of a server, line by line: some offer a choice of ways. Safe to show."""
    lines = [clean_line(line, _LONGEST_LINE) for line in text.splitlines()[:_MOST_LINES]]
    return "\n".join(lines).strip("\n")


class Conversation:
    """The questions of one login, and who answers them."""

    def __init__(self, account: Account, ask: Answer | None, node: str, whom: str) -> None:
        self._account, self._ask, self._node, self._whom = account, ask, node, whom
        self.most = MOST_TRIES
        self.others: Callable[[], int] = int
        """How many other logins are under way."""
        self.asked = False
        """Whether the operator was asked."""
        self.wanted: set[str] = set()
        """In which ways the server asked."""
        self._sent_for = ""
        """The way in which an answer was sent that is not judged yet; "" if there is none."""
        self._password: str | None = None
        """The password that was sent and not refused."""
        self._typed = self._tried = self._refused = self._holds = False
        self._once = False
        """Whether an answer was sent that is of use only once."""
        self._begun = False
        """Whether the server was told that it may ask, and has not asked."""

    async def password(self, wanted: str = "") -> str | None:
        """The password to send; None: none. `wanted`: the question, if it is not the usual one."""
        await self._take_turn(PASSWORDS)
        if self._account.password is not None and not self._tried:
            return self._send_known(PASSWORDS, self._account.password)
        answers = await self._ask_operator("", (Prompt(wanted or f"Password of {self._whom}: "),))
        return None if answers is None else self._send(PASSWORDS, answers[0])

    async def begin(self) -> bool:
        """Whether the server may ask its questions; not if it asked none the last time."""
        if self._begun:
            return False
        self._begun = True
        await self._take_turn(QUESTIONS)
        return self._may_ask() or (self._account.password is not None and not self._tried)

    async def reply(self, words: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        """The answers to what the server asks; None: none."""
        self._begun = False
        if not prompts:
            return []
        if len(prompts) > _MOST_PROMPTS:
            return None
        only = len(prompts) == 1 and not prompts[0][1] and _PASSWORD.fullmatch(prompts[0][0])
        if only and self._account.password is not None and not self._tried:
            return [self._send_known(QUESTIONS, self._account.password)]
        shown = tuple(Prompt(clean_lines(text) or "Answer: ", echo) for text, echo in prompts)
        answers = await self._ask_operator(clean_lines(words), shown)
        if answers is None:
            return None
        self._send(QUESTIONS, answers[0] if only else None)
        return list(answers)

    def accepted(self) -> None:
        """The login is done."""
        if self._password is not None:
            self._account.password = self._password
        if self._typed:
            self._account.refusals = 0
            self._account.used_once += self._once
        self._sent_for = ""
        self.end()

    def end(self) -> None:
        """The login is over: what was sent last and is not accepted was refused."""
        self._refuse()
        if self._holds:
            self._holds = False
            self._account.turn.release()

    @property
    def stopped(self) -> str:
        """Why there is no login if the operator did not want to answer; "" otherwise."""
        if not (self._account.declined and self.wanted):
            return ""
        wanted = " or ".join(way for way in (PASSWORDS, QUESTIONS) if way in self.wanted)
        return f"not logged in: you stopped the questions; the server takes {wanted}"

    @property
    def remark(self) -> str:
        """What the server wanted, for the sentence when it refuses the login; "" if nothing."""
        wanted = " or ".join(way for way in (PASSWORDS, QUESTIONS) if way in self.wanted)
        if not wanted:
            return ""
        if self._ask is None:
            return (
                f"the server takes {wanted}, and nobody can be asked here: run this in a terminal, or use a key, "
                "ssh-agent, or a connection that ssh holds open (ControlMaster)"
            )
        why = "what was given is refused" if self._account.refusals else "none was given"
        return f"the server takes {wanted}: {why}" + "; not asked again" * (not self._may_ask())

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return self._ask is not None

    def silence(self) -> None:
        """Ask nobody (BatchMode)."""
        self._ask = None

    async def ask(self, words: str, prompts: tuple[Prompt, ...], *, again: bool) -> Answers:
        """Ask the operator, for this login. Raises TimeoutError if nobody answers."""
        if self._ask is None:
            return None
        with WAITS.paused():
            more = self.others() if self._account.used_once else 0
            question = LoginQuestion(self._node, self._whom, words, prompts, again, more)
            return await self._ask(question)

    @property
    def may_ask_again(self) -> bool:
        """Whether the operator was asked, and may be once more if the answer is refused."""
        typed = bool(self._sent_for) and self._typed
        return self.asked and self._may_ask() and self._account.refusals + typed < self.most

    def _may_ask(self) -> bool:
        account = self._account
        return self._ask is not None and not account.declined and account.refusals < self.most

    async def _take_turn(self, way: str) -> None:
        self.wanted.add(way)
        # In another way than before, the server has accepted the answer and wants a second one.
        if self._sent_for == way:
            self._refuse()
        if not self._holds:
            await self._account.turn.acquire()
            self._holds = True

    def _refuse(self) -> None:
        if self._sent_for:
            self._account.refusals += self._typed
            self._refused = True
            self._sent_for, self._password = "", None

    def _send_known(self, way: str, password: str) -> str:
        self._tried = True
        self._sent_for, self._password, self._typed = way, password, False
        return password

    def _send(self, way: str, password: str | None) -> str:
        """Note what the operator has typed: a password, or answers that are of use only once."""
        self._sent_for, self._typed, self._once = way, True, password is None
        if password is not None:
            self._tried, self._password = True, password
        return password or ""

    async def _ask_operator(self, words: str, prompts: tuple[Prompt, ...]) -> Answers:
        if not self._may_ask():
            return None
        self.asked = True
        try:
            answers = await self.ask(words, prompts, again=self._refused)
        except TimeoutError:
            return None  # nobody is there: asked again when the node is tried again
        self._account.declined = answers is None or not any(answers)
        return None if self._account.declined else answers
