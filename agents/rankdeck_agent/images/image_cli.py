"""`image`: looks at container images on this node, sends and receives copies; sends any file."""

import argparse
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rankdeck_agent.images.file_transfer import Incoming, receive_image, send_file, serve_file
from rankdeck_agent.images.image_rows import describe_images, image_path
from rankdeck_agent.text import parse_json_table, print_complaint, print_json_line

_LONGEST_REQUEST = 1 << 20
_BUSY_PERIOD = 5.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="image", description="Images and files on this node: look, send, fetch, receive."
    )
    verbs = parser.add_subparsers(dest="verb")
    verbs.required = True
    verbs.add_parser("look", help="which images lie here (request as JSON on stdin)")
    one = verbs.add_parser("send", help="a file from an offset on, on stdout")
    one.add_argument("path")
    one.add_argument("offset", type=int)
    one = verbs.add_parser("fetch", help="a file on stdout, between its size and its digest")
    one.add_argument("path")
    one = verbs.add_parser("receive", help="a file on stdin; says from which offset")
    one.add_argument("path")
    one.add_argument("size", type=int)
    one.add_argument("sha256")
    one.add_argument("--base", default="")
    one.add_argument("--mode", type=lambda text: int(text, 8), default=0o644)
    one.add_argument("--replace", action="store_true")
    return parser


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    asked = _parser().parse_args(argv)
    try:
        if asked.verb == "look":
            return _print_rows()
        if asked.verb == "fetch":
            return serve_file(image_path("none", asked.path, ""))
        if asked.verb == "send":
            return send_file(Path(asked.path), max(0, asked.offset))
        incoming = Incoming(asked.size, asked.sha256, asked.mode, asked.replace)
        return receive_image(image_path("none", asked.path, asked.base), incoming)
    except (OSError, ValueError) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        why = error.strerror if isinstance(error, OSError) else ""
        return print_complaint(f"rankdeck: {where}{why or error}", 1)


@contextmanager
def _busy_sign() -> Generator[None, None, None]:
    """Print `{"kind": "busy"}` from time to time: reading a large image takes minutes."""
    over = threading.Event()

    def busy() -> None:
        while not over.wait(_BUSY_PERIOD):
            print_json_line({"kind": "busy"})

    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _print_rows() -> int:
    """Answer a request on stdin with a row for each of its images."""
    request = parse_json_table(sys.stdin.buffer.read(_LONGEST_REQUEST).decode("utf-8", "replace"))
    if request is None:
        raise ValueError("look needs a request as JSON on stdin")
    with _busy_sign():
        rows = describe_images(request)
    return print_json_line({"rows": rows})
