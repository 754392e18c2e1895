"""Make and check goldens: what the public commands answer, so that a refactoring can prove itself.

A golden holds decisions, money and ids, and nothing that wall time or interleaving touches:

- `demo`: a live run through broker, gRPC and simulated cloud. Kept are the result, the rows of the
  ledger, and the hash of each service's decisions as `replay verify` recomputes them from the log
  of this run. Left out are wall times, paths, the number of events and the statistics: analytics
  works by the stored time of events, which differs from run to run. The ledger's `answers` are kept
  by key, not by their text, which is an encoding of the ledger's own.
- `recorded`: what `replay verify` says of the logs that v0.1.0 recorded, of every service.
- `simulate-PRESET`: every policy of the registry on a small generated market (in full, censored and
  deciding first), and what the selector learned. Left out are decisions per second.
- `value-table`: the bytes of tables of two known laws, hashed.
- `placement`: one pipeline placed by several methods, at the cost of energy and of rent. Left
  out is the market's time, which every answer states and no market gives here.

Commands are run as processes, so that goldens outlive moves of code; the value table alone has no
command. Floating point is numpy's and numba's: equality is promised with the packages and on the
platform that the goldens' metadata names, and `--check` says where it runs with others.

    python tools/goldens.py --check [CASE ...]     compare, and name each difference; exits 1
    python tools/goldens.py --write [CASE ...]     make them again; only when decisions may change
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotline.domain.jobs.program import JobProgram
    from spotline.domain.market.law import MarketLaw

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "data" / "golden" / "runs"
STORED = ROOT / "tests" / "data" / "v0.1.0"
EXAMPLES = ROOT / "docs" / "examples"
METADATA = "metadata.json"
GENERATOR = "python tools/goldens.py --write"

SEED = 7
PRESETS = ("mixed", "cloud-zones", "neocloud")
MODES: Mapping[str, tuple[str, ...]] = {
    "full": (),
    "censored": ("--censored",),
    "decide-first": ("--decide-first",),
}
MARKET_SLOTS, MARKET_SLOT_S, MARKET_JOBS = 64, 1800, 3
DEMO = ("--jobs", "3", "--slots", "32", "--seed", str(SEED))

# What a ledger row says of money and instances. Columns that a later schema adds are no difference.
LEDGER_ROWS: Mapping[str, tuple[str, ...]] = {
    "intents": (
        *("command_id", "attempt", "position", "job_id", "tenant", "quota_pool", "offering_id"),
        *("slot", "revision", "offset_s", "ts_ns", "target_spot", "target_on_demand"),
        *("launching", "launches", "release", "dropped"),
    ),
    "results": (
        *("command_id", "attempt", "job_id", "tenant", "quota_pool", "offering_id", "slot"),
        *("granted_spot", "granted_on_demand", "refused", "detail"),
    ),
    "instances": (
        *("launch_order", "instance_id", "token", "command_id", "attempt", "job_id", "tenant"),
        *("quota_pool", "offering_id", "capacity_type", "start_slot", "start_offset_s"),
        *("end_slot", "end_offset_s", "end_reason", "noticed_slot"),
    ),
    "charges": (
        *("slot", "job_id", "offering_id", "capacity_type", "start_s", "tenant", "quota_pool"),
        *("instances", "held_s", "price_micro_usd", "cost_micro_usd"),
    ),
    "answers": ("slot", "call_key"),
}
MOST_DIFFERENCES = 20
# numpy's exp and log round the last digits by what the processor has: weights differed by 6e-15 of
# themselves between two. Dollars, of which reports hold fractions, still differ by a micro-dollar in a million.
ROUNDING = 1e-12
PROCESSES = 2
# Of the demo, on a machine that is too busy to answer in time.
MOST_RUNS = 3

# Each command's standard output goes to the file `N.out`, N its number from 0. To start Python and
# load compiled code takes longer than most commands.
_RUN = """
import contextlib, json, sys
from spotline.cli.main import app
for number, arguments in enumerate(json.loads(sys.argv[1])):
    with open(f"{number}.out", "w") as out, contextlib.redirect_stdout(out):
        try:
            app(arguments)
        except SystemExit as exit:
            if exit.code:
                raise
