"""An account in which a certification may be tried: instances by token, seen by every process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudEventKind,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Refusal,
)
from spotline.contracts.errors import ProviderUnavailable, UnknownOutcome
from spotline.domain.events.capacity import RefusalClass


class TrialAccount:
    """What AWS holds; `opened` opens the adapter on it, as a trial does.

    `shown_after` looks pass before a launch is shown; `stuck` instances never end. Where `answers` is
    false, nobody hears what a launch did; before one, `answer_after` is awaited between the
    launch and its answer. Processes named in `blind_to` have lost their rights: they are shown
    nothing, as an adapter is that never saw anything.
    """

    def __init__(self, *, shown_after: int = 0) -> None:
        self.instances: dict[str, Instance] = {}
        self.looks: dict[str, int] = {}
        self.shown_after = shown_after
        self.refusal: Refusal | None = None
        self.forgets_tokens = False
        self.answers_all = False
        self.answers = True
        self.stuck = False
        self.silent = 0
        self.blind_to: tuple[str, ...] = ()
        self.noticed: list[str] = []
        self.open = 0
        self.launched = asyncio.Event()
        self.answer_after: Callable[[], Awaitable[None]] | None = None

    def opened(self, name: str, losing: str) -> TrialProcess:
        self.open += 1
        return TrialProcess(self, losing, blind=name in self.blind_to)

    @property
    def alive(self) -> list[str]:
        return [
            each.instance_id
            for each in self.instances.values()
            if each.state is not InstanceState.ENDED
        ]


class TrialProcess:
    """Implements `TrialCloud`."""

    notice_lead_s = 120

    def __init__(self, account: TrialAccount, losing: str, *, blind: bool) -> None:
        self._account, self._losing, self._blind = account, losing, blind

    async def launch(self, request: LaunchRequest) -> Grant:
        account = self._account
        if account.refusal is not None:
            return Grant(instances=(), refusal=account.refusal)
        known = [each for each in account.instances.values() if each.token == request.token]
        if not known or account.forgets_tokens:
            instance = Instance(
                instance_id=f"i-{len(account.instances)}",
                token=request.token,
                job_id=request.job_id,
                tenant=request.tenant,
                quota_pool=request.quota_pool,
                offering_id=request.offering_id,
                capacity_type=request.capacity_type,
                ready_ns=request.at.ts_ns,
            )
            account.instances[instance.instance_id] = instance
            known = [instance]
            account.launched.set()
        if account.answer_after is not None:
            await account.answer_after()
        if not account.answers:
            await asyncio.Event().wait()
        if self._losing and not account.answers_all:
            self._losing = ""
            raise UnknownOutcome("aws", request.token, "dropped")
        return Grant(instances=tuple(known[:1]))

    async def terminate(self, owner, instance_ids) -> None:
        if self._account.stuck:
            return
        for instance_id in instance_ids:
            instance = self._account.instances[instance_id]
            ended = replace(instance, state=InstanceState.ENDED)
            self._account.instances[instance_id] = ended

    async def list(self, owner_name: str):
        account = self._account
        if account.silent:
            account.silent -= 1
            raise ProviderUnavailable("aws does not answer")
        if self._blind:
            return ()
        shown = []
        for instance in account.instances.values():
            looks = account.looks.get(instance.instance_id, 0)
            account.looks[instance.instance_id] = looks + 1
            if looks >= account.shown_after:
                shown.append(instance)
        return tuple(shown)

    async def events(self, token, at):
        account = self._account
        taken, account.noticed = account.noticed, []
        events = []
        for instance_id in taken:
            ended = replace(account.instances[instance_id], state=InstanceState.ENDED)
            events.append(
                CloudEvent(
                    event_id=f"notice-{instance_id}",
                    instance=account.instances[instance_id],
                    kind=CloudEventKind.NOTICE,
                    state=InstanceState.RUNNING,
                    at_ns=at.ts_ns,
                    lead_s=118,
                )
            )
            account.instances[instance_id] = ended
        return tuple(events)

    async def pushed(self) -> None:
        raise AssertionError("a trial looks by itself")

    def close(self) -> None:
        self._account.open -= 1


NO_CAPACITY = Refusal(refusal_class=RefusalClass.NO_CAPACITY, detail="none left")
