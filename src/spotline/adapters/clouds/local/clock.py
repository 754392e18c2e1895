"""The present in market time: it goes on from the opening of a slot at the speed of the market."""

from __future__ import annotations

import time

from spotline.adapters.clouds.local.store import LocalStore
from spotline.application.cloud_actuator.messages import Moment
from spotline.domain.units import NS_PER_S


class LocalClock:
    """Implements `CloudClock` on wall time since the slot opened, never beyond its last second.

    It is kept in the store, and goes on where it was when another process opens it, at that one's
    speed. While no slot is opened it stands.
    """

    def __init__(self, store: LocalStore, boot: str, market_s_per_s: float) -> None:
        self._store, self._boot, self._speed = store, boot, market_s_per_s
        now_ns = self.now_ns()
        with store.transaction() as connection:
            connection.execute(
                "UPDATE anchors SET market_ns = ?, wall_ns = ?, boot = ?, market_s_per_s = ?",
                (now_ns, time.monotonic_ns(), boot, market_s_per_s),
            )

    def open_slot(self, at: Moment) -> bool:
        """Go on from the opening of a slot; False where a later one, or this one, is open."""
        opened_ns = at.ts_ns - at.offset_s * NS_PER_S
        with self._store.transaction() as connection:
            known = connection.execute("SELECT slot FROM anchors").fetchone()
            if known is not None and known["slot"] >= at.slot:
                return False
            connection.execute(
                "INSERT OR REPLACE INTO anchors VALUES (1, ?, ?, ?, ?, ?, ?)",
                (
                    at.slot,
                    opened_ns + at.slot_s * NS_PER_S,
                    max(at.ts_ns, self.now_ns()),
                    time.monotonic_ns(),
                    self._boot,
                    self._speed,
                ),
            )
        return True

    def now_ns(self) -> int:
        """Nanoseconds of market time, 0 before the first slot; it never goes back."""
        anchors = self._store.rows("SELECT * FROM anchors")
        if not anchors:
            return 0
        anchor = anchors[0]
        last_ns, market_ns = int(anchor["ends_ns"]) - NS_PER_S, int(anchor["market_ns"])
        if anchor["boot"] != self._boot:
            # Nobody knows how far it had come: no further than this.
            return max(market_ns, last_ns)
        passed_ns = int((time.monotonic_ns() - anchor["wall_ns"]) * anchor["market_s_per_s"])
        return max(market_ns, min(market_ns + passed_ns, last_ns))

    def last_ns(self) -> int:
        """The last second of the slot that is open, 0 before the first."""
        anchors = self._store.rows("SELECT ends_ns FROM anchors")
        return int(anchors[0]["ends_ns"]) - NS_PER_S if anchors else 0

    def slot(self) -> int:
        """The slot that is open, -1 before the first."""
        anchors = self._store.rows("SELECT slot FROM anchors")
        return int(anchors[0]["slot"]) if anchors else -1

    def wall_ns(self, market_s: float) -> int:
        """Nanoseconds of wall time in which `market_s` market seconds pass."""
        return int(market_s / self._speed * NS_PER_S)
