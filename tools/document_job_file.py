"""Write the table of fields in docs/job-file.md from the fields themselves.

python tools/document_job_file.py            write it
python tools/document_job_file.py --check    exit 1 where it is not as written
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spotline.adapters.files.job_fields import rows

DOCUMENT = Path(__file__).parents[1] / "docs" / "job-file.md"
_HEAD = "| field | unit | default | meaning |\n| --- | --- | --- | --- |\n"


def table() -> str:
    """The table, a line per field that has a value of its own."""
    lines = [f"| `{path}` | {row.cells} |" for path, row in rows() if row.cells]
    return _HEAD + "\n".join(lines) + "\n"


def documented(text: str) -> str:
    """The document with its table as it should be.

    Raises
    ------
    ValueError
        There is no table of fields in it.
    """
    before, head, after = text.partition(_HEAD)
    if not head:
        raise ValueError(f"{DOCUMENT} must hold a table that begins with {_HEAD!r}")
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    return before + table() + "".join(rest)


def main() -> int:
    """Write or check the table."""
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
