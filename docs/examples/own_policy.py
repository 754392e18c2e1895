"""A policy of one's own beside a rule of thumb, on the same market: `python own_policy.py`."""

from dataclasses import dataclass

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.market.generate import generate
from spotline.domain.policies.interface import Choice
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy


@dataclass(frozen=True)
class CheapSpot:
    """Spot while it costs at most so much; the safety net takes on-demand when it must."""

    most_micro_usd: int
    policy_id: str = "cheap_spot"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True
    forecast_slots: int = 0
    uses_table: bool = False

    def choose(self, view, memory):
        count = view.program.max_instances
        cheap = view.spot_price <= self.most_micro_usd and view.spot_available >= count
        return Choice(holding=Holding(spot=count if cheap else 0), memory=memory)


# Twenty slots of work, and forty slots until the deadline.
JOB = JobProgram(
    slot_s=1800,
    work_quanta=20 * 1800 * 2,  # so many slots of two instances at one quantum a second each
    rate_quanta_per_s=(0, 1, 2),
    allowed_counts=(2,),
    launch_s=180,
    grow_s=180,
    shrink_s=90,
    interrupted_s=300,
    deadline_slots=40,
    end_slots=40,
    hard=True,
    value_micro_usd=(400_000_000,) * 41,
)
market = generate("mixed", seed=5, slots=40, slot_s=JOB.slot_s, start_ns=0)
slots = [  # as the last offering has them, a neocloud's
    SlotRecord(
        spot_price=int(market.spot_price_micro_usd[slot, -1]),
        on_demand_price=int(market.on_demand_price_micro_usd[slot, -1]),
        spot_available=int(market.spot_available[slot, -1]),
        on_demand_available=int(market.on_demand_available[slot, -1]),
        forecast=None,
    )
    for slot in range(market.slots)
]
msu = policy_named("msu")
for policy in (CheapSpot(most_micro_usd=1_400_000), msu):
    life = replay_policy(JOB, slots, policy, msu)
    cost = f"{life.cost_micro_usd / 1e6:.2f} USD"
    print(policy.policy_id, cost, "on time" if life.on_time else "late")
