"""A cloud made of quotes: it sells what they say is there and takes back what they say is gone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from spotline.adapters.clouds.simulated.faults import (
    SimulatedCloudSettings,
    failure_s,
    interruption_s,
    is_refused,
)
from spotline.adapters.clouds.simulated.store import CloudStore, instance_from_row
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudEventKind,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
    OwnerFenced,
    Refusal,
)
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType, Count, Quote
from spotline.domain.units import NS_PER_S

_RUNNING = "state = 'running'"
# Ended instances are shown for the rest of their slot and the next one.
_SHOWN = (
    "owner = ? AND (state = 'running' OR instance_id IN (SELECT instance_id FROM ends "
    "WHERE slot >= (SELECT slot FROM clock) - 1))"
)

# How a loss comes, in the column `announced`: after a warning of its own, one that was given before,
# or without a word, as what fails does.
_WARNED, _ANNOUNCED, _FAILED = 0, 1, 2
# The second of the slot, how it comes, and the instance.
_Loss = tuple[int, int, sqlite3.Row]
_Losses = list[_Loss]


class Pace(Enum):
    """How the simulated cloud's time is played.

    At the `OPENING` of a slot it stands still, and what is held beyond the quotes is noticed; then
    it `GOES_ON` from loss to loss; while it is `HELD`, nothing happens.
    """

    OPENING = 0
    GOES_ON = 1
    HELD = 2


class SimulatedCloud:
    """Implements `CloudProvider` on a `CloudStore`; its time is played by its driver.

    Stock is what the latest quotes say minus what all owners hold; an unknown count is no bound.
    When spot availability falls below what is held, the latest launched are noticed. Notices that
    releases have made needless by the time time goes on lapse: the cloud wants capacity back, not
    particular instances. The ids of its instances begin with `id_prefix`.
    """

    def __init__(
        self,
        path: Path,
        settings: SimulatedCloudSettings | None = None,
        *,
        id_prefix: str = "sim-",
    ) -> None:
        self._settings = settings or SimulatedCloudSettings()
        self._id_prefix = id_prefix
        self._store = CloudStore(path)

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice and the loss."""
        return self._settings.notice_lead_s

    def close(self) -> None:
        """Close the store; the instances go on running."""
        self._store.close()

    def open_slot(self, at: Moment, quotes: Sequence[Quote]) -> None:
        """Take over the slot's quotes. Time then stands still until `play_on`.

        Idempotent per slot; a slot that is over changes nothing.
        """
        with self._store.transaction() as connection:
            clock = connection.execute("SELECT slot FROM clock").fetchone()
            if clock is None or clock["slot"] < at.slot:
                if clock is not None:
                    self._end_leases(connection, at, clock["slot"])
                connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", (at.slot,))
                for quote in quotes:
                    self._stock(connection, quote)
            self._play(connection, at, Pace.OPENING)

    def hold(self) -> None:
        """Let nothing happen until `play_on`: `events` then tells only what has happened."""
        with self._store.transaction() as connection:
            connection.execute("UPDATE played SET pace = ?", (Pace.HELD.value,))

    def now_ns(self) -> int:
        """The moment that the driver told last, 0 before it told any: a `CloudClock`."""
        with self._store.transaction() as connection:
            return self._now_ns(connection)

    def play_on(self, at: Moment) -> None:
        """Say that it is `at`, and that time now goes on until something happens."""
        with self._store.transaction() as connection:
            self._play(connection, at, Pace.GOES_ON)

    async def launch(self, request: LaunchRequest) -> Grant:
        """Grant what is in stock, unless chance refuses all of it."""
        with self._store.transaction() as connection:
            self._fence(connection, request.owner)
            known = connection.execute(
                "SELECT detail, stated FROM grants LEFT JOIN requests USING (token) "
                "WHERE token = ?",
                (request.token,),
            ).fetchone()
            stated = _stated(request)
            if known is not None and known["stated"] not in (None, stated):
                return Grant(instances=(), refusal=_mismatch(request, known["stated"]))
            if known is None:
                connection.execute("INSERT INTO requests VALUES (?, ?)", (request.token, stated))
                granted, detail = self._grantable(connection, request)
                connection.execute("INSERT INTO grants VALUES (?, ?)", (request.token, detail))
                for index in range(granted):
                    self._start(connection, request, index)
            else:
                detail = known["detail"]
            rows = self._store.select("token = ?", (request.token,))
        refusal = Refusal(refusal_class=RefusalClass.NO_CAPACITY, detail=detail) if detail else None
        return Grant(instances=tuple(instance_from_row(row) for row in rows), refusal=refusal)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """End the owner's instances among these, at once."""
        with self._store.transaction() as connection:
            self._fence(connection, owner)
            for instance_id in instance_ids:
                running = self._store.select(
                    f"{_RUNNING} AND owner = ? AND instance_id = ?", (owner.name, instance_id)
                )
                for row in running:
                    self._end(connection, row, "terminated", self._now_ns(connection), None)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """An owner's running instances and those that ended lately, in launch order."""
        return tuple(
            instance_from_row(
                row, InstanceState.RUNNING if row["state"] == "running" else InstanceState.ENDED
            )
            for row in self._store.select(_SHOWN, (owner_name,))
        )

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Say what has happened; where time goes on, also what the cloud takes back next."""
        with self._store.transaction() as connection:
            fresh = connection.execute("INSERT OR IGNORE INTO takings VALUES (?)", (token,))
            if fresh.rowcount:
                pace = self._pace(connection)
                if pace is Pace.GOES_ON:
                    self._go_on(connection, token, at)
                elif pace is Pace.OPENING:
                    self._notice_excess(connection, at)
                connection.execute("UPDATE events SET token = ? WHERE token = ''", (token,))
            rows = connection.execute(
                "SELECT tagged.*, event_id, kind, events.state AS state_then, at_ns, lead_s, "
                "interruption FROM events JOIN tagged USING (instance_id) "
                "WHERE events.token = ? ORDER BY event_order",
                (token,),
            ).fetchall()
        return tuple(_event_from_row(row) for row in rows)

    async def pushed(self) -> None:
        """Wait without end: what happens here happens when time is played."""
        await asyncio.Event().wait()

    def take_back(self, instance_ids: Sequence[str], at_ns: int) -> None:
        """Take running instances away at `at_ns` without notice: how a loss is rehearsed."""
        with self._store.transaction() as connection:
            for instance_id in instance_ids:
                for row in self._store.select(f"{_RUNNING} AND instance_id = ?", (instance_id,)):
                    self._end(connection, row, "lost", at_ns, InterruptionKind.CAPACITY_RECLAIMED)

    def protect(self, instance_ids: Sequence[str]) -> None:
        """Give instances the tag `spotline-hold`, as a person does in a cloud's console."""
        with self._store.transaction() as connection:
            connection.executemany(
                "INSERT INTO tags VALUES (?, '', 1) "
                "ON CONFLICT (instance_id) DO UPDATE SET hold = 1",
                [(instance_id,) for instance_id in instance_ids],
            )

    # --- time -----------------------------------------------------------------------------------

    def _end_leases(self, connection: sqlite3.Connection, at: Moment, last_slot: int) -> None:
        """End what ran while slots went by that nobody opened, as its agents would have.

        The last slot that was opened was attended to its end.
        """
        slot_ns = at.slot_s * NS_PER_S
        left_ns = at.ts_ns - (at.slot - last_slot - 1) * slot_ns
        over_ns = left_ns + self._settings.lease_s * NS_PER_S
        if not self._settings.lease_s or over_ns >= at.ts_ns:
            return
        for row in self._store.select(_RUNNING):
            self._end(connection, row, "lease over", over_ns, None)

    def _play(self, connection: sqlite3.Connection, at: Moment, pace: Pace) -> None:
        # A call that is performed again, of a moment that is over, turns no clock back.
        if at.ts_ns >= self._now_ns(connection):
            connection.execute(
                "INSERT OR REPLACE INTO played VALUES (1, ?, ?)", (at.ts_ns, pace.value)
            )

    def _pace(self, connection: sqlite3.Connection) -> Pace:
        played = connection.execute("SELECT pace FROM played").fetchone()
        return Pace.HELD if played is None else Pace(played["pace"])

    def _now_ns(self, connection: sqlite3.Connection) -> int:
        played = connection.execute("SELECT ts_ns FROM played").fetchone()
        return 0 if played is None else int(played["ts_ns"])

    def _notice_excess(self, connection: sqlite3.Connection, at: Moment) -> None:
        """Give notice to what is held beyond the slot's quotes."""
        offerings = connection.execute("SELECT DISTINCT offering_id FROM stock").fetchall()
        for offering_id in sorted(row["offering_id"] for row in offerings):
            connection.executemany(
                "UPDATE instances SET noticed_slot = ? WHERE launch_order = ?",
                [(at.slot, row["launch_order"]) for row in self._excess(connection, offering_id)],
            )
        for row in self._store.select("noticed_slot = ?", (at.slot,)):
            self._noticed(connection, row, "notice", at.ts_ns, self._settings.notice_lead_s)

    def _go_on(self, connection: sqlite3.Connection, token: str, at: Moment) -> None:
        """Go on to the next moment at which the cloud takes something back."""
        # Taken by v0.2.0 or before, which then died: that is the answer.
        if not self._store.select("signal_token = ?", (token,)):
            self._take_back(connection, token, at)
        for row in self._store.select("signal_token = ?", (token,)):
            start_ns = at.ts_ns - at.offset_s * NS_PER_S
            lost_ns = start_ns + row["lost_s"] * NS_PER_S
            if row["announced"] == _WARNED:
                noticed_ns = start_ns + row["noticed_s"] * NS_PER_S
                lead_s = row["lost_s"] - row["noticed_s"]
                self._noticed(connection, row, "warning", noticed_ns, lead_s)
            failed = row["announced"] == _FAILED
            self._ended(
                connection,
                row,
                lost_ns,
                InterruptionKind.INSTANCE_FAILED if failed else InterruptionKind.CAPACITY_RECLAIMED,
            )

    def _noticed(
        self, connection: sqlite3.Connection, row: sqlite3.Row, word: str, at_ns: int, lead_s: int
    ) -> None:
        connection.execute(
            "INSERT OR IGNORE INTO events (event_id, instance_id, kind, state, at_ns, lead_s, "
            "interruption) VALUES (?,?,?,?,?,?,?)",
            (
                f"{word}-{at_ns}-{row['instance_id']}",
                row["instance_id"],
                CloudEventKind.NOTICE.value,
                InstanceState.RUNNING.value,
                at_ns,
                lead_s,
                InterruptionKind.CAPACITY_RECLAIMED.value,
            ),
        )

    def _ended(
        self,
        connection: sqlite3.Connection,
        row: sqlite3.Row,
        at_ns: int,
        interruption: InterruptionKind | None,
    ) -> None:
        connection.execute(
            "INSERT OR IGNORE INTO events (event_id, instance_id, kind, state, at_ns, lead_s, "
            "interruption) VALUES (?,?,?,?,?,0,?)",
            (
                f"ended-{row['instance_id']}",
                row["instance_id"],
                CloudEventKind.STATE.value,
                InstanceState.ENDED.value,
                at_ns,
                None if interruption is None else interruption.value,
            ),
        )
        connection.execute(
            "INSERT OR IGNORE INTO ends SELECT ?, coalesce(max(slot), 0) FROM clock",
            (row["instance_id"],),
        )

    def _end(
        self,
        connection: sqlite3.Connection,
        row: sqlite3.Row,
        how: str,
        at_ns: int,
        interruption: InterruptionKind | None,
    ) -> None:
        connection.execute(
            "UPDATE instances SET state = ? WHERE launch_order = ?", (how, row["launch_order"])
        )
        self._ended(connection, row, at_ns, interruption)

    # --- stock ----------------------------------------------------------------------------------

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

    def _running(self, offering_id: str, capacity_type: CapacityType) -> Sequence[sqlite3.Row]:
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

    def _excess(self, connection: sqlite3.Connection, offering_id: str) -> Sequence[sqlite3.Row]:
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
        instance_id = f"{self._id_prefix}{request.token[:16]}-{index}"
        connection.execute(
            "INSERT INTO tags (instance_id, installation_id) VALUES (?, ?)",
            (instance_id, request.installation_id),
        )
        connection.execute(
            "INSERT INTO instances (instance_id, token, owner, job_id, tenant, quota_pool, "
            "offering_id, capacity_type, ready_ns, state) VALUES (?,?,?,?,?,?,?,?,?,'running')",
            (
                instance_id,
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
        """Mark as lost all running instances that go at the earliest moment after `at`."""
        losses = [*self._reclaims(connection, at), *self._failures(at)]
        first_s = min((lost_s for lost_s, _, _ in losses), default=0)
        for lost_s, how, row in losses:
            if lost_s != first_s:
                continue
            told = how != _WARNED
            noticed_s = 0 if told else max(at.offset_s, lost_s - self._settings.notice_lead_s)
            connection.execute(
                "UPDATE instances SET state = 'lost', signal_token = ?, noticed_s = ?, "
                "lost_s = ?, announced = ? WHERE launch_order = ?",
                (token, noticed_s, lost_s, how, row["launch_order"]),
            )

    def _reclaims(self, connection: sqlite3.Connection, at: Moment) -> _Losses:
        """When spot that runs is taken back after `at`, and how."""
        losses: _Losses = []
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
            losses += [(reclaim_s, _ANNOUNCED, row) for row in noticed[len(noticed) - excess :]]
        reclaimed = {row["launch_order"] for _, _, row in losses}
        for row in spot:
            lost_s = interruption_s(self._settings, at.slot, at.slot_s, row["instance_id"])
            if lost_s is None or lost_s <= at.offset_s or row["launch_order"] in reclaimed:
                continue
            losses.append((lost_s, _WARNED, row))
        return losses

    def _failures(self, at: Moment) -> _Losses:
        """When what was started in this slot fails."""
        if self._settings.failing is None:
            return []
        opened_ns = at.ts_ns - at.offset_s * NS_PER_S
        losses: _Losses = []
        for row in self._store.select(_RUNNING):
            started_ns = row["ready_ns"] - self._settings.launch_delay_s * NS_PER_S
            started_s = (started_ns - opened_ns) // NS_PER_S
            if started_s < 0:
                continue
            lost_s = failure_s(self._settings, at.slot, at.slot_s, row["token"], started_s)
            if lost_s is not None and lost_s > at.offset_s:
                losses.append((lost_s, _FAILED, row))
        return losses

    def _fence(self, connection: sqlite3.Connection, owner: Owner) -> None:
        seen = connection.execute(
            "SELECT epoch FROM fences WHERE owner = ?", (owner.name,)
        ).fetchone()
        if seen is not None and seen["epoch"] > owner.epoch:
            raise OwnerFenced(owner, seen["epoch"])
        connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (owner.name, owner.epoch))


def _stated(request: LaunchRequest) -> str:
    """All of a request that must be the same when its token comes again."""
    return (
        f"{request.instances} {request.capacity_type.value} of {request.offering_id} in "
        f"{request.quota_pool} for {request.owner.name}, {request.tenant}, {request.job_id}"
    )


def _mismatch(request: LaunchRequest, stated: str) -> Refusal:
    return Refusal(
        refusal_class=RefusalClass.TOKEN_MISMATCH,
        detail=f"token {request.token} was {stated}, now {_stated(request)}",
    )


def _event_from_row(row: sqlite3.Row) -> CloudEvent:
    state = InstanceState(row["state_then"])
    reason = row["interruption"]
    return CloudEvent(
        event_id=row["event_id"],
        instance=instance_from_row(row, state),
        kind=CloudEventKind(row["kind"]),
        state=state,
        at_ns=row["at_ns"],
        lead_s=row["lead_s"],
        interruption=None if reason is None else InterruptionKind(reason),
    )
