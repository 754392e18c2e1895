"""What operators do: stop buying, go on, set an account's mode, mend what is parked, end orphans."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.application.operations.messages import (
    ModeWanted,
    ParkedEntry,
    ParkedQuery,
    Pause,
    Resume,
)
from spotline.application.page.acting_ports import Acts
from spotline.application.page.acts import ActDone, ActField, Follows, FormSaid
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.domain.limits.freezes import Freeze, FreezeScope
from spotline.domain.modes import Mode

_SCOPES = tuple(scope.value for scope in FreezeScope)
_MODES = tuple(mode.value for mode in Mode)
_SCOPE = ActField(
    name="scope", label="For", kind="choice", options=_SCOPES, note="the whole system, or a part"
)
_KEY = ActField(
    name="key", label="Which", note="the account, offering, tenant or job; empty for the system"
)
_DETAIL = ActField(name="detail", label="Why", note="kept in the log and the audit")
_SERVICE = ActField(name="service", label="Service", required=True)
_EVENT = ActField(name="event_id", label="Event", note="the parked event's id", required=True)
_LONGEST_CONTENT = 2_000


@dataclass(frozen=True, slots=True)
class StopBuying:
    """Stop buying."""

    name: str = "pause"
    title: str = "Stop buying"
    says: str = "Nothing more is bought, for everything or a part, until somebody goes on."
    fields: tuple[ActField, ...] = (_SCOPE, _KEY, _DETAIL)

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """What is not bought, and what stays."""
        scope, key = _scope_of(said)
        said.text("detail")
        return Follows(
            says=(
                f"Nothing more is bought for {_where(scope, key)}.",
                "What is held stays held and goes on costing. Jobs that need more wait, and may miss "
                "their deadlines: hard ones, too.",
            )
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Pause."""
        scope, key = _scope_of(said)
        paused = await acts.operations.pause(
            Pause(request_id=request_id, scope=scope, key=key, detail=said.text("detail"))
        )
        return ActDone(
            says=f"Buying stops for {_where(paused.freeze.scope, paused.freeze.key)}.",
            path="/act/resume",
            see="Go on buying",
        )


