"""What needs a person, worst first, each with what to do next: the red list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from spotline.application.board.messages import JobFlag
from spotline.application.operations.messages import SpendUse
from spotline.application.operations.spending import limits_in_force, room_again_s
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.fleet import LaunchRefusal
from spotline.application.page.jobs import SeenJob
from spotline.application.page.state import PageState
from spotline.domain.limits.freezes import Freeze, FreezeScope
from spotline.domain.limits.raised import LimitAt, LimitKind, limit_named
from spotline.domain.limits.spending import SPANS_S
from spotline.domain.units import NS_PER_S, PPM, utc_iso

HOUR_NS = 3_600 * NS_PER_S
NEAR_PPM = 800_000
"""From which share of a limit on it is shown."""

_STALE_SLOTS, _STALE_LEAST_S = 3, 900

_MINUTE_NS = 60 * NS_PER_S
_LATE = "on-demand alone would be"


class TroubleKind(Enum):
    """What it is about, in the order in which they are shown."""

    AT_RISK = "job at risk"
    STALLED = "program stalled"
    FROZEN = "buying stopped"
    DISAGREEMENT = "log, ledger, cloud differ"
    ORPHAN = "instance without a job"
    NOTICE = "open notice"
    STALE_FEED = "old quotes"
    SET_ASIDE = "price not believed"
    AT_LIMIT = "at a limit"
    LIMIT_NEAR = "limit near"
    REFUSED = "launches refused"
    PARKED = "parked entry"


_BAD = frozenset(
    {
        TroubleKind.AT_RISK,
        TroubleKind.STALLED,
        TroubleKind.FROZEN,
        TroubleKind.DISAGREEMENT,
        TroubleKind.ORPHAN,
        TroubleKind.AT_LIMIT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleFound:
    """Something to look at.

    `what` says what it is about, `path` is that thing's page (empty: none), `why` what is known of
    it, `next` what to do; `command` is the command that does it, empty for none. `ends_ns` is when
    it ends by itself, `since_ns` since when it is so, both of market time (0: not known). `tenant` is
    whose job or limit it is, empty for none's; `silent` says of a feed that nothing of it is new.
    """

    kind: TroubleKind
    key: str
    what: str
    why: str
    next: str
    path: str = ""
    command: str = ""
    since_ns: int = 0
    ends_ns: int = 0
    tenant: str = ""
    silent: bool = False

    @property
    def bad(self) -> bool:
        """Whether it costs a deadline or money if nobody looks; else it is only to be known."""
        return self.kind in _BAD


def troubles(
    state: PageState, rows: Sequence[SeenJob], about: About, tenant: str = ""
) -> tuple[TroubleFound, ...]:
    """All that needs a look at the state's place in the log.

    Parameters
    ----------
    rows
        The jobs that the caller may see, over or not.
    tenant
        Whose things alone are told; empty: everybody's, and the system's own.
    """
    found = [
        *_of_jobs(state, rows),
        *_freezes(state, tenant),
        *_notices(state, tenant),
        *_stale(state, rows),
        *_set_aside(state),
        *_limits(state, rows, about, tenant),
        *_refused(state, tenant),
    ]
    if not tenant:
        found += [*_disagreements(state), *_orphans(state), *_parked(state)]
    order = {kind: place for place, kind in enumerate(TroubleKind)}
    return tuple(sorted(found, key=lambda trouble: order[trouble.kind]))


def told_of_jobs(state: PageState, rows: Sequence[SeenJob], about: About) -> Iterator[TroubleFound]:
    """What jobs, quotes and limits alone say, of `state.jobs`; of feeds without anybody's jobs."""
    yield from _of_jobs(state, rows)
    yield from _stale(state, None)
    yield from _limits(state, rows, about, "")


