"""The whole examination: every account, region and offering of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.call_back import check_call_back
from spotline.adapters.clouds.aws.doctor.costs import check_costs
from spotline.adapters.clouds.aws.doctor.identity import check_identity, check_spot_role
from spotline.adapters.clouds.aws.doctor.looking import Unread, sites_of, unread
from spotline.adapters.clouds.aws.doctor.places import (
    TypeFacts,
    check_types,
    check_zones,
    type_facts,
)
from spotline.adapters.clouds.aws.doctor.queues import check_queue, send_test_message
from spotline.adapters.clouds.aws.doctor.quotas import check_quotas
from spotline.adapters.clouds.aws.doctor.rights import (
    check_event_history,
    check_rights,
    doctor_request,
)
from spotline.adapters.clouds.aws.doctor.templates import check_template
from spotline.adapters.clouds.aws.feeds.feed import FeedWall
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.feeds.placement_scores import PlacementScores, ScoredConfiguration
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.adapters.clouds.aws.tags import tags_of
from spotline.application.cloud_checks import (
    CallBack,
    CheckOutcome,
    CloudCheck,
    Examination,
    failed,
    left_open,
    ok,
    warning,
)
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.offering import CapacityType


async def examine(
    reader: AwsReader, settings: AwsSettings, wall: FeedWall, plan: Examination
) -> list[CloudCheck]:
    """Look at everything; what cannot be looked at is a check itself.

    Nothing is changed, bought or launched but by `call_back` and `test_message`.
    """
    checks: list[CloudCheck] = []
    closed: set[str] = set()
    regions = {site.account: site.region for site, _ in reversed(list(sites_of(settings)))}
    for account in settings.accounts:
        region = regions.get(account.name)
        if region is None:
            checks.append(left_open("credentials", account.name, "no offering is of this account"))
            continue
        found = await check_identity(reader, account, region, wall)
        checks += found
        if any(check.outcome is CheckOutcome.FAILED for check in found):
            closed.add(account.name)
            continue
        checks += await check_spot_role(reader, account)
    queues = {account.name: account.queues for account in settings.accounts}
    for site, offerings in sites_of(settings):
        # Without credentials everything else would only say so once more.
        if site.account not in closed:
            url = queues[site.account].get(site.region, "")
            checks += await _site(reader, site, offerings, url, plan)
    checks += await _prices(reader, settings, closed, wall.now_ns())
    checks += await _advice(reader, settings, closed, plan, wall.now_ns())
    if plan.call_back is not None:
        checks += await _called_back(reader, settings, closed, plan, plan.call_back)
    return checks


async def _site(
    reader: AwsReader, site: AwsPlace, offerings: Sequence[AwsOffering], url: str, plan: Examination
) -> list[CloudCheck]:
    checks = await check_zones(reader, site, offerings)
    facts: Mapping[str, TypeFacts] = {}
    try:
        facts = await type_facts(reader, site, offerings)
        checks += await check_types(reader, site, offerings, facts)
    except Unread as error:
        checks.append(error.check)
    checks += await check_rights(reader, site, offerings[0], plan)
    checks.append(await check_event_history(reader, site))
    for offering in offerings:
        template = await check_template(reader, site, offering, facts)
        checks += template.checks
        checks += await check_costs(reader, site, offering, template, plan.image_gb)
    checks += await check_quotas(reader, site, offerings, facts, plan.wanted)
    checks += await check_queue(reader, site, url)
    if plan.test_message and url:
        checks.append(await send_test_message(reader, site, url, plan.token))
    return checks


async def _prices(
    reader: AwsReader, settings: AwsSettings, closed: set[str], now_ns: int
) -> list[CloudCheck]:
    """Which on-demand price of each offering stands, and by whose word."""
    name = "list price"
    accounts = [account.name for account in settings.accounts if account.name not in closed]
    if not accounts:
        return []
    places = [(offering.region, offering.instance_type) for offering in settings.offerings]
    prices = OnDemandPrices(reader, accounts, places)
    await prices.refresh(now_ns)
    checks = []
    for region, kind in sorted(set(places)):
        where, price = f"{region}/{kind}", prices.price(region, kind)
        if price is None:
            checks.append(
                failed(
                    name,
                    where,
                    "no price is known: the offering is not quoted",
                    "allow pricing:GetProducts, or state the price as an override",
                )
            )
        elif price.as_of_ns:
            checks.append(
                ok(name, where, f"{price.price_micro_usd / 1e6:g} USD an hour, by the price list")
            )
        else:
            checks.append(
                warning(
                    name,
                    where,
                    f"{price.price_micro_usd / 1e6:g} USD an hour, {price.source}",
                    "allow pricing:GetProducts, or state the price as an override",
                )
            )
    return checks


async def _advice(
    reader: AwsReader, settings: AwsSettings, closed: set[str], plan: Examination, now_ns: int
) -> list[CloudCheck]:
    """AWS's placement scores, as advice."""
    name, checks = "placement score", list[CloudCheck]()
    if plan.scores is None:
        return checks
    scores = PlacementScores(reader, plan.scores)
    for site, offerings in sites_of(settings):
        if site.account in closed:
            continue
        for kind in sorted({offering.instance_type for offering in offerings}):
            what = ScoredConfiguration(
                account=site.account, region=site.region, instance_type=kind, instances=plan.wanted
            )
            try:
                found = await scores.scores(what, now_ns)
            except ProviderUnavailable as error:
                checks.append(unread(name, str(site), "ec2", "GetSpotPlacementScores", error))
                continue
            if found is None:
                said = f"{kind}: no more may be asked for today"
                checks.append(left_open(name, str(site), said))
                continue
            told = ", ".join(f"{zone} {score}/10" for zone, score in found.items()) or "none"
            checks.append(ok(name, str(site), f"{plan.wanted} x {kind}: {told} (advice only)"))
    return checks


async def _called_back(
    reader: AwsReader,
    settings: AwsSettings,
    closed: set[str],
    plan: Examination,
    call_back: CallBack,
) -> list[CloudCheck]:
    checks: list[CloudCheck] = []
    for site, offerings in sites_of(settings):
        if site.account not in closed:
            checks += await check_call_back(
                reader,
                site,
                offerings[0],
                call_back,
                f"{plan.token}-{site.region}",
                tags_of(doctor_request(offerings[0], CapacityType.ON_DEMAND, plan)),
            )
    return checks
