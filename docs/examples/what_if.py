"""What if every deadline had been later? `python what_if.py STORE/log [+6h]`."""

import sys
from pathlib import Path

from spotline.replay.account import account, read_recorded
from spotline.replay.what_if import what_if_of

log, later = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "+6h"
rules = ("msu", "on_demand_only")

recorded = read_recorded(log)
as_it_was = account(recorded, rules)
changed = account(recorded, rules, terms=what_if_of(deadline=later))

print(f"{len(as_it_was.counted)} jobs cost {as_it_was.recorded_micro_usd / 1e6:.2f} USD")
for rule in rules:
    was, would = as_it_was.cost_micro_usd(rule) / 1e6, changed.cost_micro_usd(rule) / 1e6
    print(f"{rule}: {was:.2f} USD; with deadlines {later}: {would:.2f} USD")
print("left out:", ", ".join(f"{job.name} ({job.reason})" for job in as_it_was.left_out) or "none")
