"""Questions to the operator: one at a time, and what they do to the limits of waits."""

import asyncio

import pytest

from rankdeck.errors import HostKeyError
from rankdeck.remote.questions import (
    Account,
    Answers,
    Conversation,
    LoginQuestion,
    Questions,
    Waits,
)

KEY = HostKeyError("n1", "its key is not known", line="n1 ssh-ed25519 A")


async def test_a_limit_stands_still_while_somebody_is_asked() -> None:
    waits = Waits()
    async with waits.limited(0.2):
        with waits.paused():
            await asyncio.sleep(0.4)

    async def late() -> None:
        async with waits.limited(0.2):
            with waits.paused():
                await asyncio.sleep(0.3)
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await late()


async def test_a_limit_that_begins_during_a_question_begins_after_it() -> None:
    waits = Waits()
    with waits.paused(), waits.paused():
        async with waits.limited(0.1):
            await asyncio.sleep(0.3)
    with pytest.raises(TimeoutError):
        async with waits.limited(0.1):
            await asyncio.sleep(5)


async def test_a_limit_that_ran_out_before_the_question_stays_so() -> None:
    waits = Waits()

    async def late() -> None:
        async with waits.limited(0.05):
            try:
                await asyncio.sleep(5)
            finally:
                await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(asyncio.wait([task := asyncio.ensure_future(late())]))
        await asyncio.sleep(0.15)
        with waits.paused():
            await asyncio.sleep(0.01)
        await waiting
    assert isinstance(task.exception(), TimeoutError)


async def test_a_turn_stops_the_limits_around_it_and_no_others() -> None:
    waits = Waits()

    async def in_turn() -> str:
        async with waits.limited(0.2), asyncio.TaskGroup() as tasks:
            turn = tasks.create_task(queue())
        return turn.result()

    async def queue() -> str:
        with waits.queued():
            await asyncio.sleep(0.6)
        return "had its turn"

    async def elsewhere() -> str:
        try:
            async with waits.limited(0.2):
                await asyncio.sleep(5)
        except TimeoutError:
            return "ran out"
        return "never"

    assert await asyncio.gather(in_turn(), elsewhere()) == ["had its turn", "ran out"]


async def test_a_limit_goes_on_after_the_turn() -> None:
    waits = Waits()

    async def late() -> None:
        async with waits.limited(0.2):
            with waits.queued():
                await asyncio.sleep(0.3)
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await late()


async def test_a_turn_that_outlives_the_limits_around_it_does_no_harm() -> None:
    waits = Waits()

    async def queue() -> None:
        with waits.queued():
            await asyncio.sleep(0.2)

    async with waits.limited(5):
        left = asyncio.ensure_future(queue())
        await asyncio.sleep(0.05)
    await left


async def test_questions_come_one_after_the_other() -> None:
    questions = Questions()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(questions.confirm(KEY))
        second = tasks.create_task(questions.ask(LoginQuestion("n2", "me@n2", "", (), again=False)))
        await asyncio.sleep(0)
        assert questions.pending is KEY
        questions.answer(())
        await first
        await asyncio.sleep(0.01)
        assert isinstance(questions.pending, LoginQuestion)
        questions.answer(("x",))

    assert (first.result(), second.result(), questions.pending) == (True, ("x",), None)


class Asked:
    """Answers from a list; notes how often it was asked."""

    def __init__(self, *answers: Answers) -> None:
        self.answers, self.count = list(answers), 0

    async def __call__(self, _: LoginQuestion) -> Answers:
        self.count += 1
        return self.answers.pop(0)


async def test_a_password_that_is_followed_by_a_code_is_kept_and_the_code_is_not() -> None:
    account, asked = Account(), Asked(("secret",), ("123",), ("456",))
    first = Conversation(account, asked, "n1", "me@n1")
    assert await first.password() == "secret"
    assert await first.begin()
    assert await first.reply("", [("One-time password: ", False)]) == ["123"]
    first.accepted()
    second = Conversation(account, asked, "n2", "me@n2")

    assert await second.password() == "secret"
    assert await second.begin()
    assert await second.reply("", [("One-time password: ", False)]) == ["456"]
    second.accepted()
    assert (account.password, asked.count) == ("secret", 3)


async def test_a_known_password_that_a_node_refuses_is_asked_for_there_and_kept_for_others() -> (
    None
):
    account, asked = Account(), Asked(("one",), None)
    first = Conversation(account, asked, "n1", "me@n1")
    await first.password()
    first.accepted()
    other = Conversation(account, asked, "n2", "me@n2")
    assert [await other.password(), await other.password()] == ["one", None]
    other.end()
    third = Conversation(account, asked, "n3", "me@n3")

    assert await third.password() == "one"


async def test_a_server_that_may_ask_and_does_not_is_not_told_so_again() -> None:
    talk = Conversation(Account(), Asked(), "n1", "me@n1")

    assert [await talk.begin(), await talk.begin()] == [True, False]
