"""The last gate before a cloud that is paid for: nothing is launched in an account that is not live.

Selector and actuator stop buying by the log's freezes before; this holds where those fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.cloud_actuator.log_fold import LogView
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudProvider,
    Grant,
    Instance,
    LaunchRequest,
    Owner,
    Refusal,
)
from spotline.contracts.errors import ConfigError
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.modes import LIVE_FROM_THE_START, Mode, StatedModes


class LiveGate:
    """Which accounts the log lets us act on, as it was said last.

    Parameters
    ----------
    modes
        How this process acts, and what accounts begin in that nobody spoke of.
    """

    def __init__(self, modes: StatedModes = LIVE_FROM_THE_START) -> None:
        self._stated = modes
        self._modes: Mapping[str, Mode] = {}
        self._accounts: Mapping[str, str] = {}
        self._has_acted = False

    def note(self, log: LogView) -> None:
        """Go by what the log says from now on.

        Raises
        ------
        ConfigError
            The log is on paper and this process is not, or the other way round.
        """
        run = self._stated.run
        if log.mode.on_paper is not run.on_paper:
            raise ConfigError(
                f"mode: expected {log.mode.value}, as the log is, found {run.value}: give the mode "
                "that the store began in, or another store"
            )
        self._modes, self._accounts = log.account_modes, log.accounts
        if Mode.LIVE in self._modes.values():
            self._has_acted = True

    def note_acted(self) -> None:
        """Some account was live, as the ledger holds what was launched."""
        self._has_acted = True

    @property
    def may_end(self) -> bool:
        """Whether a cloud may be asked to end anything: only where we may ever have launched."""
        stated = self._stated
        return stated.run.on_paper or stated.any_live or self._has_acted

    def why_not(self, offering_id: str) -> str:
        """Why nothing may be launched there, in one line; empty where it may."""
        if self._stated.run.on_paper:
            return ""
        account = self._accounts.get(offering_id, "")
        # Of an offering that no market named nobody knows the account: it is in none that is live.
        mode = self._modes.get(account) or self._stated.of(account)
        if mode is Mode.LIVE:
            return ""
        return (
            f"account {account or offering_id!r} is in mode {mode.value}: "
            f"spotline promote {account or 'PROVIDER/ACCOUNT'} --to live --reason WHY"
        )


class GatedCloud:
    """Implements `CloudProvider`: launches and ends only where the gate is open."""

    def __init__(self, cloud: CloudProvider, gate: LiveGate) -> None:
        self._cloud, self._gate = cloud, gate

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice and the loss that the cloud guarantees; 0 if none."""
        return self._cloud.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch, as the cloud does; refused by us where the account is not live."""
        why_not = self._gate.why_not(request.offering_id)
        if why_not:
            refusal = Refusal(refusal_class=RefusalClass.LIMIT, detail=why_not)
            return Grant(instances=(), refusal=refusal)
        return await self._cloud.launch(request)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of instances, where anything can be ours.

        In an account that was live and no longer is, what it holds is still released.
        """
        if self._gate.may_end:
            await self._cloud.terminate(owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What the cloud shows: looking costs nothing."""
        return await self._cloud.list(owner_name)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Take what the cloud has to tell."""
        return await self._cloud.events(token, at)

    async def pushed(self) -> None:
        """Wait, as the cloud does."""
        await self._cloud.pushed()
