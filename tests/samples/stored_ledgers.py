"""Ledgers as v0.2.0 left them behind, of schema 2.

To make them again:

    git worktree add ../v0.2.0 v0.2.0 && cp tests/samples/stored_ledgers.py ../v0.2.0/tests/samples/
    cd ../v0.2.0 && PYTHONPATH=src:. python -m tests.samples.stored_ledgers OUT

writes into OUT, which is then `tests/data/v0.2.0`:

- `ledgers.tar.xz`: `end` is the ledger of the story of `stored_runs` told to its end, `killed` that of
  a process killed while a launch was under way, `continued` one of v0.1.0 that v0.2.0 has opened: it
  raised the schema's number and left the answers as they were.
- `ledgers.json`: their rows, by name, as v0.2.0 reads them, and their spend by job.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fakes.actuator import OWNER, Killed
from tests.samples.stored_runs import (
    SEED,
    STORED,
    Dying,
    pack,
    readable,
    rig_options,
    story,
    unpack,
)

FOLDER = STORED.parent / "v0.2.0"
# An even number is a point before a step of the actuator, an odd one after.
KILLED_AT, CONTINUED = 5, "031"


def rows_of(file: Path) -> dict[str, Any]:
    """What a ledger says; opening it takes it over."""
    from spotline.adapters.ledger.sqlite import SqlLedger, ledger_url

    ledger = SqlLedger(ledger_url(file), OWNER)
    try:
        return {"rows": ledger.comparable(), "spend": dict(ledger.spend_by_job())}
    finally:
        ledger.close()


async def write_ledgers(out: Path) -> None:
    """Make all three."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = folder / "kept"
        for ledger, points in (("end", set()), ("killed", {KILLED_AT})):
            rig = Dying(folder / ledger, **rig_options())
            rig.kill.at = points
            with suppress(Killed):
                await story(rig)
            rig.close()
            (kept / ledger).mkdir(parents=True)
            shutil.copy(folder / ledger / "ledger.sqlite", kept / ledger)
        unpack(STORED / "actuator-stores.tar.xz", folder / "v0.1.0")
        shutil.copytree(folder / "v0.1.0" / CONTINUED, folder / "continued")
        rows_of(folder / "continued" / "ledger.sqlite")
        (kept / "continued").mkdir()
        shutil.copy(folder / "continued" / "ledger.sqlite", kept / "continued")
        pack(kept, out / "ledgers.tar.xz")
        said = {path.name: rows_of(path / "ledger.sqlite") for path in sorted(kept.iterdir())}
        (out / "ledgers.json").write_text(readable(said), encoding="utf-8")


def main(out: Path) -> None:
    """Make all, and say what made it."""
    out.mkdir(parents=True, exist_ok=True)
    asyncio.run(write_ledgers(out))
    metadata = {
        "generator": "python -m tests.samples.stored_ledgers OUT, at v0.2.0",
        "seed": SEED,
        "sha256": {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(out.iterdir())
            if file.name != "metadata.json"
        },
    }
    (out / "metadata.json").write_text(readable(metadata), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
