"""Quotas of vCPUs, and how many instances of an offering they leave room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread
from spotline.adapters.clouds.aws.doctor.places import TypeFacts
from spotline.adapters.clouds.aws.quotas import SERVICE_CODE, code_of, family_of
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning
from spotline.domain.market.offering import CapacityType

_BOUGHT = {CapacityType.SPOT: "spot", CapacityType.ON_DEMAND: "on-demand"}


async def check_quotas(
    reader: AwsReader,
    site: AwsPlace,
    offerings: Iterable[AwsOffering],
    facts: Mapping[str, TypeFacts],
    wanted: int,
) -> list[CloudCheck]:
    """Whether `wanted` instances of each type fit the quota, spot and on demand; what to ask for."""
    name, by_quota, checks = "quota", dict[tuple[str, str], set[str]](), list[CloudCheck]()
    for kind in sorted({offering.instance_type for offering in offerings}):
        family = family_of(kind)
        if not family:
            checks.append(
                left_open(
                    name,
                    str(site),
                    f"which quota {kind} counts in is not known here",
                    "look it up in the console under Service Quotas, Amazon EC2",
                )
            )
            continue
        for bought, what in _BOUGHT.items():
            by_quota.setdefault((code_of(kind, bought), f"{what} {family}"), set()).add(kind)
    for (code, what), kinds in sorted(by_quota.items()):
        checks += await _quota(Look(reader, name, site), code, what, _needs(kinds, facts), wanted)
    return checks


def _needs(kinds: Iterable[str], facts: Mapping[str, TypeFacts]) -> list[tuple[str, int]]:
    """The types of a quota with the vCPUs of one instance, where they are known."""
    return [(kind, facts[kind].vcpus) for kind in sorted(kinds) if kind in facts]


async def _quota(
    look: Look, code: str, what: str, needs: Sequence[tuple[str, int]], wanted: int
) -> list[CloudCheck]:
    where = str(look.site)
    try:
        answer = await look.ask(
            "service-quotas", "GetServiceQuota", ServiceCode=SERVICE_CODE, QuotaCode=code
        )
    except Unread as error:
        return [error.check]
    vcpus = int(answer.get("Quota", {}).get("Value", 0))
    checks = []
    for kind, each in needs:
        if not each:
            continue
        fit, need = vcpus // each, wanted * each
        said = f"{what} ({code}): {vcpus} vCPUs, room for {fit} x {kind} of {each}"
        step = (
            f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code "
            f"{code} --desired-value {need} --region {look.site.region}"
        )
        if fit == 0:
            checks.append(failed(look.name, where, said, step))
        elif fit < wanted:
            checks.append(warning(look.name, where, f"{said}, {wanted} are wanted", step))
        else:
            checks.append(ok(look.name, where, said))
    return checks
