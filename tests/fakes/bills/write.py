"""Write a bill that was drawn, to be looked at or timed.

python -m tests.fakes.bills.write focus bill.csv --jobs 3400 --days 90 --hours 60 140
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

from tests.fakes.bills import cur, focus, gcp
from tests.fakes.bills.drawn import AWS_KINDS, GCP_KINDS, Drawn

WRITERS = {
    "focus": (focus.written, AWS_KINDS),
    "cur": (cur.written_parquet, AWS_KINDS),
    "gcp": (gcp.written, GCP_KINDS),
}


def main() -> None:
    """Write it, and say what is on it."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("form", choices=sorted(WRITERS))
    words.add_argument("path", type=Path)
    words.add_argument("--jobs", type=int, default=100)
    words.add_argument("--days", type=int, default=90)
    words.add_argument(
        "--hours", type=int, nargs=2, default=(3, 30), help="of a run, at least and most"
    )
    words.add_argument("--seed", type=int, default=0)
    told = words.parse_args()
    write, kinds = WRITERS[told.form]
    drawn = Drawn(told.seed, jobs=told.jobs, days=told.days, kinds=kinds, hours=tuple(told.hours))
    write(told.path, chain(drawn.charges(), drawn.planted()))
    truth = drawn.truth
    said = f"{len(truth.jobs):,} jobs, {truth.runs:,} runs, paid {truth.paid:,} USD\n"
    sys.stdout.write(said)


if __name__ == "__main__":
    main()
