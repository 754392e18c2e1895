"""What `spotline up` says while it runs: when its market ends, and when all jobs are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from spotline.contracts.envelope import Envelope
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S, utc_iso


class UpNotes:
    """Counts jobs as they are applied; `say` gets a line when something is over.

    Nothing is said of what was applied before `begin`: a store that is continued has a past.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._open: set[str] = set()
        self._ended: Counter[str] = Counter()
        self._cost_micro_usd = 0
        self._market_end = ""
        self._begun = False

    def begin(self) -> None:
        """From now on say what happens, and first whether the market has ended already."""
        self._begun = True
        if self._market_end:
            self._say_market_end()

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to a service: every applied event, in order."""
        match event:
            case JobSubmitted():
                self._open.add(event.job.job_id)
            case JobClosed() if event.job_id in self._open:
                self._open.discard(event.job_id)
                self._ended[event.outcome.value.replace("_", " ")] += 1
                self._cost_micro_usd += event.cost_micro_usd
                if not self._open and self._begun:
                    self._say_all_over()
            case SlotOpened() if event.last:
                self._market_end = utc_iso(event.ts_event_ns + event.slot_s * NS_PER_S)
                if self._begun:
                    self._say_market_end()
            case _:
                pass

    def _say_all_over(self) -> None:
        how = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._ended.items()))
        self._say(f"all jobs are over: {how}; {self._cost_micro_usd / 1e6:,.2f} USD spent")

    def _say_market_end(self) -> None:
        left = f"; not over: {len(self._open)} of its jobs" if self._open else ""
        self._say(
            f"the market's last slot has opened, it ends at {self._market_end}: no slot follows, "
            f"nothing more is decided{left}"
        )
