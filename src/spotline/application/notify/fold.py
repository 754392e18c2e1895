"""Which alerts a log holds: a fold that gives the same ones, with the same ids, whenever it is run.

What stands wrong is looked at when a slot opens, and a job's end where it is closed; between them
nothing is looked at, so that the alerts depend on the log alone and not on who reads it how fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.board.messages import JobPhase
from spotline.application.notify.alerts import Alert, AlertKind, AlertState, alert_id_of
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.applied import Applied
from spotline.application.page.jobs import SeenJob, job_row
from spotline.application.page.state import PageState
from spotline.application.page.trouble import TroubleFound, TroubleKind, told_of_jobs
from spotline.application.tenancy import check_tenant
from spotline.application.unfit import Unfit
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import PPM

QUIET_SLOTS = 3
"""Something is over when so many slots in succession opened without it."""

_KINDS = {
    TroubleKind.AT_RISK: AlertKind.AT_RISK,
    TroubleKind.AT_LIMIT: AlertKind.LIMIT_NEAR,
    TroubleKind.LIMIT_NEAR: AlertKind.LIMIT_NEAR,
    TroubleKind.STALE_FEED: AlertKind.FEED_DEAD,
}
_ENDS = {
    JobPhase.COMPLETED: (AlertKind.DONE, "is done, in time"),
    JobPhase.LATE: (AlertKind.MISSED, "is done, after its deadline"),
    JobPhase.MISSED: (AlertKind.MISSED, "has missed its deadline"),
    JobPhase.FAILED: (AlertKind.MISSED, "has failed"),
    JobPhase.STOPPED_BY_LIMIT: (AlertKind.MISSED, "was stopped by a limit on money"),
}
_AFTER_MISS = "read why it ended on its page; submit it again with a later deadline or more money"

_Standing = tuple[AlertKind, str]
"""A kind and a subject: of each pair one thing stands at a time."""


@dataclass(slots=True)
class _Stands:
    """What began, and how many slots have opened without it since it was seen last."""

    alert: Alert
    quiet: int = 0


@dataclass(slots=True)
class AlertFold:
    """Folds events, and says what each of them began or ended.

    Parameters
    ----------
    source
        The id of the installation, which makes its ids its own.
    about
        Under which settings it decides: limits come from there.
    """

    source: str
    about: About = NOTHING_KNOWN
    _state: PageState = field(default_factory=PageState)
    _open: dict[str, None] = field(default_factory=dict)
    _stands: dict[_Standing, _Stands] = field(default_factory=dict)

    def fold(self, told: Applied) -> tuple[Alert, ...]:
        """Apply an event, and say which alerts it is the reason of; of unfit ones none."""
        event, jobs = told.event, self._state.jobs
        try:
            check_tenant(event, jobs.tenant_of)
            jobs.fold(event)
        except Unfit:
            return ()
        match event:
            case JobSubmitted() if event.job.job_id in jobs.statuses:
                self._open.setdefault(event.job.job_id)
            case JobClosed() if event.job_id in self._open:
                del self._open[event.job_id]
                return self._closed(told, event)
            case SlotOpened():
                return self._looked(told)
            case _:
                pass
        return ()

    def _looked(self, told: Applied) -> tuple[Alert, ...]:
        """Alerts of a slot that has opened."""
        rows = [job_row(self._state, job_id) for job_id in self._open]
        found: dict[_Standing, TroubleFound] = {}
        for trouble in told_of_jobs(self._state, rows, self.about):
            place = _place_of(trouble)
            if place is not None:
                found.setdefault(place, trouble)
        alerts = []
        for place, trouble in found.items():
            if place in self._stands:
                self._stands[place].quiet = 0
                continue
            began = self._began(told, place, trouble)
            self._stands[place] = _Stands(began)
            alerts.append(began)
        for place in [place for place in self._stands if place not in found]:
            stands = self._stands[place]
            stands.quiet += 1
            if stands.quiet >= QUIET_SLOTS:
                alerts.append(self._ended(told, place, _no_longer(stands.alert)))
        return tuple(alerts)

    def _closed(self, told: Applied, event: JobClosed) -> tuple[Alert, ...]:
        """Alerts of a job that is over: its end, and the end of all that stood of it."""
        row = job_row(self._state, event.job_id)
        phase = row.view.phase.value.replace("_", " ")
        alerts = [
            self._ended(told, (kind, subject), f"{row.name} is over: {phase}.")
            for kind, subject in list(self._stands)
            if subject == event.job_id
        ]
        if row.view.phase in _ENDS:
            alerts.append(self._happened(told, row, event))
        return tuple(alerts)

    def _began(self, told: Applied, place: _Standing, trouble: TroubleFound) -> Alert:
        kind, subject = place
        return self._alert(
            told,
            kind,
            AlertState.BEGAN,
            subject,
            name=trouble.what,
            says=f"{trouble.what}: {trouble.kind.value}. {trouble.why}".rstrip(". ") + ".",
            next=f"{trouble.next} ({trouble.command})" if trouble.command else trouble.next,
            path=trouble.path,
            tenant=trouble.tenant,
        )

    def _ended(self, told: Applied, place: _Standing, says: str) -> Alert:
        began = self._stands.pop(place).alert
        return self._alert(
            told,
            began.kind,
            AlertState.ENDED,
            began.subject,
            name=began.name,
            says=says,
            began_id=began.alert_id,
            path=began.path,
            tenant=began.tenant,
        )

    def _happened(self, told: Applied, row: SeenJob, event: JobClosed) -> Alert:
        kind, how = _ENDS[row.view.phase]
        return self._alert(
            told,
            kind,
            AlertState.HAPPENED,
            row.job_id,
            name=row.name,
            says=f"{row.name} {how}: {event.progress_ppm * 100 / PPM:.1f} % of its work, "
            f"${event.cost_micro_usd / 1e6:,.2f} spent.",
            next=_AFTER_MISS if kind is AlertKind.MISSED else "",
            path=f"/jobs/{row.job_id}",
            tenant=row.status.job.tenant,
        )

    def _alert(
        self, told: Applied, kind: AlertKind, state: AlertState, subject: str, **said: str
    ) -> Alert:
        return Alert(
            alert_id=alert_id_of(self.source, kind, state, subject, told.event_id),
            kind=kind,
            state=state,
            subject=subject,
            slot=self._state.slot,
            entry=told.seq,
            market_ns=self._state.now_ns,
            logged_ns=told.wall_ns,
            **said,
        )


def _place_of(trouble: TroubleFound) -> _Standing | None:
    """What kind of alert something is, of which subject; None where nobody is told of it."""
    kind = _KINDS.get(trouble.kind)
    if kind is None or (trouble.kind is TroubleKind.STALE_FEED and not trouble.silent):
        return None
    # A budget that is nearly spent, and then is, is one thing: its job's.
    return kind, trouble.key.removeprefix("budget-")


def _no_longer(began: Alert) -> str:
    what = {
        AlertKind.AT_RISK: "is no longer at risk",
        AlertKind.LIMIT_NEAR: "is no longer near its limit",
        AlertKind.FEED_DEAD: "is quoted again",
    }
    return f"{began.name} {what[began.kind]}, for {QUIET_SLOTS} slots now."
