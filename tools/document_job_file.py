"""Write the table of fields in docs/job-file.md from the fields themselves.

python -m tools.document_job_file            write it
python -m tools.document_job_file --check    exit 1 where it is not as written
"""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.files.job_fields import rows
from tools.documented import with_table, write_or_check

DOCUMENT = Path(__file__).parents[1] / "docs" / "job-file.md"
_HEAD = "| field | unit | default | meaning |\n| --- | --- | --- | --- |\n"


def table() -> str:
    """The table, a line per field that has a value of its own."""
    lines = [f"| `{path}` | {row.cells} |" for path, row in rows() if row.cells]
    return _HEAD + "\n".join(lines) + "\n"


def documented(text: str) -> str:
    """The document with its table as it should be; `ValueError` where it has none."""
    return with_table(text, _HEAD, table(), DOCUMENT)


def main() -> int:
    """Write or check the table."""
    return write_or_check(DOCUMENT, documented, str(__doc__))


if __name__ == "__main__":
    raise SystemExit(main())
