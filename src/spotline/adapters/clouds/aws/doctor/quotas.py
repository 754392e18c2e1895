"""Quotas of vCPUs, and how many instances of an offering they leave room for.

Which quota a family counts in, and its code: https://docs.aws.amazon.com/ec2/latest/instancetypes/
ec2-instance-quotas.html, and skypilot-org/skypilot-catalog, catalogs/v5/aws/instance_quota_mapping.csv.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import AwsSite, Look, Unread
from spotline.adapters.clouds.aws.doctor.places import TypeFacts
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFamily:
    """Families of types that share a quota for spot and one for on-demand."""

    name: str
    families: re.Pattern[str]
    spot: str
    on_demand: str


QUOTA_FAMILIES = (
    QuotaFamily(
        name="P5", families=re.compile(r"p5\w*"), spot="L-C4BD4855", on_demand="L-417A185B"
    ),
    QuotaFamily(
        name="P4, P3 and P2",
        families=re.compile(r"p[234]\w*"),
        spot="L-7212CCBC",
        on_demand="L-417A185B",
    ),
    QuotaFamily(
        name="G and VT",
        families=re.compile(r"(g|gr|vt)\d\w*"),
        spot="L-3819A6DF",
        on_demand="L-DB2E81BA",
    ),
    QuotaFamily(
        name="Standard",
        families=re.compile(r"[acdhimrtz]\d\w*"),
        spot="L-34B43A08",
        on_demand="L-1216C47A",
    ),
)


def quota_family(instance_type: str) -> QuotaFamily | None:
    """The quotas that a type counts in, None where they are not known here."""
    family = instance_type.partition(".")[0]
    return next(
        (known for known in QUOTA_FAMILIES if known.families.fullmatch(family)),
        None,
    )


async def check_quotas(
    reader: AwsReader,
    site: AwsSite,
    offerings: Iterable[AwsOffering],
    facts: Mapping[str, TypeFacts],
    wanted: int,
) -> list[CloudCheck]:
    """Whether `wanted` instances of each type fit the quota, spot and on demand; what to ask for."""
    name, by_quota, checks = "quota", dict[tuple[str, str], set[str]](), list[CloudCheck]()
    for kind in sorted({offering.instance_type for offering in offerings}):
        known = quota_family(kind)
        if known is None:
            checks.append(
                left_open(
                    name,
                    str(site),
                    f"which quota {kind} counts in is not known here",
                    "look it up in the console under Service Quotas, Amazon EC2",
                )
            )
            continue
        by_quota.setdefault((known.spot, f"spot {known.name}"), set()).add(kind)
        by_quota.setdefault((known.on_demand, f"on-demand {known.name}"), set()).add(kind)
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
            "service-quotas", "GetServiceQuota", ServiceCode="ec2", QuotaCode=code
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
