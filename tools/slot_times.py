"""Print what slots take, as `spotline bench slot` measures it, with the package of any tree.

    python tools/slot_times.py --tree ../spotline-0.2.0 --jobs 600 --slots 12

The measurement is this tree's; everything it runs is that tree's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

MEASUREMENT = Path(__file__).resolve().parent.parent / "src/spotline/demo/slot_times.py"


def main() -> None:
    """Measure once and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-events", type=int)
    asked = parser.parse_args()
    sys.path[:0] = [str(asked.tree / "src"), str(asked.tree)]
    from spotline.bootstrap.planners import compile_planners
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.runtime.log import configure_logging

    spec = importlib.util.spec_from_file_location("slot_times", MEASUREMENT)
    if spec is None or spec.loader is None:
        sys.exit(f"{MEASUREMENT} cannot be loaded")
    measurement = importlib.util.module_from_spec(spec)
    sys.modules["slot_times"] = measurement
    spec.loader.exec_module(measurement)
    configure_logging("warning")
    compile_planners()
    extent = measurement.SlotExtent(
        jobs=asked.jobs, slots=asked.slots, seed=asked.seed, most_events=asked.most_events
    )

    async def run() -> None:
        print(json.dumps(await measurement.measure_slots(extent), indent=2))

    sys.exit(run_to_exit_code(run()))


if __name__ == "__main__":
    main()
