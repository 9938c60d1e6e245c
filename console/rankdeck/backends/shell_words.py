"""Commands and files of a plan as lines for sh: quoting, the run folder, here-documents. No I/O."""

import shlex
from collections.abc import Collection, Sequence
from string import ascii_letters

from rankdeck.values import Value, replace
from rankdeck_agent.wire import RUN_TOKEN, RUN_VARIABLE, NodeFile, run_folder

SHIM = f"{RUN_TOKEN}/{run_folder.SHIM}"


def shell_word(word: str) -> str:
    """`word` quoted for sh; the token of the run folder becomes a variable that sh expands."""
    parts = word.split(RUN_TOKEN)
    quoted = [shlex.quote(part) if part else "" for part in parts]
    return f'"${RUN_VARIABLE}"'.join(quoted) if len(parts) > 1 else shlex.quote(word)


def shell_line(words: Sequence[str]) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(shell_word(word) for word in words)


def folder_word(path: str) -> str:
    """A folder quoted for sh; a leading `~` is the home folder, as it is for the supervisor."""
    home, slash, rest = path.partition("/")
    if home != "~":
        return shell_word(path)
    return '"$HOME"' + (shell_word(slash + rest) if rest else "")


def at_run_time(argv: Sequence[str]) -> tuple[str, ...]:
    """The command, wrapped in sh if it names the run folder: that
    path differs from node to node.
    """
    if not any(RUN_TOKEN in word for word in argv):
        return tuple(argv)
    return ("sh", "-c", f"exec {shell_line(argv)}")


def end_mark(word: str, rows: Collection[str]) -> str:
    """The delimiter for a here-document with these lines: `word`, with
    more letters if needed to be unique.

    It begins with no letter that begins a line with non-ASCII text: after such a partial match with
    the delimiter, dash (0.5.12) loses the first byte of a non-ASCII character.
    """
    heads = {row[0] for row in rows if not row.isascii()}
    words = (word, *(letter + word for letter in ascii_letters))
    end = next((one for one in words if one[0] not in heads), word)
    while end in rows:
        end += "_"
    return end


class FileLines(Value):
    """The shell lines that write a file."""

    write: str
    """The command that writes it, without its here-document."""
    end: str
    """The delimiter of the here-document."""
    rows: tuple[str, ...]
    """The text of the file."""
    after: tuple[str, ...]
    """Lines that follow the here-document."""

    @property
    def head(self) -> str:
        """The line above the text."""
        return f"{self.write} <<'{self.end}'"

    @property
    def all(self) -> tuple[str, ...]:
        """Every line, in order."""
        return (self.head, *self.rows, self.end, *self.after)


def file_lines(file: NodeFile) -> FileLines:
    """Shell lines that write a file; sed replaces the token of the run folder in its text."""
    # Only a line feed ends a line in sh, so no splitlines().
    rows = file.text.removesuffix("\n").split("\n") if file.text else []
    path = shell_word(file.path)
    fill = f'sed "s|\\{RUN_TOKEN}|${RUN_VARIABLE}|g"'
    return FileLines(
        write=f"{fill if RUN_TOKEN in file.text else 'cat'} > {path}",
        end=end_mark("EOF", rows),
        rows=tuple(rows),
        after=_mode_lines(file),
    )


def whole_file(file: NodeFile) -> FileLines:
    """Shell lines that write a file byte for byte: no line feed is
    added to text that ends without one.
    """
    lines = file_lines(file)
    if not file.text or file.text.endswith("\n"):
        return lines
    path, part = shell_word(file.path), shell_word(f"{file.path}.new")
    trim = f'printf %s "$(cat {path})" > {part} && mv {part} {path}'
    return replace(lines, after=(*lines.after, trim, *_mode_lines(file)))


def _mode_lines(file: NodeFile) -> tuple[str, ...]:
    return (f"chmod {file.mode:o} {shell_word(file.path)}",) if file.mode != 0o644 else ()