def troubles_of_job(state: PageState, row: SeenJob) -> tuple[TroubleFound, ...]:
    """What of a job needs a look, by the log alone."""
    found = (
        *_of_jobs(state, (row,)),
        *_limits(state, (row,), NOTHING_KNOWN, row.status.job.tenant),
    )
    return tuple(trouble for trouble in found if trouble.path == f"/jobs/{row.job_id}")


def _of_jobs(state: PageState, rows: Sequence[SeenJob]) -> Iterator[TroubleFound]:
    for row in rows:
        view, path = row.view, f"/jobs/{row.job_id}"
        if JobFlag.AT_RISK in view.flags:
            yield TroubleFound(
                kind=TroubleKind.AT_RISK,
                key=row.job_id,
                what=row.name,
                why=_why_at_risk(row),
                next=_next_at_risk(state, row),
                command=f"spotline update {row.job_id[:8]} --deadline {_makes_it(row) or '...'}",
                path=path,
                since_ns=view.since_ns,
                tenant=row.status.job.tenant,
            )
        if JobFlag.STALLED in view.flags:
            yield TroubleFound(
                kind=TroubleKind.STALLED,
                key=row.job_id,
                what=row.name,
                why="it holds instances, and its program has said nothing for too long",
                next="read the program's own log; restart it, or cancel the job",
                command=f"spotline cancel {row.job_id[:8]}",
                path=path,
                since_ns=view.last_report_ns or view.since_ns,
                tenant=row.status.job.tenant,
            )


def _why_at_risk(row: SeenJob) -> str:
    view, said = row.view, []
    if view.slack_s < 0 and _LATE not in view.why:
        hours = -view.slack_s / 3_600
        said.append(f"{_LATE} {hours:.1f} h late, begun now")
    if view.outlook is not None:
        said.append(f"{view.outlook.on_time_probability_ppm * 100 / PPM:.1f} % likely on time")
    return "; ".join((*said, view.why)) if view.why else "; ".join(said)


