"""The bill, the jobs and the price history in `docs/examples/assess`: `python -m tests.fakes.example_bill`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from tests.fakes.bills import focus
from tests.fakes.bills.drawn import FIRST_S, HOUR_S, Charge, Kind, hours

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "assess"
P3 = Kind(
    name="p3.16xlarge", region="us-east-1", zone="us-east-1c", gpus=8, usd_per_hour=Decimal("24.48")
)
# Name, instances, hours after the bill's begin, hours of work.
JOBS = (
    ("tune-llama-a", 1, 5, 12),
    ("tune-llama-b", 1, 30, 24),
    ("tune-qwen", 2, 52, 12),
    ("sweep-1", 1, 76, 6),
    ("sweep-2", 1, 77, 6),
    ("sweep-3", 1, 78, 6),
    ("eval-night", 1, 101, 12),
    ("tune-mistral", 1, 121, 24),
)


def charges() -> Iterator[Charge]:
    """Machines on demand, a job's traffic, and two charges that are no job's."""
    number = 0
    for name, instances, begins_h, works_h in JOBS:
        tags = (("job", name), ("owner", "ann" if "tune" in name else "bob"))
        begin_s = FIRST_S + begins_h * HOUR_S + 600
        for _ in range(instances):
            number += 1
            yield from hours(
                f"i-{number:017x}", P3, begin_s, begin_s + works_h * HOUR_S, Decimal(1),
                spot=False, tags=tags,
            )  # fmt: skip
        if name == "tune-qwen":
            usd = Decimal("3.60")
            yield Charge(
                what="egress", begin_s=begin_s // HOUR_S * HOUR_S, end_s=begin_s // HOUR_S * HOUR_S + HOUR_S,
                usd=usd, asked=usd, resource=f"i-{number:017x}", kind=P3, tags=tags,
            )  # fmt: skip
    for what, usd in (("support", Decimal(100)), ("credit", Decimal(-25))):
        at_s = FIRST_S + 12 * HOUR_S
        yield Charge(what=what, begin_s=at_s, end_s=at_s + HOUR_S, usd=usd, asked=usd)


def history() -> dict[str, object]:
    """Spot prices of two zones over the week, as the AWS command line prints them."""
    dice = random.Random(21)
    entries = []
    for zone, usd in (("us-east-1a", 8.1), ("us-east-1c", 7.6)):
        price = usd
        for at_h in range(-6, 168, 29):
            price *= 1 + dice.uniform(-0.02, 0.02)
            at = datetime.fromtimestamp(FIRST_S + at_h * HOUR_S, tz=UTC)
            entries.append(
                {
                    "AvailabilityZone": zone,
                    "InstanceType": P3.name,
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": f"{price:.6f}",
                    "Timestamp": at.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
                }
            )
    entries.sort(key=lambda entry: (entry["Timestamp"], entry["AvailabilityZone"]), reverse=True)
    return {"SpotPriceHistory": entries}


def remembered() -> Iterator[str]:
    """The jobs as a scheduler would list them, with the machines of each."""
    yield "job_id,begin,end,owner,instance_ids"
    number = 0
    for name, instances, begins_h, works_h in JOBS:
        ids = " ".join(f"i-{number + one:017x}" for one in range(1, instances + 1))
        number += instances
        begin_s = FIRST_S + begins_h * HOUR_S + 600
        times = ",".join(
            datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            for at_s in (begin_s, begin_s + works_h * HOUR_S)
        )
        yield f"{name},{times},{'ann' if 'tune' in name else 'bob'},{ids}"


def write_example(folder: Path) -> None:
    """Write all three files."""
    focus.written(folder / "bill.csv", charges())
    text = json.dumps(history(), indent=1) + "\n"
    (folder / "spot-history.json").write_text(text)
    (folder / "jobs.csv").write_text("".join(f"{line}\n" for line in remembered()))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_example(FOLDER)
