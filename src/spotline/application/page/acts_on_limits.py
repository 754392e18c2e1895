"""What operators can do about limits on money."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.application.operations.messages import LimitsInForce, LimitWanted
from spotline.application.page.acting_ports import Acts
from spotline.application.page.acts import ActDone, ActField, Follows, FormSaid
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.domain.limits.raised import LimitAt, LimitKind
from spotline.domain.limits.spending import SPANS_S

_KINDS = tuple(kind.value for kind in LimitKind)
_NO_SPAN = "no time"
_SPANS = (*SPANS_S, _NO_SPAN)
_OTHERS = "every other tenant"
_USES = {
    LimitKind.TOTAL: "total",
    LimitKind.SPOT: "spot",
    LimitKind.ON_DEMAND: "on-demand",
    LimitKind.TENANT: "tenant",
    LimitKind.EVERY_TENANT: _OTHERS,
}


@dataclass(frozen=True, slots=True)
class SetALimit:
    """Raise or lower a limit that settings state."""

    name: str = "limit"
    title: str = "Raise or lower a limit"
    says: str = (
        "Have another limit count than settings state: of all, of a tenant, of each job, or of a "
        "quota pool. A job's own budget is changed with the job."
    )
    fields: tuple[ActField, ...] = (
        ActField(name="what", label="What it limits", kind="choice", options=_KINDS),
        ActField(name="key", label="Whose", note="the tenant, or the quota pool; else empty"),
        ActField(
            name="span",
            label="In",
            kind="choice",
            options=_SPANS,
            note="of a job and a quota pool: no time",
        ),
        ActField(
            name="most", label="At most", note="USD; of a quota pool instances", required=True
        ),
        ActField(name="reason", label="Why", note="kept in the log and the audit", required=True),
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """From how much to how much, and what is used of it."""
        wanted = _wanted(said, "")
        at = LimitAt(kind=wanted.kind, key=wanted.key, span_s=wanted.span_s)
        used, before = _in_force(await acts.operations.limits(), at)
        if before is None:
            return Follows(
                says=(
                    f"Nothing limits {at.says} now. A limit must be stated first, under `limits` in "
                    "spotline.yaml: what was spent is kept only as far back as stated limits reach.",
                ),
                can_be=False,
            )
        means = "What is held stays; nothing is bought beyond it from the next slot on."
        if wanted.most > before:
            means = "What waits for this limit alone is bought in the next slot."
        says = [f"{at.says}: {_amount(at, before)} becomes {_amount(at, wanted.most)}."]
        if used is not None:
            says.append(f"Used of it by now: {_amount(at, used)}.")
        says += [means, "It counts over restarts, until settings state another limit there."]
        return Follows(says=tuple(says))

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Set it."""
        done = (await acts.operations.set_limit(_wanted(said, request_id))).set
        before, now = _amount(done.at, done.before), _amount(done.at, done.most)
        return ActDone(
            says=f"{done.at.says}: {before} became {now}.", path="/money", see="See what is spent"
        )


def _wanted(said: FormSaid, request_id: str) -> LimitWanted:
    kind = LimitKind(said.choice("what", _KINDS))
    span, key = said.choice("span", _SPANS), said.text("key")
    if kind.in_a_time is (span == _NO_SPAN):
        expected = "hour, day or month" if kind.in_a_time else _NO_SPAN
        raise refused_input(InputProblem(field="span", expected=expected, found=span))
    if kind.has_key is not bool(key):
        expected = f"which {kind.value}" if kind.has_key else "nothing"
        raise refused_input(
            InputProblem(field="key", expected=expected, found=repr(key[:40]) if key else "nothing")
        )
    return LimitWanted(
        request_id=request_id,
        kind=kind,
        key=key,
        span_s=SPANS_S.get(span, 0),
        most=_most(kind, said),
        reason=said.text("reason", required=True),
    )


def _most(kind: LimitKind, said: FormSaid) -> int:
    stated = said.text("most", required=True)
    if kind is not LimitKind.QUOTA:
        return said.micro_usd("most") or 0
    if not (stated.isascii() and stated.isdecimal() and len(stated) <= 9):
        raise refused_input(
            InputProblem(
                field="most", expected="a whole number of instances", found=repr(stated[:40])
            )
        )
    return int(stated)


def _in_force(limits: LimitsInForce, at: LimitAt) -> tuple[int | None, int | None]:
    """What is used of a limit, and the limit, micro-USD or instances; None: not known, none."""
    if at.kind is LimitKind.JOB:
        return None, limits.micro_usd_per_job
    if at.kind is LimitKind.QUOTA:
        for quota in limits.quotas:
            if quota.quota_pool == at.key:
                return quota.held_instances, quota.most_instances
        return None, None
    in_span = [use for use in limits.uses if use.span == at.span]
    for use in in_span:
        if use.what == _USES[at.kind] and use.tenant == at.key:
            return use.used_micro_usd, use.limit_micro_usd
    # A tenant that has spent nothing yet is held to what every other is.
    others = (use.limit_micro_usd for use in in_span if use.what == _OTHERS)
    return (0, next(others, None)) if at.kind is LimitKind.TENANT else (None, None)


def _amount(at: LimitAt, most: int) -> str:
    return f"{most} instances" if at.kind is LimitKind.QUOTA else f"${most / 1e6:,.2f}"
