"""Write the tables of docs/configuration.md from the keys of the file and the options of `up`.

python -m tools.document_configuration            write them
python -m tools.document_configuration --check    exit 1 where they are not as written
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spotline.adapters.files.spotline_yaml.parts import as_text, keys
from spotline.cli.config import options_of_up
from spotline.runtime.settings import PREFIX
from tools.documented import with_table, write_or_check

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
    """The document with its table as it should be; `ValueError` where it has none."""
    return with_table(text, _HEAD, table(), DOCUMENT)


def main() -> int:
    """Write or check the tables."""
    return write_or_check(DOCUMENT, documented, str(__doc__))


if __name__ == "__main__":
    raise SystemExit(main())
