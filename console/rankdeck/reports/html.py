"""HTML that is safe to open: every text is escaped, nothing is loaded, nothing runs. No I/O.

A page is one file with its style and its pictures (SVG) inside. Markup is of the type `Html` and is
made by `tag` alone; any other text becomes text of the page, whoever wrote it.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rankdeck.model.text import printable

LONGEST = 4000
"""Characters of one text; more is cut, with `…`."""
LARGEST = 256 << 10
"""Characters of one block of lines, such as the output of a rank."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
"""Tells the browser too: no script, no picture, font or frame from anywhere."""
_VOID = frozenset({"meta", "br", "line", "rect", "polyline", "polygon", "circle", "path"})


class Html(str):
    """Markup; never made of a text that somebody else wrote but by `text` and `tag`."""

    __slots__ = ()


Part = str | int | Html | None
"""A piece of a page: markup stays, any other text is escaped, None is nothing."""


def text(value: object, limit: int = LONGEST) -> Html:
    """One line of text, escaped, without anything that cannot be seen."""
    words = printable(str(value), limit + 1)
    return Html(escape(words if len(words) <= limit else f"{words[:limit]}…"))


def join(parts: Iterable[Part]) -> Html:
    """The parts one after another."""
    return Html("".join(_html(part) for part in parts))


def _html(part: Part) -> Html:
    if part is None:
        return Html()
    return part if isinstance(part, Html) else text(part)


def tag(name: str, /, *parts: Part, **attributes: object) -> Html:
    """An element; `_` in the name of an attribute is `-`, one at its end is left out (`class_`).

    An attribute that is None is left out; numbers of a drawing have at most two decimals.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not parts:
        return Html(f"<{name}{said}/>")
    return Html(f"<{name}{said}>{join(parts)}</{name}>")


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return text(value, LARGEST)


def block(lines: Iterable[str], limit: int = LARGEST) -> Html:
    """Lines as they are, in one size of letters; more than `limit` characters are cut, and that is said."""
    return tag("pre", Html("\n".join(_lines(lines, limit))))


def _lines(lines: Iterable[str], limit: int) -> Iterator[Html]:
    left = limit
    for line in lines:
        shown = text(line)
        left -= len(shown) + 1
        if left < 0:
            yield text("… cut here: there is more")
            return
        yield shown


def details(summary: Part, *parts: Part, opened: bool = False) -> Html:
    """What is folded away until somebody opens it; it is printed."""
    return tag("details", tag("summary", summary), *parts, open="" if opened else None)


def section(title: str, *parts: Part) -> Html:
    """A part of the page with its heading; nothing where it is empty."""
    body = join(parts)
    return tag("section", tag("h2", title), body) if body else Html()


def table(head: Sequence[Part], rows: Iterable[Sequence[Part]], most: int = 2000) -> Html:
    """A table that scrolls sideways; of more than `most` rows the first, and that is said. Nothing without rows."""
    body: list[Html] = []
    for number, row in enumerate(rows):
        if number == most:
            body.append(tag("tr", tag("td", "… and more", colspan=len(head))))
            break
        body.append(tag("tr", *(tag("td", cell) for cell in row)))
    if not body:
        return Html()
    heads = tag("tr", *(tag("th", cell) for cell in head))
    return tag("div", tag("table", tag("thead", heads), tag("tbody", *body)), class_="wide")


def facts(rows: Iterable[tuple[str, Part]]) -> Html:
    """Names and what they are."""
    pairs = (join((tag("dt", name), tag("dd", value))) for name, value in rows if value)
    return tag("dl", *pairs)


def page(title: str, *parts: Part) -> Html:
    """The whole file: its title as the heading, then the parts."""
    head = tag(
        "head",
        Html('<meta charset="utf-8"/>'),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_STYLE)),
    )
    body = tag("body", tag("main", tag("h1", title), *parts))
    return Html(f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n")


_STYLE = """
:root { --page: #fbfbfa; --panel: #fff; --ink: #1c1e21; --dim: #62676e; --line: #dcdfe3;
  --on: #fff; --good: #237a49; --fair: #6f8320; --slow: #b26a00; --bad: #bf2f2a; --unknown: #6b6d80; --run: #3369b8;
  --s0: #2a6fbb; --s1: #d0690d; --s2: #2c8a55; --s3: #9b4fb0; --s4: #a3803c; --s5: #c2417c; --s6: #5b6770; --s7: #0d8f9c; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #16181b; --panel: #1d2024; --ink: #e4e6e9; --dim: #9aa1a9; --line: #363b42;
  --on: #14161a; --good: #4cb57e; --fair: #b0c44f; --slow: #eba63a; --bad: #ef6a63; --unknown: #9b9eb5; --run: #6a9be6;
  --s0: #6aa5ea; --s1: #f09a4f; --s2: #5ec08c; --s3: #c48bd6; --s4: #cdaa66; --s5: #ea7fae; --s6: #a5afb8; --s7: #4cc3cf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 10px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 14px; margin: 18px 0 4px; color: var(--dim); font-weight: 600; }
p { margin: 6px 0; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.verdict { border-left: 4px solid var(--unknown); padding: 6px 12px; margin: 10px 0; background: var(--panel); overflow-wrap: anywhere; }
.verdict.bad { border-color: var(--bad); } .verdict.slow { border-color: var(--slow); }
.verdict.good { border-color: var(--good); } .verdict.fair { border-color: var(--fair); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.wide, figure { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 600; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 8px 10px; margin: 8px 0;
  font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: 6px 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; min-width: 640px; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--dim); }
svg text.ink { fill: var(--ink); } svg text.on { fill: var(--on); font-weight: 600; } svg text.end { text-anchor: end; } svg text.middle { text-anchor: middle; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .mark { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg .event { stroke: var(--slow); stroke-width: 1.5; } svg .frame { fill: none; stroke: var(--ink); stroke-width: 1.5; }
svg .series { fill: none; stroke-width: 1.6; stroke-linejoin: round; } svg .band { fill: var(--s0); opacity: .18; }
svg .good { fill: var(--good); } svg .fair { fill: var(--fair); } svg .slow { fill: var(--slow); } svg .bad { fill: var(--bad); }
svg .unknown { fill: var(--unknown); } svg .run { fill: var(--run); } svg .none { fill: var(--line); } svg .alt { fill: var(--line); opacity: .6; }
.key { display: inline-block; margin: 0 14px 0 0; color: var(--dim); font-size: 13px; }
.key i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; vertical-align: -1px; border-radius: 2px; }
@media print { body { background: #fff; font-size: 12px; } main { max-width: none; padding: 0; } section { break-inside: auto; }
  pre, figure, .verdict { break-inside: avoid-page; } details::details-content { content-visibility: visible; block-size: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
