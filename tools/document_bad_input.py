"""Write docs/bad-input.md from the wrong inputs that the tests try.

python -m tools.document_bad_input            write it
python -m tools.document_bad_input --check    exit 1 where it is not as written
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.samples.bad_input import Case, Group, groups
from tools.documented import write_or_check

DOCUMENT = Path(__file__).parents[1] / "docs" / "bad-input.md"
_MOST_LINES = 12
_LONGEST = 400
_HEAD = """# Wrong input, and what is said of it

{count} wrong inputs, each with the whole of its answer; each is a test, which also sees that nothing was
recorded, bought or left behind, that there was no traceback, and that the services went on.

A command says what is wrong on stderr, a line a mistake: `spotline: WHERE: expected WHAT, found WHAT`.
With `--json` the same stands on stdout as `{{"error": ..., "field": ..., "problems": [...]}}`. It exits 2
where the input is wrong or nobody answers, 1 where a service refuses. A method answers with a gRPC
status, one `ErrorInfo` with the reason, and a `BadRequest` with every field that is wrong.

Where an input is shown as lines, they stand in place of the same ones in a file that is right. This page
is made by `python -m tools.document_bad_input` from
[tests/data/bad_input](../tests/data/bad_input).
"""


def page(shown: Sequence[Group]) -> str:
    """The whole page."""
    count = sum(len(group.cases) for group in shown)
    parts = [_HEAD.format(count=count)]
    for group in shown:
        calls = any(case.call for case in group.cases)
        head = (
            "| wrong | input | answer | status, reason |"
            if calls
            else ("| wrong | input | answer | exit |")
        )
        rows = [_row(group, case) for case in group.cases]
        parts.append(
            "\n".join(
                (f"## {group.title}", "", group.about, "", head, "|---|---|---|---|", *rows, "")
            )
        )
    return "\n".join(parts)


def _row(group: Group, case: Case) -> str:
    if case.call:
        given = [case.call, *_request_lines(case)]
        ending = f"`{case.status}`" + (f" `{case.reason}`" if case.reason else "")
        answer = [case.answer]
        told = {f"{line.partition(': ')[2]}" for line in case.fields}
        if len(case.fields) > 1 or not any(part in case.answer for part in told):
            answer += case.fields
    else:
        given = [*_file_lines(group, case), *_command_lines(group, case)]
        ending = str(case.exit)
        answer = case.answer.splitlines()
    return f"| {_cell([case.wrong], code=False)} | {_cell(given)} | {_cell(answer)} | {ending} |"


def _request_lines(case: Case) -> list[str]:
    metadata = [f"metadata {name}: {value}" for name, value in case.metadata.items()]
    if case.request is not None:
        return [*metadata, _json(case.request)]
    return [*metadata, *(f"{path}: {_json(value)}" for path, value in case.change.items())]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _file_lines(group: Group, case: Case) -> list[str]:
    lines = [f"without {', '.join(case.without)}"] if case.without else []
    lines += case.lines.splitlines()
    for name, content in case.files.items():
        lines += _content_lines(name, content)
    return lines


def _content_lines(name: str, content: Any) -> list[str]:
    match content:
        case str():
            return [f"{name}:", *content.splitlines()] if content else [f"{name}: empty"]
        case {"bytes": text}:
            return [f"{name}: the bytes {_json(text)}"]
        case {"text": text, "encoding": encoding}:
            return [f"{name} in {encoding}:", *text.splitlines()]
        case {"repeat": [text, times], **around}:
            before = f"{_json(around['before'])} and " if around.get("before") else ""
            return [f"{name}: {before}{times:,} times {_json(text)}"]
        case {"zeros": count}:
            return [f"{name}: {count:,} zero bytes"]
        case {"folder": _}:
            return [f"{name}: a folder"]
        case {"fifo": _}:
            return [f"{name}: a named pipe"]
        case {"link": target}:
            return [f"{name}: a link to {target}"]
        case {"market": changes}:
            return [f"{name}: a market with {_json(changes)}"]
        case _:
            raise ValueError(f"{name}: unknown kind of file {content}")


def _command_lines(group: Group, case: Case) -> list[str]:
    variables = [f"{name}={shlex.quote(value)}" for name, value in case.env.items()]
    typed = " ".join([*variables, "spotline", *(shlex.quote(word) for word in case.run)])
    return [f"{typed} < {_json(case.stdin)}" if case.stdin else typed]


def _cell(lines: Sequence[str], *, code: bool = True) -> str:
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"... {len(lines) - _MOST_LINES} more lines"]
    return "<br>".join(_escaped(line, code=code) for line in lines)


def _escaped(line: str, *, code: bool) -> str:
    visible = "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in line)
    if len(visible) > _LONGEST:
        visible = f"{visible[:_LONGEST]}... ({len(visible) - _LONGEST:,} more characters)"
    visible = visible.replace("|", "\\|")
    if not code or not visible:
        return visible
    fence = "``" if "`" in visible else "`"
    room = " " if "`" in visible or visible != visible.strip() else ""
    return f"{fence}{room}{visible}{room}{fence}"


def main() -> int:
    """Write or check the page."""
    return write_or_check(DOCUMENT, lambda _: page(list(groups())), str(__doc__))


if __name__ == "__main__":
    raise SystemExit(main())