@dataclass(frozen=True, slots=True)
class GoOnBuying:
    """End a stop of buying."""

    name: str = "resume"
    title: str = "Go on buying"
    says: str = "End a stop of buying: by its id, or that of a scope."
    fields: tuple[ActField, ...] = (
        ActField(name="freeze_id", label="Stop", note="its id; empty: that of the scope below"),
        _SCOPE,
        _KEY,
        _DETAIL,
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """Which stops are in force, and which end."""
        freeze_id = said.text("freeze_id")
        scope, key = _scope_of(said) if not freeze_id else (FreezeScope.SYSTEM, "")
        in_force = (await acts.operations.status()).freezes
        ending = [
            freeze
            for freeze in in_force
            if (
                freeze.freeze_id == freeze_id
                if freeze_id
                else (freeze.scope, freeze.key) == (scope, key)
            )
        ]
        if not ending:
            known = "; ".join(map(_freeze, in_force)) or "none"
            return Follows(says=(f"No such stop is in force. In force: {known}.",), can_be=False)
        return Follows(
            says=(
                *(f"This stop ends: {_freeze(freeze)}." for freeze in ending),
                "From the next slot on what jobs need is bought again.",
            )
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Resume."""
        freeze_id = said.text("freeze_id")
        scope, key = (None, "") if freeze_id else _scope_of(said)
        resumed = await acts.operations.resume(
            Resume(
                request_id=request_id,
                freeze_id=freeze_id,
                scope=scope,
                key=key,
                detail=said.text("detail"),
            )
        )
        ended = "; ".join(map(_freeze, resumed.ended)) or "it had ended already"
        return ActDone(says=f"Buying goes on: {ended}.", path="/", see="See what is happening")


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set an account's mode."""

    name: str = "promote"
    title: str = "Set an account's mode"
    says: str = "Have an account acted on (live), or only watched (observe)."
    fields: tuple[ActField, ...] = (
        ActField(name="account", label="Account", note="provider/account", required=True),
        ActField(name="mode", label="Mode", kind="choice", options=_MODES),
        ActField(name="reason", label="Why", note="kept in the log and the audit", required=True),
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """From which mode to which."""
        wanted = self._wanted(said, "")
        modes = await acts.operations.account_modes()
        known = {each.account: each.mode for each in modes.accounts}
        if wanted.account not in known:
            listed = ", ".join(sorted(known)) or "none"
            return Follows(says=(f"No such account is known. Known: {listed}.",), can_be=False)
        before = known[wanted.account]
        if wanted.mode is Mode.LIVE:
            means = "From then on instances are launched there, and paid for."
        else:
            means = "From then on nothing more is bought there; decisions are on paper alone."
        return Follows(
            says=(f"{wanted.account}: {before.value} becomes {wanted.mode.value}.", means)
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Set it."""
        done = (await acts.operations.set_account_mode(self._wanted(said, request_id))).set
        return ActDone(
            says=f"{done.account} is in mode {done.mode.value}.",
            path="/system",
            see="See the system",
        )

    def _wanted(self, said: FormSaid, request_id: str) -> ModeWanted:
        return ModeWanted(
            request_id=request_id,
            account=said.text("account", required=True),
            mode=Mode(said.choice("mode", _MODES)),
            reason=said.text("reason", required=True),
        )


@dataclass(frozen=True, slots=True)
class RetryParked:
    """Publish a parked entry again."""

    name: str = "retry"
    title: str = "Try a parked entry again"
    says: str = "Publish what a service could not take again, for that service alone."
    fields: tuple[ActField, ...] = (_SERVICE, _EVENT)

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """What it is, and why it was parked."""
        found = await _parked(acts, said)
        if found is None:
            return _NOT_PARKED
        return Follows(
            says=(
                *_entry(found),
                f"{found.parked.service} takes it again, at the end of the log. Where what is wrong "
                "with it is not mended, it is parked again.",
            )
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Retry it."""
        again = await acts.operations.retry_parked(
            said.text("service", required=True),
            said.text("event_id", required=True),
            request_id=request_id,
        )
        return ActDone(
            says=f"Published again as {again}.", path="/system", see="See what is parked"
        )


@dataclass(frozen=True, slots=True)
class DropParked:
    """Give a parked entry up."""

    name: str = "drop"
    title: str = "Give up a parked entry"
    says: str = "Leave out for good what a service could not take."
    fields: tuple[ActField, ...] = (_SERVICE, _EVENT, _DETAIL)

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """What is left out."""
        found = await _parked(acts, said)
        if found is None:
            return _NOT_PARKED
        return Follows(
            says=(
                *_entry(found),
                f"{found.parked.service} never takes it, and nobody is reminded of it any more.",
            )
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Drop it."""
        event_id = said.text("event_id", required=True)
        await acts.operations.drop_parked(
            said.text("service", required=True),
            event_id,
            request_id=request_id,
            detail=said.text("detail"),
        )
        return ActDone(says=f"{event_id} is given up.", path="/system", see="See what is parked")


@dataclass(frozen=True, slots=True)
class Reap:
    """End instances that belong to no job."""

    name: str = "reap"
    title: str = "End orphans"
    says: str = "Have instances ended that carry our mark and belong to no job."
    fields: tuple[ActField, ...] = (
        ActField(
            name="instance_ids",
            label="Instances",
            note="their ids, with blanks between them; empty: all that are listed",
        ),
    )

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """Which end."""
        listed = (await acts.operations.orphans()).orphans
        wanted = said.words("instance_ids") or tuple(each.instance_id for each in listed)
        known = {each.instance_id: each for each in listed}
        unknown = [instance_id for instance_id in wanted if instance_id not in known]
        if unknown or not wanted:
            said_so = f"No orphans: {', '.join(unknown)}." if unknown else "There are no orphans."
            return Follows(says=(said_so,), can_be=False)
        return Follows(
            says=(
                f"{len(wanted)} instances are ended: {', '.join(wanted)}.",
                "Whatever runs on them is lost. They cannot be had back.",
            ),
            # Those that were shown, whatever is found meanwhile.
            keeps={"instance_ids": " ".join(wanted)},
        )

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Reap them."""
        ended = await acts.operations.reap_orphans(
            said.words("instance_ids"), request_id=request_id
        )
        return ActDone(
            says=f"Being ended: {', '.join(ended)}.", path="/system", see="See the system"
        )


_NOT_PARKED = Follows(says=("No such entry is parked: somebody has dealt with it.",), can_be=False)


async def _parked(acts: Acts, said: FormSaid) -> ParkedEntry | None:
    service = said.text("service", required=True)
    event_id = said.text("event_id", required=True)
    query = ParkedQuery(service=service, with_content=True)
    while True:
        page = await acts.operations.parked(query)
        for entry in page.entries:
            if entry.parked.event_id == event_id:
                return entry
        if not page.next_page_token:
            return None
        query = ParkedQuery(service=service, with_content=True, page_token=page.next_page_token)


def _entry(found: ParkedEntry) -> tuple[str, ...]:
    parked, content = found.parked, found.content_json
    says = f"{parked.kind} ({parked.event_id}), entry {parked.seq}: {parked.service} parked it"
    shown = content[:_LONGEST_CONTENT] or "The log no longer keeps what it held."
    return f"{says}, as {parked.error or 'it could not be taken'}.", shown


def _scope_of(said: FormSaid) -> tuple[FreezeScope, str]:
    scope = FreezeScope(said.choice("scope", _SCOPES))
    key = said.text("key")
    if (scope is FreezeScope.SYSTEM) is bool(key):
        expected = "nothing" if scope is FreezeScope.SYSTEM else f"which {scope.value}"
        raise refused_input(
            InputProblem(field="key", expected=expected, found=repr(key[:40]) if key else "nothing")
        )
    return scope, key


def _where(scope: FreezeScope, key: str) -> str:
    return "anybody" if scope is FreezeScope.SYSTEM else f"{scope.value} {key}"


def _freeze(freeze: Freeze) -> str:
    why = f", {freeze.detail}" if freeze.detail else ""
    return f"{_where(freeze.scope, freeze.key)} ({freeze.reason.value}{why}), {freeze.freeze_id}"