def _makes_it(row: SeenJob) -> str:
    """The deadline that on-demand alone would meet, begun now; empty: it meets that of now."""
    if row.view.slack_s >= 0:
        return ""
    late_ns = -row.view.slack_s * NS_PER_S
    at_ns = row.status.job.deadline.at_ns + late_ns
    return utc_iso(-(-at_ns // _MINUTE_NS) * _MINUTE_NS)


def _next_at_risk(state: PageState, row: SeenJob) -> str:
    makes_it = _makes_it(row)
    if not makes_it:
        return "see what it waits for; give it a later deadline, or on-demand now"
    past = row.status.job.deadline.at_ns <= state.now_ns
    return (
        f"{'its deadline has passed' if past else 'nothing but spot can make it'}: on-demand alone, "
        f"begun now, meets {makes_it} at the earliest; give it that deadline or a later one, or let it "
        "end late"
    )


def _freezes(state: PageState, tenant: str) -> Iterator[TroubleFound]:
    for freeze in state.jobs.operations.freezes:
        if _concerns(freeze, state, tenant):
            scope = "everything" if freeze.scope is FreezeScope.SYSTEM else freeze.scope.value
            of_kind = (
                freeze.capacity_type.value.replace("_", "-") if freeze.capacity_type else "all"
            )
            yield TroubleFound(
                kind=TroubleKind.FROZEN,
                key=freeze.freeze_id,
                what=f"{scope} {freeze.key}".strip(),
                why=f"{of_kind} purchases, {freeze.reason.value.replace('_', ' ')}: {freeze.detail}",
                next="continue when its reason is gone"
                if freeze.continue_with
                else "nothing: it ends when its reason is gone",
                command=freeze.continue_with,
                path="" if tenant else "/system",
                since_ns=freeze.ts_event_ns,
            )


def _concerns(freeze: Freeze, state: PageState, tenant: str) -> bool:
    match freeze.scope:
        case FreezeScope.TENANT:
            return tenant in ("", freeze.key)
        case FreezeScope.JOB:
            return tenant in ("", state.jobs.tenant_of(freeze.key))
        case _:
            return True


def _notices(state: PageState, tenant: str) -> Iterator[TroubleFound]:
    notices = sorted(
        (n for n in state.fleet.notices.values() if tenant in ("", n.tenant)),
        key=lambda n: (n.ends_ns, n.job_id, n.offering_id, n.instance_id),
    )
    for (job_id, offering_id, ends_ns), group in groupby(
        notices, key=lambda n: (n.job_id, n.offering_id, n.ends_ns)
    ):
        same = list(group)
        yield TroubleFound(
            kind=TroubleKind.NOTICE,
            key=f"{job_id}-{same[0].instance_id}",
            what=_name(state, job_id),
            why=f"{len(same)} in {offering_id} will be taken back",
            next="nothing: it saves, and moves or waits",
            path=f"/jobs/{job_id}",
            since_ns=same[0].noticed_ns,
            ends_ns=ends_ns,
        )


def _stale(state: PageState, rows: Sequence[SeenJob] | None) -> Iterator[TroubleFound]:
    """Feeds with old quotes; `rows` are the jobs to be named beside them, None: none is."""
    opened = state.jobs.recent.opened
    if opened is None:
        return
    oldest_s = max(_STALE_SLOTS * opened.slot_s, _STALE_LEAST_S)
    accounts = {o.offering_id: o.account_key for o in state.jobs.recent.offerings}
    ages: dict[str, list[int]] = {}
    for quoted in opened.quotes:
        account = accounts.get(quoted.quote.offering_id, "no account")
        ages.setdefault(account, []).append(quoted.age_s)
    holding: dict[str, list[str]] = {}
    for row in rows or ():
        for account in sorted({accounts.get(lot.offering_id, "") for lot in row.view.held}):
            holding.setdefault(account, []).append(row.name)
    for account, of_account in sorted(ages.items()):
        old = [age_s for age_s in of_account if age_s > oldest_s]
        if old:
            dead = len(old) == len(of_account)
            yield TroubleFound(
                kind=TroubleKind.STALE_FEED,
                key=account,
                what=account,
                why=f"{len(old)} of {len(of_account)} quotes are older than {oldest_s // 60} min, "
                f"the oldest {max(old) / 3_600:.1f} h"
                + ("; the whole feed is silent" * dead)
                + ("" if rows is None else _holders(holding.get(account, ()))),
                next="see whether the provider answers, and its credentials; until it does, jobs there "
                "are decided by the last quotes, and keep what they hold",
                command="spotline status",
                path="/market",
                since_ns=opened.ts_event_ns - max(old) * NS_PER_S,
                silent=dead,
            )


def _holders(names: Sequence[str]) -> str:
    return f"; {_listed(names, 'holds something there', 'hold something there')}"


def _set_aside(state: PageState) -> Iterator[TroubleFound]:
    for offering_id, event in sorted(state.fleet.set_aside.items()):
        yield TroubleFound(
            kind=TroubleKind.SET_ASIDE,
            key=offering_id,
            what=offering_id,
            why=event.detail or f"{event.field} lies outside what is believed",
            next="compare with the provider's own page; the last believed price stands",
            path="/market",
            since_ns=event.quote.ts_event_ns,
        )


def _budgets_near(rows: Sequence[SeenJob]) -> Iterator[TroubleFound]:
    for row in rows:
        money = row.view.money
        used_ppm = _share_ppm(money.spent_micro_usd, money.budget_micro_usd or None)
        if used_ppm >= NEAR_PPM and not row.view.phase.over:
            yield TroubleFound(
                kind=TroubleKind.LIMIT_NEAR,
                key=f"budget-{row.job_id}",
                what=row.name,
                why=f"{used_ppm * 100 // PPM} % of its budget of "
                f"${money.budget_micro_usd / 1e6:,.2f} is spent",
                next="raise its budget before it stops",
                command=f"spotline update {row.job_id[:8]} --budget-usd ...",
                path=f"/jobs/{row.job_id}",
                tenant=row.status.job.tenant,
            )


def _limits(
    state: PageState, rows: Sequence[SeenJob], about: About, tenant: str
) -> Iterator[TroubleFound]:
    names = {row.job_id: row.name for row in rows}
    tenants = {row.job_id: row.status.job.tenant for row in rows}
    at_limit = state.jobs.spending.at_limit
    for job_id in sorted(at_limit.keys() & names.keys()):
        reached = at_limit[job_id]
        shared = limit_named(reached.limit, reached.tenant)
        yield TroubleFound(
            kind=TroubleKind.AT_LIMIT,
            key=job_id,
            what=names[job_id],
            why=f"{reached.limit}: {reached.action.value.replace('_', ' ')}. {reached.detail}".strip(),
            next="raise its budget or its value, or let it end"
            if shared is None
            else "raise this limit, which is not the job's own, or let the job wait",
            command=f"spotline update {job_id[:8]} --budget-usd ..."
            if shared is None
            else shared.command,
            path=f"/jobs/{job_id}",
            ends_ns=reached.until_ns,
            tenant=tenants[job_id],
        )
    yield from _budgets_near([row for row in rows if row.job_id not in at_limit])
    waiting: dict[LimitAt, list[str]] = {}
    for job_id, reached in sorted(at_limit.items()):
        shared = limit_named(reached.limit, reached.tenant)
        if shared is not None and job_id in names:
            waiting.setdefault(shared, []).append(names[job_id])
    for use in spend_uses(state, about):
        used_ppm = _share_ppm(use.used_micro_usd, use.limit_micro_usd)
        if used_ppm >= NEAR_PPM and (not tenant or use.tenant == tenant):
            whose, at = use.tenant or use.what, _limit_of(use)
            yield TroubleFound(
                kind=TroubleKind.LIMIT_NEAR,
                key=f"{use.what}-{use.tenant}-{use.span}",
                what=f"{whose}, a {use.span}",
                why=f"${use.used_micro_usd / 1e6:,.2f} of "
                f"${(use.limit_micro_usd or 0) / 1e6:,.2f} a {use.span} is spent "
                f"({used_ppm * 100 // PPM} %){_room_again(state, use)}"
                + (
                    f"; {_listed(waiting[at], 'waits for it', 'wait for it')}"
                    if at in waiting
                    else ""
                ),
                next="raise the limit where this is meant; nothing is bought beyond it",
                command=at.command,
                path="/money",
                tenant=use.tenant,
            )


def spend_uses(state: PageState, about: About) -> tuple[SpendUse, ...]:
    """What is used of the limits on spending; nothing where the options are not known."""
    if about.limits is not None:
        return about.limits.uses
    if about.selector is None:
        return ()
    jobs = state.jobs
    held = jobs.held_in_pools()
    return limits_in_force(jobs.spending, about.selector, state.clock(), held).uses


def _listed(names: Sequence[str], one: str, several: str) -> str:
    """How many jobs do something, and which."""
    if not names:
        return f"no job {one}"
    said = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"{len(names)} job{'s' * (len(names) != 1)} {one if len(names) == 1 else several}: {said}"
    )


def _hours(seconds: int) -> str:
    return f"{seconds / 3_600:.1f} h"


def _room_again(state: PageState, use: SpendUse) -> str:
    """When a limit that is used up leaves room, if nothing more is spent; empty where it has some."""
    wait_s = room_again_s(state.jobs.spending, use)
    if not wait_s:
        return ""
    return f"; used up: {_hours(wait_s)} until it has room again, if nothing more is spent"


def _limit_of(use: SpendUse) -> LimitAt:
    kinds = {"spot": LimitKind.SPOT, "on-demand": LimitKind.ON_DEMAND, "tenant": LimitKind.TENANT}
    kind = kinds.get(use.what, LimitKind.TOTAL)
    return LimitAt(kind=kind, key=use.tenant, span_s=SPANS_S[use.span])


def _share_ppm(used: int, most: int | None) -> int:
    return 0 if not most else used * PPM // most


_AFTER_REFUSAL = {
    "no_capacity": "nothing: other places and on-demand are tried; look at the market",
    "quota": "ask the provider for a higher quota, or lower what jobs may hold",
    "unsupported": "take the offering out of the market: this account cannot launch it",
    "unauthorised": "give the role the permission that the provider names",
    "throttled": "nothing: calls are spread out; lasting, ask for a higher rate",
    "server": "nothing: it is tried again; lasting, see the provider's status page",
    "network": "see whether the provider can be reached from here",
    "token_mismatch": "stop a second actuator with the same store, if there is one",
    "unknown_outcome": "nothing: what was launched is found again by its tag",
    "limit": "raise the limit where this is meant",
}


def _refused(state: PageState, tenant: str) -> Iterator[TroubleFound]:
    recent = state.fleet.refused_since(state.now_ns - HOUR_NS, tenant)
    by_class: dict[str, list[LaunchRefusal]] = {}
    for refusal in recent:
        by_class.setdefault(refusal.refusal_class, []).append(refusal)
    for name, group in sorted(by_class.items(), key=lambda item: (-len(item[1]), item[0])):
        places = sorted({refusal.offering_id for refusal in group})
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        jobs = len({refusal.job_id for refusal in group})
        yield TroubleFound(
            kind=TroubleKind.REFUSED,
            key=name or "unknown",
            what=name.replace("_", " ") or "no class",
            why=f"{len(group)} in the last hour, of {jobs} job{'s' * (jobs != 1)}, in "
            f"{', '.join(places[:3])}{more}; last: {group[-1].detail}",
            next=_AFTER_REFUSAL.get(name, "read the provider's words"),
            path="/market",
            since_ns=group[0].at_ns,
        )


def _disagreements(state: PageState) -> Iterator[TroubleFound]:
    checked = state.jobs.operations.agreement
    for place, found in enumerate(() if checked is None else checked.disagreements):
        yield TroubleFound(
            kind=TroubleKind.DISAGREEMENT,
            key=f"{place}-{found.kind.value}",
            what=f"{found.kind.value.replace('_', ' ')}: {found.scope.value} {found.key}".strip(),
            why=found.detail,
            next="decide which of them is right"
            if found.continue_with
            else "nothing: it mends itself",
            command=found.continue_with,
            path="/system",
            since_ns=0 if checked is None else checked.ts_event_ns,
        )


def _orphans(state: PageState) -> Iterator[TroubleFound]:
    for instance_id, orphan in sorted(state.jobs.operations.orphans.items()):
        yield TroubleFound(
            kind=TroubleKind.ORPHAN,
            key=instance_id,
            what=instance_id,
            why=f"in {orphan.offering_id}: {orphan.detail}",
            next="end it, unless somebody knows what it is",
            command=f"spotline orphans reap {instance_id}",
            path="/system",
            since_ns=orphan.ts_event_ns,
            ends_ns=orphan.reap_after_ns,
        )


def _parked(state: PageState) -> Iterator[TroubleFound]:
    for (service, event_id), parked in state.jobs.operations.parked.items():
        yield TroubleFound(
            kind=TroubleKind.PARKED,
            key=f"{service}-{event_id}",
            what=f"{service}, {parked.kind}",
            why=f"entry {parked.seq:,}: {parked.error}",
            next="retry it when its cause is gone, or drop it",
            command=f"spotline parked retry {service} {event_id[:12]}",
            path="/system",
        )


def _name(state: PageState, job_id: str) -> str:
    status = state.jobs.statuses.get(job_id)
    return job_id[:8] if status is None else status.job.name or job_id[:8]
