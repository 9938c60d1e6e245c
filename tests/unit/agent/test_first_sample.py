"""When the first sample of a node is due."""

import pytest

from rankdeck_agent.config import Config
from rankdeck_agent.telemetry import Destination, make_hello, publish_samples


class Nowhere(Destination):
    """Sends nothing."""

    def announce(self): ...
    def publish(self, reporter, judged, now, *, whole): ...
    def event(self, event): ...


class Ended:
    """A lease that ends at once, and notes for how long the agent would have waited."""

    samples = gpus = True

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return True


def first_wait(node: str, *, brief: bool) -> float:
    config = Config(cluster="c", host="", node=node, brief=brief)
    lease = Ended()
    publish_samples(config, lease, Nowhere(make_hello(config)))
    return lease.waited[0]


@pytest.mark.parametrize("node", ["n1", "n2", "n3", "n4"])
def test_a_command_that_waits_for_the_first_sample_gets_it_soon(node: str) -> None:
    assert first_wait(node, brief=True) <= 0.25


def test_nodes_of_a_console_do_not_send_together() -> None:
    waits = {round(first_wait(f"n{number}", brief=False), 1) for number in range(8)}
    assert len(waits) > 2
