"""A cloud that is called only while the ledger is ours: few clouds refuse a former owner themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudProvider,
    Grant,
    Instance,
    LaunchRequest,
    Ledger,
    Owner,
)
from spotline.contracts.errors import ProviderUnavailable, UnknownOutcome

# Time-outs and lost connections are `OSError`s, too.
_BROKEN_OFF = (OSError, EOFError)


class FencedCloud:
    """Implements `CloudProvider`: reads the ledger's epoch before each call that changes anything.

    A call that breaks off, by a time-out or a lost connection, is one that the port names: of a
    launch nobody knows the outcome, everything else is asked again.

    Raises
    ------
    OwnerFenced
        A newer epoch has taken over the ledger; the cloud was not called.
    """

    def __init__(self, cloud: CloudProvider, ledger: Ledger) -> None:
        self._cloud, self._ledger = cloud, ledger

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice and the loss that the cloud guarantees; 0 if none."""
        return self._cloud.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch, as the cloud does; a call that broke off may have launched."""
        await self._ledger.check_epoch()
        try:
            return await self._cloud.launch(request)
        except _BROKEN_OFF as error:
            raise UnknownOutcome("the cloud", request.token, said_of(error)) from error

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of instances, as the cloud does."""
        await self._ledger.check_epoch()
        with _unavailable("terminate"):
            await self._cloud.terminate(owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What the cloud shows; reading needs no fence."""
        with _unavailable("list"):
            return await self._cloud.list(owner_name)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Take what the cloud has to tell: what a former owner took, the new one never gets."""
        await self._ledger.check_epoch()
        with _unavailable("events"):
            return await self._cloud.events(token, at)

    async def pushed(self) -> None:
        """Wait, as the cloud does."""
        with _unavailable("pushed"):
            await self._cloud.pushed()


def said_of(error: BaseException) -> str:
    """What an error says, with its class: a time-out says nothing itself."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def _unavailable(call: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN_OFF as error:
        raise ProviderUnavailable(f"the cloud broke off {call}: {said_of(error)}") from error
