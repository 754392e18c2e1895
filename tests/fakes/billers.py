"""A biller with a list of what instances cost."""

from collections.abc import Sequence

from spotline.application.cloud_actuator.ports import BilledInstance
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.ledger.bills import BillSource, Settlement


class ListedBiller:
    """Knows what is in `costs`, once it answers; `asked` are the ids of each call."""

    def __init__(self, costs: dict[str, int] | None = None, *, unavailable: int = 0) -> None:
        self.costs, self.unavailable = costs, unavailable
        self.asked: list[tuple[str, ...]] = []

    async def final_costs(self, instances: Sequence[BilledInstance]) -> Sequence[Settlement]:
        self.asked.append(tuple(instance.instance_id for instance in instances))
        if self.unavailable:
            self.unavailable -= 1
            raise ProviderUnavailable("the bills are closed")
        known = self.costs
        return [
            Settlement(
                instance_id=instance.instance_id,
                source=BillSource.OWN_COUNT,
                micro_usd=7 if known is None else known[instance.instance_id],
                ts_ns=1,
            )
            for instance in instances
            if known is None or instance.instance_id in known
        ]
