"""The configurator's handler: the market and the measured runs, folded; running jobs, watched.

What platforms measured comes in over RPC as observations; what the progress reports of our own jobs
show is decided here, so a recorded log gives the same new rates again. `RunMeasured` is both: as an
observation it has no cause, as a decision it names the job's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spotline.application.configurator.knowledge import MOST_LEARNED_RUNS, RunList
from spotline.application.configurator.monitoring import MONITORED, MonitoringState, fold, follows
from spotline.application.market_view import MarketFold, MarketView
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked

SPEC = Spec(
    service="configurator",
    consumes=tuple(
        dict.fromkeys((MarketOpened, SlotOpened, ForecastIssued, RunMeasured, *MONITORED))
    ),
    produces=(RunMeasured, ThroughputReestimated, EntryParked),
    decides=(RunMeasured, ThroughputReestimated),
)


@dataclass(slots=True, kw_only=True)
class ConfiguratorState:
    """The recent market, the runs that the log has taught, and the jobs that are watched."""

    recent: MarketFold = field(default_factory=MarketFold)
    runs: RunList = field(default_factory=RunList)
    monitored: MonitoringState = field(default_factory=MonitoringState)

    def market(self) -> MarketView | None:
        """The market as it stands, None before it opened."""
        return self.recent.view()


class ConfiguratorHost(Protocol):
    """The running configurator, as what serves its RPC needs it."""

    @property
    def state(self) -> ConfiguratorState:
        """The state as of the last applied event; only the host changes it."""
        ...

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        """Store an observation, once by `event_id`, and return its `seq`.

        Raises
        ------
        ProviderUnavailable
            The bus did not take it in time.
        """
        ...


class ConfigureHandler:
    """Folds market and runs, and follows the progress of running jobs."""

    spec = SPEC

    def initial(self) -> ConfiguratorState:
        """No market, no runs, no jobs."""
        return ConfiguratorState()

    def evolve(self, state: ConfiguratorState, event: Event) -> None:
        """Apply `event` to `state`."""
        fold(state.monitored, event)
        match event:
            case MarketOpened() | SlotOpened() | ForecastIssued():
                state.recent.fold(event)
            case RunMeasured() if len(state.runs) < MOST_LEARNED_RUNS:
                state.runs.add(event.run)
            case _:
                pass

    def decide(self, state: ConfiguratorState, event: Event, ctx: Context) -> Outcome:
        """Say what the reports of a job show."""
        events = follows(state.monitored, event)
        return Outcome(events=events) if events else NOTHING

    def due(self, state: ConfiguratorState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()
