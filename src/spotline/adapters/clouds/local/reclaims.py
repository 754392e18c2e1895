"""Which instances the market laid over this machine wants back, when, and with what notice."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from spotline.adapters.clouds.local.clock import LocalClock
from spotline.adapters.clouds.local.machine import NOTICE, Machine
from spotline.adapters.clouds.local.news import News
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.clouds.local.store import LocalStore
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S, S_PER_HOUR

# Running spot that the market still has, and nobody takes at this moment.
_SPOT = "state = 'running' AND taken = 0 AND capacity_type = 'spot'"


def uniform(seed: int, *what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *what))).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def launch_number(instance_id: str) -> int:
    """Which launch of its store it was, from 1: chance is drawn by that, so that a seed fixes it.

    The rest of an id differs from store to store.
    """
    return int(instance_id.rpartition("-")[2])


@dataclass(slots=True)
class _Saying:
    """Files to be written once the store holds what they say."""

    files: list[tuple[sqlite3.Row, object]] = field(default_factory=list)


class Reclaims:
    """Keeps a row for each instance that is wanted back, until it is gone or may stay.

    The keeper calls `balance` when counts may have changed, and `advance` when something is due.
    """

    def __init__(
        self,
        store: LocalStore,
        settings: LocalCloudSettings,
        clock: LocalClock,
        machine: Machine,
        news: News,
    ) -> None:
        self._store, self._settings = store, settings
        self._clock, self._machine, self._news = clock, machine, news

    def balance(self, slot_s: int = 0) -> None:
        """Want back what runs beyond the market's spot, the latest launched, and nothing else.

        `slot_s` > 0: a slot of this length opens now, over which the moments are spread.
        """
        saying = _Saying()
        with self._store.transaction() as connection:
            counted = connection.execute(
                "SELECT offering_id, instances FROM stock WHERE capacity_type = 'spot' "
                "AND instances IS NOT NULL ORDER BY offering_id"
            ).fetchall()
            for stock in counted:
                running = connection.execute(
                    "SELECT instances.*, due_ns, noticed_ns, forced FROM instances "  # noqa: S608
                    f"LEFT JOIN reclaims USING (instance_id) WHERE {_SPOT} AND offering_id = ? "
                    "ORDER BY launch_order",
                    (stock["offering_id"],),
                ).fetchall()
                excess = len(running) - stock["instances"]
                self._balance(connection, running, excess, slot_s, saying)
            if slot_s:
                self._strike(connection, slot_s)
        self._say(saying)

    def advance(self) -> list[sqlite3.Row]:
        """Give the notices that are due; the instances whose end is, marked as taken."""
        now_ns = time.monotonic_ns()
        if not self._store.rows("SELECT 1 FROM reclaims WHERE due_ns <= ?", (now_ns,)):
            return []
        saying, doomed = _Saying(), []
        with self._store.transaction() as connection:
            due = connection.execute(
                "SELECT instances.*, forced, lead_s, sudden, due_ns, noticed_ns FROM reclaims "
                "JOIN instances USING (instance_id) WHERE due_ns <= ? AND taken = 0 "
                "AND instances.state != 'ended' ORDER BY launch_order",
                (now_ns,),
            ).fetchall()
            for row in due:
                if row["sudden"] or row["noticed_ns"] is not None:
                    connection.execute(
                        "UPDATE instances SET taken = 1 WHERE instance_id = ?",
                        (row["instance_id"],),
                    )
                    self._sell_out(connection, row)
                    doomed.append(row)
                else:
                    self._notice(connection, row, saying)
        self._say(saying)
        return doomed

    def next_due_ns(self) -> int | None:
        """When `advance` has something to do, on the machine's clock; None for never."""
        due = self._store.rows(
            "SELECT min(due_ns) AS due_ns FROM reclaims JOIN instances USING (instance_id) "
            "WHERE taken = 0 AND state != 'ended'"
        )[0]["due_ns"]
        return None if due is None else int(due)

    def ended_ns(self, row: sqlite3.Row) -> int:
        """Market time at which a noticed instance that was taken counts as gone."""
        told = self._store.rows(
            "SELECT noticed_ns, lead_s FROM reclaims WHERE instance_id = ?", (row["instance_id"],)
        )
        now_ns = self._clock.now_ns()
        if not told or told[0]["noticed_ns"] is None or not row["taken"]:
            return now_ns
        # The clock rounds, and at the end of a slot it stands until the next one opens.
        due_ns = int(told[0]["noticed_ns"]) + int(told[0]["lead_s"]) * NS_PER_S
        return max(now_ns, min(due_ns, self._clock.last_ns()))

    def _balance(
        self,
        connection: sqlite3.Connection,
        running: Sequence[sqlite3.Row],
        excess: int,
        slot_s: int,
        saying: _Saying,
    ) -> None:
        wanted = [row for row in running if row["due_ns"] is not None]
        if len(wanted) > excess:
            # Those without a notice first, then the earliest launched.
            may_stay = [row for row in wanted if not row["forced"]]
            may_stay.sort(key=lambda row: (row["noticed_ns"] is not None, row["launch_order"]))
            for row in may_stay[: len(wanted) - max(0, excess)]:
                self._let_stay(connection, row, saying)
            return
        latest = [row for row in reversed(running) if row["due_ns"] is None]
        for row in latest[: excess - len(wanted)]:
            self._plan(connection, row["instance_id"], slot_s)

    def _strike(self, connection: sqlite3.Connection, slot_s: int) -> None:
        """Have chance take back what the market would leave, at a random moment of the slot."""
        settings, slot = self._settings, self._clock.slot()
        probability = min(1.0, settings.interruption_per_instance_hour * slot_s / S_PER_HOUR)
        if not probability:
            return
        running = connection.execute(
            "SELECT instance_id FROM instances LEFT JOIN reclaims USING (instance_id) "  # noqa: S608
            f"WHERE {_SPOT} AND due_ns IS NULL ORDER BY launch_order"
        ).fetchall()
        for row in running:
            drawn = uniform(settings.seed, "interruption", slot, launch_number(row["instance_id"]))
            if drawn < probability:
                moment_s = drawn / probability * slot_s
                self._want(connection, row["instance_id"], moment_s, chance=True)

    def _plan(self, connection: sqlite3.Connection, instance_id: str, slot_s: int) -> None:
        settings, slot = self._settings, self._clock.slot()
        drawn = uniform(settings.seed, "moment", slot, launch_number(instance_id))
        moment_s = drawn * settings.reclaim_spread * slot_s
        self._want(connection, instance_id, moment_s, chance=False)

    def _want(
        self, connection: sqlite3.Connection, instance_id: str, wait_s: float, *, chance: bool
    ) -> None:
        """Want an instance back in `wait_s` market seconds, with a notice or without."""
        settings, slot = self._settings, self._clock.slot()
        drawn = uniform(settings.seed, "sudden", slot, launch_number(instance_id))
        sudden = drawn < settings.sudden_share
        connection.execute(
            "INSERT INTO reclaims VALUES (?, ?, ?, ?, ?, NULL)",
            (
                instance_id,
                # What chance takes, the market does not give back.
                chance,
                settings.notice_lead_s,
                sudden or settings.notice_lead_s == 0,
                time.monotonic_ns() + self._clock.wall_ns(wait_s),
            ),
        )

    def _sell_out(self, connection: sqlite3.Connection, row: sqlite3.Row) -> None:
        """Whoever took the instance keeps it for a while, and there is no other."""
        seconds = self._settings.sold_out_s
        if not seconds or row["capacity_type"] != CapacityType.SPOT.value:
            return
        until_ns = self._clock.now_ns() + seconds * NS_PER_S
        connection.execute(
            "INSERT OR REPLACE INTO sold_out VALUES (?, ?)", (row["offering_id"], until_ns)
        )

    def _notice(self, connection: sqlite3.Connection, row: sqlite3.Row, saying: _Saying) -> None:
        at_ns, lead_ns = self._clock.now_ns(), self._clock.wall_ns(row["lead_s"])
        instance_id = row["instance_id"]
        notice_id = self._news.noticed(connection, instance_id, at_ns, row["lead_s"])
        connection.execute(
            "UPDATE reclaims SET noticed_ns = ?, due_ns = ? WHERE instance_id = ?",
            (at_ns, time.monotonic_ns() + lead_ns, instance_id),
        )
        notice = {
            "notice_id": notice_id,
            "kind": InterruptionKind.CAPACITY_RECLAIMED.value,
            "deadline_s": time.time() + lead_ns / NS_PER_S,
        }
        saying.files.append((row, notice))

    def _let_stay(self, connection: sqlite3.Connection, row: sqlite3.Row, saying: _Saying) -> None:
        instance_id, noticed_ns = row["instance_id"], row["noticed_ns"]
        connection.execute("DELETE FROM reclaims WHERE instance_id = ?", (instance_id,))
        if noticed_ns is None:
            return
        self._news.withdrawn(connection, instance_id, noticed_ns, self._clock.now_ns())
        saying.files.append((row, []))

    def _say(self, saying: _Saying) -> None:
        for row, notice in saying.files:
            self._machine.write_metadata(row["instance_id"], NOTICE, notice, row["user"])
        if saying.files:
            self._news.ring()


def want_back(store: LocalStore, instance_ids: Sequence[str], lead_s: int) -> list[str]:
    """Want instances back whatever the market says; returns the ids that exist.

    `lead_s` are market seconds of notice, which is due now; 0: they end at once and without.
    """
    found = [row["instance_id"] for row in store.instances("state != 'ended' AND taken = 0")]
    wanted = [instance_id for instance_id in found if instance_id in instance_ids]
    with store.transaction() as connection:
        for instance_id in wanted:
            connection.execute(
                "INSERT OR REPLACE INTO reclaims VALUES (?, 1, ?, ?, ?, NULL)",
                (instance_id, lead_s, lead_s == 0, time.monotonic_ns()),
            )
    return wanted


def running_of(store: LocalStore, offering_id: str, capacity_type: CapacityType) -> int:
    """How many instances count against what the market has of an offering."""
    return len(
        store.instances(
            "state = 'running' AND taken = 0 AND offering_id = ? AND capacity_type = ?",
            (offering_id, capacity_type.value),
        )
    )