"""


class CommandFailed(Exception):
    """A command of Spotline exited with an error."""


def spotline(*commands: Sequence[str], cwd: Path) -> None:
    """Run `spotline` commands, one after the other in one process of this installation.

    Raises
    ------
    CommandFailed
        One exited with another code than 0; those after it were not run.
    """
    run = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CommandFailed(f"{commands}: exit {run.returncode}: {run.stderr.strip()[-2000:]}")


# --- cases --------------------------------------------------------------------------------------


def demo(folder: Path) -> dict[str, Any]:
    """A live run: its result, its ledger, and the decisions that its log verifies.

    The run goes on for a moment after its last job has ended, and how far is chance: compared is
    all up to the report of the slot in which that was. A run in which a service did not answer
    within its time, as happens on a machine that is too busy, decided otherwise and is repeated.

    Raises
    ------
    CommandFailed
        No run was answered in time.
    """
    log = folder / "demo" / "log"
    for _ in range(MOST_RUNS):
        shutil.rmtree(folder / "demo", ignore_errors=True)
        run = ("demo", *DEMO, "--out", str(folder / "demo"), "--json", "result.json")
        spotline(run, cwd=folder)
        text = (log / "entries.jsonl").read_text(encoding="utf-8")
        if not any(late in text for late in ("v1.forecast.overdue", "OUTCOME_TIMED_OUT")):
            break
    else:
        raise CommandFailed("demo: a service was late in each run; repeat it on a calmer machine")
    last_slot = cut(log)
    spotline(("replay", "verify", str(log), "--json"), cwd=folder)
    verified = loaded(folder / "0.out")
    ledger = ledger_rows(folder / "demo" / "store" / "ledger.sqlite")
    ledger["answers"] = [row for row in ledger["answers"] if row["slot"] <= last_slot]
    return {
        "result": without(loaded(folder / "result.json"), {"wall_s", "log", "picture", "events"}),
        "ledger": ledger,
        "decisions": without(verified["decisions"], {"analytics"}),
        "decisions_sha256": without(verified["sha256_by_service"], {"analytics"}),
        "answers": verified["answers"],
    }


def recorded(folder: Path) -> dict[str, Any]:
    """What v0.1.0's logs verify to."""
    logs = ("demo-log", "up-log")
    for log in logs:
        with tarfile.open(STORED / f"{log}.tar.xz") as packed:
            packed.extractall(folder / log, filter="data")
    spotline(*(("replay", "verify", str(folder / log), "--json") for log in logs), cwd=folder)
    return {log: loaded(folder / f"{number}.out") for number, log in enumerate(logs)}


def _kind(entry: dict[str, Any]) -> str:
    return str(entry["headers"].get("ce-type", "")).removeprefix("spotline.v1.")


