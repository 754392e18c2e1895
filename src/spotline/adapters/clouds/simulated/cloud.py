"""A cloud made of quotes: it sells what they say is there and takes back what they say is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.clouds.simulated.faults import (
    SimulatedCloudSettings,
    interruption_s,
    is_refused,
)
from spotline.adapters.clouds.simulated.store import CloudStore, instance_from_row
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudSignal,
    Grant,
    Instance,
    LaunchRequest,
    Owner,
    OwnerFenced,
)
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.market.offering import CapacityType, Count, Quote
from spotline.domain.units import NS_PER_S

_RUNNING = "state = 'running'"


class SimulatedCloud:
    """Implements `CloudProvider` on a `CloudStore`.

    Stock is what the latest quotes say minus what all owners hold; an unknown count is no bound.
    When spot availability falls below what is held, the latest launched are noticed. Notices that
    releases have made needless by the next `signals` lapse: the cloud wants capacity back, not
    particular instances.
    """

    def __init__(self, path: Path, settings: SimulatedCloudSettings | None = None) -> None:
        self._settings = settings or SimulatedCloudSettings()
        self._store = CloudStore(path)

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice given by `observe` and the loss."""
        return self._settings.notice_lead_s

    def close(self) -> None:
        """Close the store; the instances go on running."""
        self._store.close()

    async def observe(self, at: Moment, quotes: Sequence[Quote]) -> Sequence[Instance]:
        """Take over the slot's quotes; notice what is held beyond them."""
        with self._store.transaction() as connection:
            clock = connection.execute("SELECT slot FROM clock").fetchone()
            if clock is None or clock["slot"] < at.slot:
                connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", (at.slot,))
                for quote in quotes:
                    self._stock(connection, quote)
                for offering_id in sorted({quote.offering_id for quote in quotes}):
                    for row in self._excess(connection, offering_id):
                        connection.execute(
                            "UPDATE instances SET noticed_slot = ? WHERE launch_order = ?",
                            (at.slot, row["launch_order"]),
                        )
            noticed = self._store.select("noticed_slot = ?", (at.slot,))
        return tuple(instance_from_row(row) for row in noticed)

    async def launch(self, request: LaunchRequest) -> Grant:
        """Grant what is in stock, unless chance refuses all of it."""
        with self._store.transaction() as connection:
            self._fence(connection, request.owner)
            known = connection.execute(
                "SELECT detail FROM grants WHERE token = ?", (request.token,)
            ).fetchone()
            if known is None:
                granted, detail = self._grantable(connection, request)
                connection.execute("INSERT INTO grants VALUES (?, ?)", (request.token, detail))
                for index in range(granted):
                    self._start(connection, request, index)
            else:
                detail = known["detail"]
            rows = self._store.select("token = ?", (request.token,))
        return Grant(instances=tuple(instance_from_row(row) for row in rows), detail=detail)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """End the owner's instances among these."""
        with self._store.transaction() as connection:
            self._fence(connection, owner)
            connection.executemany(
                "UPDATE instances SET state = 'terminated' "
                "WHERE state = 'running' AND owner = ? AND instance_id = ?",
                [(owner.name, instance_id) for instance_id in instance_ids],
            )

    async def list_instances(self, owner_name: str) -> Sequence[Instance]:
        """All running instances of an owner, in launch order."""
        rows = self._store.select(f"{_RUNNING} AND owner = ?", (owner_name,))
        return tuple(instance_from_row(row) for row in rows)

    async def signals(self, token: str, at: Moment) -> Sequence[CloudSignal]:
        """Take back what goes next: what is still in excess, or what chance hits first."""
        with self._store.transaction() as connection:
            if not self._store.select("signal_token = ?", (token,)):
                self._take_back(connection, token, at)
            rows = self._store.select("signal_token = ?", (token,))
        return tuple(
            CloudSignal(
                instance=instance_from_row(row),
                kind=InterruptionKind.CAPACITY_RECLAIMED,
                noticed_s=row["noticed_s"],
                lost_s=row["lost_s"],
                announced=bool(row["announced"]),
            )
            for row in rows
        )

    def _stock(self, connection: sqlite3.Connection, quote: Quote) -> None:
        def known(count: Count) -> int | None:
            return count.instances if count.known else None

        connection.executemany(
            "INSERT OR REPLACE INTO stock VALUES (?, ?, ?)",
            [
                (quote.offering_id, CapacityType.SPOT.value, known(quote.spot_available)),
                (quote.offering_id, CapacityType.ON_DEMAND.value, known(quote.on_demand_available)),
            ],
        )

    def _running(self, offering_id: str, capacity_type: CapacityType) -> list[sqlite3.Row]:
        return self._store.select(
            f"{_RUNNING} AND offering_id = ? AND capacity_type = ?",
            (offering_id, capacity_type.value),
        )

    def _stock_of(
        self, connection: sqlite3.Connection, offering_id: str, capacity_type: CapacityType
    ) -> sqlite3.Row | None:
        row: sqlite3.Row | None = connection.execute(
            "SELECT instances FROM stock WHERE offering_id = ? AND capacity_type = ?",
            (offering_id, capacity_type.value),
        ).fetchone()
        return row

    def _excess(self, connection: sqlite3.Connection, offering_id: str) -> list[sqlite3.Row]:
        """Running spot instances beyond the stock, the latest launched."""
        stock = self._stock_of(connection, offering_id, CapacityType.SPOT)
        if stock is None or stock["instances"] is None:
            return []
        return self._running(offering_id, CapacityType.SPOT)[stock["instances"] :]

    def _grantable(self, connection: sqlite3.Connection, request: LaunchRequest) -> tuple[int, str]:
        stock = self._stock_of(connection, request.offering_id, request.capacity_type)
        if stock is None:
            return 0, "the offering is not quoted"
        chance = (request.capacity_type.value, request.job_id)
        at = request.at
        if is_refused(self._settings, at.slot, at.offset_s, request.offering_id, *chance):
            return 0, "refused by an injected fault"
        if stock["instances"] is None:
            return request.instances, ""
        running = len(self._running(request.offering_id, request.capacity_type))
        left = max(0, stock["instances"] - running)
        if left >= request.instances:
            return request.instances, ""
        return left, f"{left} of {request.instances} in stock"

    def _start(self, connection: sqlite3.Connection, request: LaunchRequest, index: int) -> None:
        connection.execute(
            "INSERT INTO instances (instance_id, token, owner, job_id, tenant, quota_pool, "
            "offering_id, capacity_type, ready_ns, state) VALUES (?,?,?,?,?,?,?,?,?,'running')",
            (
                f"sim-{request.token[:16]}-{index}",
                request.token,
                request.owner.name,
                request.job_id,
                request.tenant,
                request.quota_pool,
                request.offering_id,
                request.capacity_type.value,
                request.at.ts_ns + self._settings.launch_delay_s * NS_PER_S,
            ),
        )

    def _take_back(self, connection: sqlite3.Connection, token: str, at: Moment) -> None:
        """Mark as lost all running spot instances that go at the earliest moment after `at`."""
        losses: list[tuple[int, bool, sqlite3.Row]] = []
        spot = self._store.select(f"{_RUNNING} AND capacity_type = ?", (CapacityType.SPOT.value,))
        # A slot shorter than the notice ends before the reclaim; it then comes at its last second.
        reclaim_s = max(at.offset_s, min(self._settings.notice_lead_s, at.slot_s - 1))
        for offering_id in sorted({row["offering_id"] for row in spot}):
            excess = len(self._excess(connection, offering_id))
            noticed = [
                row
                for row in spot
                if row["offering_id"] == offering_id and row["noticed_slot"] == at.slot
            ]
            losses += [(reclaim_s, True, row) for row in noticed[len(noticed) - excess :]]
        reclaimed = {row["launch_order"] for _, _, row in losses}
        for row in spot:
            lost_s = interruption_s(self._settings, at.slot, at.slot_s, row["instance_id"])
            if lost_s is None or lost_s <= at.offset_s or row["launch_order"] in reclaimed:
                continue
            losses.append((lost_s, False, row))
        first_s = min((lost_s for lost_s, _, _ in losses), default=0)
        for lost_s, announced, row in losses:
            if lost_s != first_s:
                continue
            noticed_s = 0 if announced else max(at.offset_s, lost_s - self._settings.notice_lead_s)
            connection.execute(
                "UPDATE instances SET state = 'lost', signal_token = ?, noticed_s = ?, "
                "lost_s = ?, announced = ? WHERE launch_order = ?",
                (token, noticed_s, lost_s, announced, row["launch_order"]),
            )

    def _fence(self, connection: sqlite3.Connection, owner: Owner) -> None:
        seen = connection.execute(
            "SELECT epoch FROM fences WHERE owner = ?", (owner.name,)
        ).fetchone()
        if seen is not None and seen["epoch"] > owner.epoch:
            raise OwnerFenced(owner, seen["epoch"])
        connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (owner.name, owner.epoch))
