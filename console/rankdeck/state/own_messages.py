"""A user's own rows for rules/message_table.py: `messages.yaml` in the
user's folder, read when a first rank fails.
"""

from functools import lru_cache
from pathlib import Path

from rankdeck.config.document import Entry, finish_document, load_document, take_text
from rankdeck.config.files import config_folder, is_missing
from rankdeck.errors import ConfigError
from rankdeck.model.patterns import BadPatternError, compile_pattern
from rankdeck.rules.message_table import Message, MessageKind
from rankdeck.rules.messages import use_rows

KEYS = ("pattern", "kind", "means", "do", "example")
NAME = "messages.yaml"


def read_messages(path: Path) -> tuple[Message, ...]:
    """The rows in `path`; raises ConfigError with all mistakes, also a row
    that does not match its own example.
    """
    root = load_document(path)
    table = root.section(("messages",), required=("messages",))
    rows = tuple(_message(item) for item in table["messages"].items()) if table else ()
    finish_document(root)
    return rows


def _message(entry: Entry) -> Message:
    table = entry.section(KEYS, required=KEYS)
    kind = (
        table["kind"].choice([*MessageKind], MessageKind.OWN)
        if "kind" in table
        else MessageKind.OWN
    )
    pattern, means, remedy, example = (take_text(table, key) for key in KEYS if key != "kind")
    try:
        if pattern and example and not compile_pattern(pattern).within(example):
            table["example"].report("does not match the pattern")
    except BadPatternError as error:
        table["pattern"].report(str(error))
    return Message(pattern, MessageKind(kind), means, remedy, example)


@lru_cache(maxsize=1)
def use_own_messages() -> ConfigError | None:
    """Look for the user's own rows first, from now on; returns why the file
    cannot be used, None if it is used or missing.

    Reads the file at the first call only.
    """
    path = config_folder() / NAME
    if is_missing(path):
        return None
    try:
        use_rows(read_messages(path))
    except ConfigError as error:
        return error
    return None
