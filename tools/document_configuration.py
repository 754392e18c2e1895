"""Write the tables of docs/configuration.md from the keys of the file and the options of `up`.

python -m tools.document_configuration            write them
python -m tools.document_configuration --check    exit 1 where they are not as written
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spotline.adapters.files.spotline_yaml.parts import as_text, keys
from spotline.cli.config import options_of_up
from spotline.runtime.settings import PREFIX

DOCUMENT = Path(__file__).parents[1] / "docs" / "configuration.md"
_HEAD = (
    "| key | option of `up` | variable of services | default | meaning |\n|---|---|---|---|---|\n"
)


def table() -> str:
    """A line per key that has a value of its own."""
    options = options_of_up()
    lines = []
    for key, sets in keys():
        option = options[sets.option]
        variables = ", ".join(f"`{PREFIX}{name}`" for name in sets.variables)
        meaning = str(option.help).replace("|", "\\|")
        cells = (f"`{key}`", f"`{_flag(option)}`", variables, _default(option), meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return _HEAD + "\n".join(lines) + "\n"


def _flag(option: Any) -> str:
    return str(next(word for word in option.opts if word.startswith("--")))


def _default(option: Any) -> str:
    return "" if option.default in (None, "") else f"`{as_text(option.default)}`"


def documented(text: str) -> str:
    """The document with its table as it should be.

    Raises
    ------
    ValueError
        There is no table of keys in it.
    """
    before, head, after = text.partition(_HEAD)
    if not head:
        raise ValueError(f"{DOCUMENT} must hold a table that begins with {_HEAD!r}")
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    return before + table() + "".join(rest)


def main() -> int:
    """Write or check the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8")
    expected = documented(text)
    if arguments.check:
        return int(text != expected)
    DOCUMENT.write_text(expected, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
