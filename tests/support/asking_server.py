"""An SSH server on loopback that asks questions at a login
(keyboard-interactive), and opens tunnels for a jump.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

PASSWORD = "sesame"


@dataclass
class AskingServer:
    """What the server has asked and got."""

    port: int = 0
    codes: list[str] = field(default_factory=list)
    """One-time codes that are good, each once; none: the password is enough."""
    got: list[tuple[str, ...]] = field(default_factory=list)
    """All answers, in the order in which they came."""
    let_in: int = 0
    says: str = ""
    """Its instructions; "": a greeting."""


class _Login(asyncssh.SSHServer):
    def __init__(self, state: AskingServer) -> None:
        self._state = state

    def begin_auth(self, username: str) -> bool:
        del username
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> object:
        del lang, submethods
        prompts = [("Password: ", False)]
        if self._state.codes:
            prompts.append(("Code of your \x1b[31mtoken: ", True))
        return "Two factors", self._state.says or f"Hello {username}", "", prompts

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        del username
        self._state.got.append(tuple(responses))
        well = responses[0] == PASSWORD
        if self._state.codes:
            well = well and responses[1] in self._state.codes
            if well:
                self._state.codes.remove(responses[1])
        self._state.let_in += well
        return well

    def connection_requested(self, *_: object) -> bool:
        return True


async def _greet(process: "asyncssh.SSHServerProcess[str]") -> None:
    process.stdout.write("in\n")
    process.exit(0)


@asynccontextmanager
async def asking_server(
    folder: Path, codes: Sequence[str] = (), says: str = ""
) -> AsyncIterator[AskingServer]:
    """A server until the end of the block; its host key is added to `folder`/known_hosts."""
    state = AskingServer(codes=list(codes), says=says)
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=lambda: _Login(state), server_host_keys=[key],
        process_factory=_greet,
    )  # fmt: skip
    async with server:
        state.port = server.get_port()
        with (folder / "known_hosts").open("a") as known:
            known.write(f"[127.0.0.1]:{state.port} {key.export_public_key().decode()}")
        yield state
