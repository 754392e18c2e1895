"""Acme as a cloud: what `CloudProvider` promises, by the calls that Acme has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from docs.clouds.template.errors import AcmeError, AcmeNoAnswer
from docs.clouds.template.parse import event_of, instance_of, tags_of
from docs.clouds.template.settings import AcmeSettings
from docs.clouds.template.store import AcmeStore
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    Grant,
    Instance,
    LaunchRequest,
    Owner,
    Refusal,
)
from spotline.contracts.errors import ProviderUnavailable, Throttled, UnknownOutcome
from spotline.domain.events.capacity import RefusalClass

_RETRY_S = 5.0


class AcmeApi(Protocol):
    """Acme's API; the one class that knows its SDK implements it, with a time limit on each call."""

    async def create(self, key: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create machines, once by `key`; raises `AcmeError`, `AcmeNoAnswer`."""
        ...

    async def machines(self, owner: str) -> Sequence[Mapping[str, Any]]:
        """The machines with that owner's tag, ended ones for a while; errors as `create`."""
        ...

    async def delete(self, machine_ids: Sequence[str]) -> None:
        """Ask for the end of machines; errors as `create`."""
        ...

    async def messages(self) -> Sequence[Mapping[str, Any]]:
        """All that happened to our machines lately; errors as `create`."""
        ...


class AcmeCloud:
    """Implements `CloudProvider`."""

    def __init__(self, path: Path, settings: AcmeSettings, api: AcmeApi) -> None:
        self._settings, self._api = settings, api
        self._store = AcmeStore(path)

    @property
    def notice_lead_s(self) -> int:
        """As Acme guarantees it."""
        return self._settings.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        """Create machines; the token is Acme's idempotency key, so a repeat is the same answer."""
        # Neither the moment nor the epoch: a later process may ask again with the same token.
        tags = {key: value for key, value in tags_of(request).items() if key != "epoch"}
        body = {"count": request.instances, "tags": tags}
        try:
            answer = await self._api.create(request.token, body)
        except AcmeNoAnswer as error:
            raise UnknownOutcome("acme", request.token, str(error)) from error
        except AcmeError as error:
            return Grant(instances=(), refusal=_refusal(error))
        refused = answer.get("refused")
        return Grant(
            instances=tuple(map(instance_of, answer["machines"])),
            refusal=_refusal(AcmeError(**refused)) if refused else None,
        )

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of those that carry the owner's tag: Acme itself would end any."""
        ours = {instance.instance_id for instance in await self.list(owner.name)}
        ids = [instance_id for instance_id in instance_ids if instance_id in ours]
        if ids:
            await _asked(self._api.delete(ids))

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What Acme shows, in launch order."""
        rows = await _asked(self._api.machines(owner_name))
        return tuple(map(instance_of, sorted(rows, key=lambda row: row["number"])))

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """What came since the last taking; the same for the same token, in any process."""
        said = self._store.said(token)
        if said is None:
            said = self._store.untold(list(await _asked(self._api.messages())))
            self._store.take(token, said)
        return tuple(map(event_of, said))

    async def pushed(self) -> None:
        """Look now and then: Acme pushes nothing."""
        while True:
            if self._store.untold(list(await _asked(self._api.messages()))):
                return
            await asyncio.sleep(self._settings.look_s)

    def close(self) -> None:
        """Let go of the file; machines live on."""
        self._store.close()


def _refusal(error: AcmeError) -> Refusal:
    return Refusal(
        refusal_class=error.refusal_class,
        detail=str(error),
        retry_after_s=error.retry_after_s,
    )


async def _asked(call: Any) -> Any:
    """An answer, or the error of the port: call again."""
    try:
        return await call
    except AcmeError as error:
        if error.refusal_class is RefusalClass.THROTTLED:
            raise Throttled("acme", error.retry_after_s or _RETRY_S) from error
        raise ProviderUnavailable(f"acme: {error}") from error
    except AcmeNoAnswer as error:
        raise ProviderUnavailable(f"acme: {error}") from error