def cut(log: Path) -> int:
    """End a log with the report that follows its last job's end; the slot of that report."""
    entries = log / "entries.jsonl"
    lines = entries.read_text(encoding="utf-8").splitlines(keepends=True)
    read = [json.loads(line) for line in lines]
    # Each event with the line that it is on: a line is an event, or a batch of them.
    events = [
        (index, one["kind"], one.get("event", {}))
        for index, entry in enumerate(read)
        for one in entry.get("events", [{"kind": _kind(entry), **entry}])
    ]
    closed = max(index for index, kind, _ in events if kind == "job.closed")
    end, slot = next(
        (index, int(event.get("slot", 0)))
        for index, kind, event in events
        if index > closed and kind == "capacity.report" and event.get("settled")
    )
    entries.write_text("".join(lines[: end + 1]), encoding="utf-8")
    manifest = loaded(log / "manifest.json")
    manifest["last_seq"] = read[end]["seq"]
    if "statistics_file" in manifest:
        # Statistics go on behind the cut.
        manifest["statistics_file"] = ""
    (log / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return slot


def simulation(preset: str, folder: Path) -> dict[str, Any]:
    """Every policy on one generated market, and the weights that the selector learned, by mode."""
    market = str(folder / "market.parquet")
    size = ("--slots", str(MARKET_SLOTS), "--slot", str(MARKET_SLOT_S), "--seed", str(SEED))
    jobs = ("--jobs", str(MARKET_JOBS), "--policy", "all", "--seed", str(SEED))
    spotline(
        ("market", "generate", "--preset", preset, *size, "-o", market),
        *(
            (
                *("simulate", "--market", market, *jobs, *options),
                *("--json", f"{mode}.json", "--save-weights", f"{mode}-weights.json"),
            )
            for mode, options in MODES.items()
        ),
        cwd=folder,
    )
    return {
        mode: {
            "report": without(loaded(folder / f"{mode}.json"), {"decisions_per_s"}),
            "learned": loaded(folder / f"{mode}-weights.json"),
        }
        for mode in MODES
    }


def value_tables(_folder: Path) -> dict[str, Any]:
    """Tables of two known laws, for a hard and a soft deadline: id, shape and bytes, hashed."""
    import numpy as np

    from spotline.domain.market.law import law_id_of
    from spotline.domain.solvers.table_terms import TableTerms, table_id
    from spotline.domain.solvers.value_table import build_table

    tables = {}
    for name, law in known_laws().items():
        for hard in (True, False):
            terms = TableTerms(
                program=known_program(hard=hard),
                law=law,
                on_demand_price=1_000_000,
                on_demand_available=4,
                taken=0,
                reserve_slots=0 if hard else 1,
            )
            table = build_table(terms)
            tables[f"{name}-{'hard' if hard else 'soft'}"] = {
                "law_id": law_id_of(law),
                "table_id": table_id(terms),
                "cell_quanta": table.cell_quanta,
                "shape": list(table.after.shape),
                "dtype": str(table.after.dtype),
                "after_sha256": hashed(table.after.tobytes()),
                "nearest_sha256": hashed(table.nearest.astype(np.int64).tobytes()),
                "pending_s": [int(pending) for pending in table.pending_s],
            }
    return tables


def known_laws() -> dict[str, MarketLaw]:
    """Spot that comes and goes at one price, and spot of three levels at two prices."""
    from spotline.domain.market.law import MarketLaw, StateSpace

    sticky = MarketLaw(
        space=StateSpace(level_starts=(0, 2), age_starts=(1,), price_centres_ppm=(300_000,)),
        level_counts=(0, 2),
        run_ppb=(700_000_000, 300_000_000, 100_000_000, 900_000_000),
        price_ppb=(1_000_000_000,),
    )
    jumping = MarketLaw(
        space=StateSpace(
            level_starts=(0, 1, 3), age_starts=(1, 4), price_centres_ppm=(250_000, 600_000)
        ),
        level_counts=(0, 1, 4),
        run_ppb=tuple(
            700_000_000 if after == before else 60_000_000
            for before in range(6)
            for after in range(6)
        ),
        price_ppb=(800_000_000, 200_000_000, 500_000_000, 500_000_000),
    )
    return {"sticky": sticky, "jumping": jumping}


def known_program(*, hard: bool) -> JobProgram:
    """A job of twelve slots; a soft deadline leaves four more of falling worth."""
    from spotline.domain.jobs.program import JobProgram

    value = 9_000_000
    return JobProgram(
        slot_s=1800,
        work_quanta=50_000,
        rate_quanta_per_s=(0, 1, 2, 3, 4),
        allowed_counts=(1, 2, 4),
        launch_s=300 if hard else 2400,
        grow_s=120,
        shrink_s=60,
        interrupted_s=300,
        deadline_slots=12,
        end_slots=12 if hard else 16,
        hard=hard,
        value_micro_usd=tuple(
            value if slot <= 12 else value * (16 - slot) // 4 for slot in range(13 if hard else 17)
        ),
    )


def placement(folder: Path) -> dict[str, Any]:
    """The example pipeline on the example geographies, by each method and cost."""
    runs = [
        (geography, cost, method)
        for geography, cost in (("geography", "energy"), ("geography-rented", "rent"))
        for method in ("spotline", "bace_pipe")
    ]
    spotline(
        *(
            (
                *("place", str(EXAMPLES / "pipeline.yaml"), "--cost", cost, "--json"),
                *("--geography", str(EXAMPLES / f"{geography}.yaml"), "--method", method),
            )
            for geography, cost, method in runs
        ),
        cwd=folder,
    )
    return {
        "-".join(run): without(loaded(folder / f"{number}.out"), {"clock"})
        for number, run in enumerate(runs)
    }


Case = Callable[[Path], dict[str, Any]]
CASES: Mapping[str, Case] = {
    "demo": demo,
    "recorded": recorded,
    **{f"simulate-{preset}": partial(simulation, preset) for preset in PRESETS},
    "value-table": value_tables,
    "placement": placement,
}


# --- content ------------------------------------------------------------------------------------


def ledger_rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of a ledger by table, in a stable order."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        found = {}
        for table, columns in LEDGER_ROWS.items():
            chosen = ", ".join(columns)
            rows = connection.execute(f"SELECT {chosen} FROM {table} ORDER BY {chosen}")  # noqa: S608  # names above
            found[table] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def loaded(file: Path) -> Any:
    """The JSON in a file."""
    return json.loads(file.read_text(encoding="utf-8"))


def without(value: Any, names: set[str]) -> Any:
    """`value` less the fields called so, at every depth."""
    if isinstance(value, dict):
        return {name: without(inner, names) for name, inner in value.items() if name not in names}
    if isinstance(value, list):
        return [without(inner, names) for inner in value]
    return value


def hashed(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted names: equal values, equal text."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def differences(kept: Any, now: Any, path: str = "") -> Iterator[str]:
    """Name each place where two JSON values differ; fractions by more than processors may round them."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in sorted(kept.keys() | now.keys()):
            where = f"{path}.{name}" if path else name
            if name not in now:
                yield f"{where}: was {short(kept[name])}, is missing"
            elif name not in kept:
                yield f"{where}: was missing, is {short(now[name])}"
            else:
                yield from differences(kept[name], now[name], where)
    elif isinstance(kept, list) and isinstance(now, list):
        if len(kept) != len(now):
            yield f"{path}: had {len(kept)} entries, has {len(now)}"
        for index, (before, after) in enumerate(zip(kept, now, strict=False)):
            yield from differences(before, after, f"{path}[{index}]")
    elif isinstance(kept, float) and isinstance(now, float):
        if not math.isclose(kept, now, rel_tol=ROUNDING):
            yield f"{path}: was {short(kept)}, is {short(now)}"
    elif kept != now or type(kept) is not type(now):
        yield f"{path}: was {short(kept)}, is {short(now)}"


def short(value: Any) -> str:
    """A value for people."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


def surroundings() -> dict[str, Any]:
    """What floating point results depend on: the deciding packages and the platform."""
    from spotline.adapters.eventlog.manifest import environment

    here = environment()
    return {
        "packages": dict(here.packages),
        "platform": here.platform,
        "python": here.python,
    }


# --- commands -----------------------------------------------------------------------------------


def made(name: str) -> tuple[dict[str, Any], float]:
    """Run a case in a folder of its own; its golden, as JSON holds it, and the seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        golden = json.loads(canonical(CASES[name](Path(folder))))
    return golden, time.monotonic() - began


def write(names: Sequence[str]) -> int:
    """Make the goldens called so again, and note where."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(PROCESSES) as pool:
        for name, (golden, seconds) in zip(names, pool.map(made, names), strict=True):
            (FOLDER / f"{name}.json").write_text(canonical(golden), encoding="utf-8")
            print(f"wrote {name} ({seconds:.0f} s)", flush=True)
    metadata = {
        "generator": GENERATOR,
        "seed": SEED,
        "environment": surroundings(),
        "sha256": {
            file.name: hashed(file.read_bytes())
            for file in sorted(FOLDER.glob("*.json"))
            if file.name != METADATA
        },
    }
    (FOLDER / METADATA).write_text(canonical(metadata), encoding="utf-8")
    return 0


def check(names: Sequence[str]) -> int:
    """Compare the goldens called so; 1 if one differs."""
    noted = loaded(FOLDER / METADATA)
    for difference in differences(noted["environment"], surroundings(), "environment"):
        print(f"not where the goldens were made, so numbers may differ: {difference}")
    unequal = []
    with ThreadPoolExecutor(PROCESSES) as pool:
        for name, (golden, seconds) in zip(names, pool.map(made, names), strict=True):
            kept = FOLDER / f"{name}.json"
            content = kept.read_bytes()
            found = list(differences(json.loads(content), golden))
            if hashed(content) != noted["sha256"].get(kept.name):
                found.insert(0, f"{kept.name} was edited by hand: its sha256 is not the noted one")
            print(f"{'DIFFERENT' if found else 'equal':9} {name} ({seconds:.0f} s)", flush=True)
            for difference in found[:MOST_DIFFERENCES]:
                print(f"  {difference}")
            if len(found) > MOST_DIFFERENCES:
                print(f"  and {len(found) - MOST_DIFFERENCES} more")
            if found:
                unequal.append(name)
    print(f"{len(names) - len(unequal)} of {len(names)} goldens equal")
    return 1 if unequal else 0


def main() -> int:
    """Check or write goldens."""
    parser = argparse.ArgumentParser(description="Make and check goldens.")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--check", action="store_true", help="compare, and name each difference")
    wanted.add_argument("--write", action="store_true", help="make them again")
    wanted.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="some of them; default: all")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    unknown = sorted(set(arguments.cases) - CASES.keys())
    if unknown:
        parser.error(f"cases must be of {', '.join(CASES)}, was {', '.join(unknown)}")
    names = arguments.cases or list(CASES)
    return write(names) if arguments.write else check(names)


if __name__ == "__main__":
    sys.exit(main())
