"""A certification as it is opened on AWS: which offering, at which price, by which processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from spotline.adapters.clouds.aws.api import AwsApi, BotoApi
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.calls import BILLING, INTERRUPTING
from spotline.adapters.clouds.aws.certify.exports import read_export, reconciled
from spotline.adapters.clouds.aws.certify.losing import LosingApi
from spotline.adapters.clouds.aws.certify.record import read_held
from spotline.adapters.clouds.aws.certify.trial import AwsTrial, Opened, TrialCloud, TrialPlan
from spotline.adapters.clouds.aws.clock import WallMarketClock
from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.feeds.wall import SystemWall
from spotline.adapters.clouds.aws.reader import ApiReader
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.application.cloud_checks import CertifyPlan, ReconciledLine
from spotline.contracts.errors import ConfigError


@asynccontextmanager
async def opened_trial(
    settings: AwsSettings, plan: CertifyPlan, folder: Path
) -> AsyncIterator[AwsTrial]:
    """Open a certification; `folder` is for what its processes keep.

    Raises
    ------
    ConfigError
        There is no such offering, or no price of it is known, so that nothing could be judged.
    """
    reader, wall = ApiReader(settings, {**BILLING, **INTERRUPTING}), SystemWall()
    api = BotoApi(settings)
    try:
        offering, price = await chosen_offering(settings, plan, reader, wall.now_ns())
        tried = _settings_of(settings, offering, with_queues=bool(plan.interruption_role))
        accounts = {account.name: account.account_id for account in settings.accounts}
        yield AwsTrial(
            TrialPlan(
                offering=offering,
                token=plan.token,
                price_micro_usd=price,
                most_micro_usd=plan.most_micro_usd,
                account_id=accounts[offering.account],
                installation_id=plan.installation_id,
                lease_s=plan.lease_s,
                interruption_role=plan.interruption_role,
            ),
            processes_of(tried, folder, api),
            reader,
            wall,
            settings.clock,
        )
    finally:
        api.close()
        reader.close()


def processes_of(settings: AwsSettings, folder: Path, api: AwsApi) -> Opened:
    """Opens the actuator's adapter as processes that know nothing of each other would.

    They share the connections of `api`: to make clients takes longer than most of what is tried.
    """

    def opened(name: str, losing: str) -> TrialCloud:
        path, clock = folder / f"{name}.sqlite", WallMarketClock(settings.clock)
        return AwsCloud(path, settings, LosingApi(api, losing), clock)

    return opened


def reconciled_files(report: Path, export: Path) -> Sequence[ReconciledLine]:
    """The instances of a report beside the lines of the provider's export.

    Raises
    ------
    ContractError
        One of them is no such file; names it.
    OSError
        One of them cannot be read.
    """
    return reconciled(read_held(report.read_text("utf-8"), str(report)), read_export(export))


async def chosen_offering(
    settings: AwsSettings, plan: CertifyPlan, reader: AwsReader, now_ns: int
) -> tuple[AwsOffering, int]:
    """The offering that is tried and its list price in micro-USD: the cheapest where none is named.

    Raises
    ------
    ConfigError
        There is no such offering, or no price of any is known.
    """
    offerings = [
        replace(each, instance_type=plan.instance_type, gpus_per_instance=1)
        if plan.instance_type
        else each
        for each in settings.offerings
        # What is reserved is paid for whether it is tried or not: it shows nothing of a bill.
        if plan.offering_id in ("", each.offering_id) and each.reservation is None
    ]
    if not offerings:
        known = ", ".join(each.offering_id for each in settings.offerings) or "none"
        raise ConfigError(
            f"--offering: expected one of the offerings ({known}), found {plan.offering_id!r}"
        )
    prices = OnDemandPrices(
        reader,
        [account.name for account in settings.accounts],
        [(each.region, each.instance_type) for each in offerings],
    )
    await prices.refresh(now_ns)
    priced = [
        (listed.price_micro_usd, each.offering_id, each)
        for each in offerings
        if (listed := prices.price(each.region, each.instance_type)) is not None
    ]
    if not priced:
        raise ConfigError(
            "no list price is known of any offering, so that nothing can be judged ahead: allow "
            "pricing:GetProducts"
        )
    price, _, offering = min(priced, key=lambda each: each[:2])
    return offering, price


def _settings_of(settings: AwsSettings, offering: AwsOffering, *, with_queues: bool) -> AwsSettings:
    """Only what is tried. Another reader of a queue would take notices from an installation."""
    accounts = tuple(
        account if with_queues else replace(account, queues={})
        for account in settings.accounts
        if account.name == offering.account
    )
    return replace(settings, accounts=accounts, offerings=(offering,))
