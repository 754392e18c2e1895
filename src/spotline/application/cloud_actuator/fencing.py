"""A cloud that is called only while the ledger is ours: few clouds refuse a former owner themselves."""

from __future__ import annotations

from collections.abc import Sequence

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


class FencedCloud:
    """Implements `CloudProvider`: reads the ledger's epoch before each call that changes anything.

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
        """Launch, as the cloud does."""
        await self._ledger.check_epoch()
        return await self._cloud.launch(request)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of instances, as the cloud does."""
        await self._ledger.check_epoch()
        await self._cloud.terminate(owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What the cloud shows; reading needs no fence."""
        return await self._cloud.list(owner_name)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Take what the cloud has to tell: what a former owner took, the new one never gets."""
        await self._ledger.check_epoch()
        return await self._cloud.events(token, at)

    async def pushed(self) -> None:
        """Wait, as the cloud does."""
        await self._cloud.pushed()
