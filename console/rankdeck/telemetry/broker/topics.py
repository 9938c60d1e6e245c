"""Topic names, topic filters, and who may use which."""

import hmac
import secrets
from dataclasses import dataclass

LONGEST = 1024


def valid_topic(topic: str) -> bool:
    """Whether a message may go to this topic."""
    return 0 < len(topic) <= LONGEST and "+" not in topic and "#" not in topic


def valid_filter(topic_filter: str) -> bool:
    """Whether + and # each fill a level of their own, and # the last one."""
    levels = topic_filter.split("/")
    if not 0 < len(topic_filter) <= LONGEST or "#" in "/".join(levels[:-1]):
        return False
    return all(level in ("+", "#") or not ("+" in level or "#" in level) for level in levels)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether the filter takes the topic; topics with $ are hidden from wildcards."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


@dataclass(frozen=True, slots=True)
class Account:
    """What the holder of a password may do."""

    username: str
    password: str
    publishes: str = ""
    """Topics must begin with this; "" may not publish."""
    subscribes: bool = False

    def may_publish(self, topic: str) -> bool:
        return bool(self.publishes) and topic.startswith(self.publishes) and valid_topic(topic)

    def admits(self, password: bytes) -> bool:
        return hmac.compare_digest(self.password.encode(), password)


def new_account(username: str, *, publishes: str = "", subscribes: bool = False) -> Account:
    """An account with a password that lives as long as the broker."""
    return Account(username, secrets.token_urlsafe(24), publishes, subscribes)
