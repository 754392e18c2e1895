"""Read AWS's part of `spotline.yaml`, `clouds.aws` (docs/configuration.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from spotline.adapters.clouds.aws.settings import (
    MOST_QUEUE_WAIT_S,
    AwsAccount,
    AwsOffering,
    AwsSavingsPlan,
    AwsSettings,
    is_loopback,
    with_savings_plans,
)
from spotline.adapters.files.fields import (
    Count,
    Name,
    Part,
    Positive,
    Stated,
    TimeNs,
    Usd,
    Whole,
    expected,
    read_part,
)
from spotline.adapters.files.mistake import BadFile, Mistake
from spotline.adapters.files.spotline_yaml.secret_values import Secret
from spotline.adapters.market.instance_types import INSTANCE_TYPES
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.modes import Mode

_DIGITS = 'the 12 digits of an account, in quotes: "012345678901"'
# As in `us-east-1a`: which zone that is differs between accounts.
_ZONE_NAME = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+[a-z]")
_WHERE = "clouds.aws"


def _account_id(value: Any) -> Any:
    # Without quotes YAML reads leading zeros as another number.
    if not isinstance(value, str) or not re.fullmatch(r"\d{12}", value):
        raise expected(_DIGITS)
    return value


def _matching(pattern: str, what: str) -> BeforeValidator:
    compiled = re.compile(pattern)

    def check(value: Any) -> Any:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        raise expected(what)

    return BeforeValidator(check)


AccountId = Annotated[str, BeforeValidator(_account_id)]
RoleArn = Annotated[
    str,
    _matching(r"arn:[a-z-]+:iam::\d{12}:role/.+", "arn:aws:iam::ACCOUNT:role/NAME"),
]
Template = Annotated[str, _matching(r"lt-[0-9a-f]+", "the id of a launch template, lt-...")]
TemplateVersion = Annotated[
    str, _matching(r"\d+|\$Default|\$Latest", 'a number in quotes, "$Default" or "$Latest"')
]
Subnet = Annotated[str, _matching(r"subnet-[0-9a-f]+", "the id of a subnet, subnet-...")]
CapacityReservation = Annotated[
    str, _matching(r"cr-[0-9a-f]+", "the id of a capacity reservation, cr-...")
]
Url = Annotated[str, _matching(r"https?://[^\s@]+", "a URL, http(s)://... without a password")]


class _AccountPart(Part):
    name: Name
    account_id: AccountId
    mode: Literal["observe", "shadow", "live"] = "observe"
    role_arn: RoleArn | None = None
    external_id: Secret | None = None
    queues: dict[Name, Url] = Field(default_factory=dict)


class _OfferingsPart(Part):
    """One offering, or all of some zones and instance types."""

    account: Name
    region: Name
    zone: Name | None = None
    zones: Annotated[tuple[Name, ...] | None, Field(min_length=1)] = None
    instance_type: Name | None = None
    instance_types: Annotated[tuple[Name, ...] | None, Field(min_length=1)] = None
    gpu_model: Name | None = None
    gpus_per_instance: Whole | None = None
    launch_template_id: Template | None = None
    launch_templates: dict[Name, Template] | None = None
    launch_template_version: TemplateVersion = "$Default"
    subnet_id: Subnet | None = None
    subnets: dict[Name, Subnet] | None = None
    placement_group: Name | None = None
    placement_groups: dict[Name, Name] | None = None
    capacity_reservation_id: CapacityReservation | None = None
    capacity_block: Annotated[bool, Field(strict=True)] = False
    reserved_instances: Whole | None = None
    reserved_until: TimeNs | None = None
    reserved_usd_per_hour: Usd | None = None
    disk_gb: Whole | None = None
    disk_usd_per_gb_month: Usd | None = None


class _SavingsPlanPart(Part):
    id: Name
    usd_per_hour: Positive
    usd_per_instance_hour: Annotated[dict[Name, Positive], Field(min_length=1)]
    accounts: Annotated[tuple[Name, ...] | None, Field(min_length=1)] = None
    regions: Annotated[tuple[Name, ...] | None, Field(min_length=1)] = None
    until: TimeNs | None = None

    def plan(self) -> AwsSavingsPlan:
        """The plan; `ValueError` where a price is above its money."""
        return AwsSavingsPlan(
            plan_id=self.id,
            usd_per_hour=self.usd_per_hour,
            usd_per_instance_hour=self.usd_per_instance_hour,
            accounts=self.accounts or (),
            regions=self.regions or (),
            until_ns=self.until or 0,
        )


class _ClockPart(Part):
    wall_ns: Annotated[int, Field(ge=0)] = 0
    market_ns: Annotated[int, Field(ge=0)] = 0
    market_s_per_s: Positive = 1.0


class _AwsPart(Part):
    accounts: Annotated[tuple[_AccountPart, ...], Field(min_length=1)]
    offerings: Annotated[tuple[_OfferingsPart, ...], Field(min_length=1)]
    savings_plans: tuple[_SavingsPlanPart, ...] = ()
    placement_scores_for: Count = 0
    endpoint_url: Url | None = None
    clock: _ClockPart | None = None
    connect_timeout_s: Positive = 5.0
    read_timeout_s: Positive = 30.0
    queue_wait_s: Annotated[Count, Field(le=MOST_QUEUE_WAIT_S)] = MOST_QUEUE_WAIT_S
    identity_certificates: Stated | None = None


def read_section(section: Mapping[str, Any]) -> AwsSettings:
    """Read accounts and offerings; selectors become an offering for each zone and instance type.

    Raises
    ------
    BadFile
        Fields that are not as expected, each by its path below `clouds.aws`.
    """
    part = read_part(_AwsPart, dict(section), where=_WHERE)
    mistakes = [*_of_rehearsals(part), *_of_accounts(part)]
    offerings: dict[str, AwsOffering] = {}
    for index, entry in enumerate(part.offerings):
        field = f"offerings[{index}]"
        wrong = [*_of_entry(field, entry, part)]
        mistakes += wrong
        for offering in () if wrong else _expanded(entry):
            if offering.offering_id in offerings:
                mistakes.append(
                    Mistake(
                        field=field,
                        expected="each account, zone and instance type once",
                        found=f"{offering.offering_id} again",
                    )
                )
            offerings[offering.offering_id] = offering
    plans, wrong_plans = _plans(part, tuple(offerings.values()))
    mistakes += wrong_plans
    if mistakes:
        raise BadFile(_WHERE, mistakes)
    clock = part.clock or _ClockPart()
    return AwsSettings(
        accounts=tuple(_account(account) for account in part.accounts),
        offerings=with_savings_plans(tuple(offerings.values()), plans),
        savings_plans=plans,
        placement_scores_for=part.placement_scores_for,
        endpoint_url=part.endpoint_url or "",
        clock=MarketClock(**clock.model_dump()),
        connect_timeout_s=part.connect_timeout_s,
        read_timeout_s=part.read_timeout_s,
        queue_wait_s=part.queue_wait_s,
        identity_certificates=part.identity_certificates or "",
    )


def _account(part: _AccountPart) -> AwsAccount:
    return AwsAccount(
        name=part.name,
        account_id=part.account_id,
        mode=Mode(part.mode),
        role_arn=part.role_arn or "",
        external_id=part.external_id or "",
        queues=part.queues,
    )


def _expanded(entry: _OfferingsPart) -> Iterator[AwsOffering]:
    for zone in _both(entry.zone, entry.zones):
        for instance_type in _both(entry.instance_type, entry.instance_types):
            known = INSTANCE_TYPES.get(instance_type)
            gpus = entry.gpus_per_instance or (known.gpus if known else 0)
            yield AwsOffering(
                account=entry.account,
                region=entry.region,
                zone=zone,
                instance_type=instance_type,
                gpu_model=entry.gpu_model or (known.gpu_model if known else ""),
                gpus_per_instance=gpus,
                launch_template_id=_of(
                    entry.launch_template_id, entry.launch_templates, instance_type
                ),
                launch_template_version=entry.launch_template_version,
                subnet_id=_of(entry.subnet_id, entry.subnets, zone),
                placement_group=_of(entry.placement_group, entry.placement_groups, zone),
                capacity_reservation_id=entry.capacity_reservation_id or "",
                capacity_block=entry.capacity_block,
                reserved_instances=entry.reserved_instances or 0,
                reserved_until_ns=entry.reserved_until or 0,
                reserved_usd_per_hour=entry.reserved_usd_per_hour or 0.0,
                disk_gb=entry.disk_gb or 0,
                disk_usd_per_gb_month=entry.disk_usd_per_gb_month or 0.0,
            )


def _plans(
    part: _AwsPart, offerings: Sequence[AwsOffering]
) -> tuple[tuple[AwsSavingsPlan, ...], list[Mistake]]:
    plans: list[AwsSavingsPlan] = []
    mistakes: list[Mistake] = []
    for index, entry in enumerate(part.savings_plans):
        field = f"savings_plans[{index}]"
        try:
            plan = entry.plan()
        except ValueError as error:
            named, _, said = str(error).partition(" must be ")
            expected, _, found = said.partition(", was ")
            inside = named.partition("].")[2]
            mistakes.append(Mistake(field=f"{field}.{inside}", expected=expected, found=found))
            continue
        if entry.id in {each.plan_id for each in plans}:
            mistakes.append(
                Mistake(field=f"{field}.id", expected="another for each plan", found=repr(entry.id))
            )
        if not any(map(plan.covers, offerings)):
            known = ", ".join(sorted({each.instance_type for each in offerings})) or "none"
            mistakes.append(
                Mistake(
                    field=field,
                    expected=f"a plan that covers one of the offerings ({known})",
                    found=", ".join(sorted(plan.usd_per_instance_hour)),
                )
            )
        plans.append(plan)
    return tuple(plans), mistakes


def _both(one: str | None, several: tuple[str, ...] | None) -> tuple[str, ...]:
    return several or ((one,) if one else ())


def _of(one: str | None, by_name: Mapping[str, str] | None, name: str) -> str:
    return one or (by_name or {}).get(name, "")


def _of_rehearsals(part: _AwsPart) -> Iterator[Mistake]:
    rehearsed = is_loopback(part.endpoint_url or "")
    if part.clock is not None and not rehearsed:
        yield Mistake(
            field="clock",
            expected="no clock beside AWS itself, whose time is wall time; a rehearsal's has its "
            "endpoint_url on this machine",
            found="one",
        )
    if part.endpoint_url and part.endpoint_url.startswith("http:") and not rehearsed:
        yield Mistake(
            field="endpoint_url",
            expected="https://..., or a rehearsal on this machine (http://127.0.0.1:PORT)",
            found=repr(part.endpoint_url),
        )
    for index, account in enumerate(part.accounts):
        if account.mode == Mode.LIVE.value and not rehearsed:
            yield Mistake(
                field=f"accounts[{index}].mode",
                expected="observe or shadow: an account goes live by a command that is audited, "
                f"spotline promote aws/{account.name} --to live --reason WHY",
                found="'live'",
            )


def _of_accounts(part: _AwsPart) -> Iterator[Mistake]:
    for key in ("name", "account_id"):
        seen: dict[str, int] = {}
        for index, account in enumerate(part.accounts):
            value = getattr(account, key)
            if value in seen:
                yield Mistake(
                    field=f"accounts[{index}].{key}",
                    expected=f"another one than accounts[{seen[value]}] has",
                    found=repr(value),
                )
            seen.setdefault(value, index)
    for index, account in enumerate(part.accounts):
        if account.external_id and not account.role_arn:
            yield Mistake(
                field=f"accounts[{index}].role_arn",
                expected="a role, as its owner demands an external_id with it",
                found="none",
            )


def _of_entry(field: str, entry: _OfferingsPart, part: _AwsPart) -> Iterator[Mistake]:
    names = [account.name for account in part.accounts]
    if entry.account not in names:
        yield Mistake(
            field=f"{field}.account",
            expected=f"an account of the section, one of {', '.join(names)}",
            found=repr(entry.account),
        )
    yield from _one_of(field, entry, "zone", "zones")
    yield from _one_of(field, entry, "instance_type", "instance_types")
    yield from _one_of(field, entry, "launch_template_id", "launch_templates")
    yield from _at_most_one(field, entry, "subnet_id", "subnets")
    yield from _at_most_one(field, entry, "placement_group", "placement_groups")
    zones = _both(entry.zone, entry.zones)
    types = _both(entry.instance_type, entry.instance_types)
    if not is_loopback(part.endpoint_url or ""):
        yield from _of_zones(field, entry, zones)
    if entry.launch_templates is not None:
        for name in types:
            if name not in entry.launch_templates:
                yield Mistake(
                    field=f"{field}.launch_templates.{name}",
                    expected="a launch template of each instance type",
                    found="nothing",
                )
    yield from _unknown_keys(field, "launch_templates", entry.launch_templates, types)
    yield from _unknown_keys(field, "subnets", entry.subnets, zones)
    yield from _unknown_keys(field, "placement_groups", entry.placement_groups, zones)
    if entry.capacity_reservation_id and len(zones) * len(types) > 1:
        yield Mistake(
            field=f"{field}.capacity_reservation_id",
            expected="one zone and one instance type, as a reservation has",
            found=f"{len(zones) * len(types)} offerings",
        )
    yield from _of_commitment(field, entry)
    yield from _of_disks(field, entry)
    yield from _of_gpus(field, entry, types)


def _of_commitment(field: str, entry: _OfferingsPart) -> Iterator[Mistake]:
    stated = ("capacity_block", "reserved_instances", "reserved_until", "reserved_usd_per_hour")
    named = [name for name in stated if getattr(entry, name)]
    if named and not entry.capacity_reservation_id:
        yield Mistake(
            field=f"{field}.capacity_reservation_id",
            expected=f"the reservation that {named[0]} is said of, cr-...",
            found="nothing",
        )
    elif named and entry.reserved_instances is None and named != ["capacity_block"]:
        yield Mistake(
            field=f"{field}.reserved_instances",
            expected=f"how many instances are reserved, beside {named[0]}",
            found="nothing",
        )


def _of_disks(field: str, entry: _OfferingsPart) -> Iterator[Mistake]:
    pair = ("disk_gb", "disk_usd_per_gb_month")
    stated = [name for name in pair if getattr(entry, name)]
    for name in pair if len(stated) == 1 else ():
        if name not in stated:
            yield Mistake(
                field=f"{field}.{name}", expected=f"it beside {stated[0]}", found="nothing"
            )


def _of_zones(field: str, entry: _OfferingsPart, zones: tuple[str, ...]) -> Iterator[Mistake]:
    for at, zone in enumerate(zones):
        if _ZONE_NAME.fullmatch(zone):
            yield Mistake(
                field=f"{field}.zones[{at}]" if entry.zones else f"{field}.zone",
                expected="the id of a zone such as use1-az4, as names mean another zone in each "
                "account (aws ec2 describe-availability-zones says it)",
                found=repr(zone),
            )


def _of_gpus(field: str, entry: _OfferingsPart, types: tuple[str, ...]) -> Iterator[Mistake]:
    stated = (entry.gpu_model, entry.gpus_per_instance)
    if any(stated) and len(types) > 1:
        yield Mistake(
            field=field,
            expected="one instance type where gpu_model or gpus_per_instance is stated",
            found=f"{len(types)} of them",
        )
    for name in types:
        known = INSTANCE_TYPES.get(name)
        if known is None and not all(stated):
            missing = "gpus_per_instance" if entry.gpu_model else "gpu_model"
            yield Mistake(
                field=f"{field}.{missing}",
                expected=f"gpu_model and gpus_per_instance of {name}, which is none of those known "
                f"here ({', '.join(INSTANCE_TYPES)})",
                found="nothing",
            )
        if known is not None and entry.gpus_per_instance not in (None, known.gpus):
            yield Mistake(
                field=f"{field}.gpus_per_instance",
                expected=f"{known.gpus}, as {name} has",
                found=str(entry.gpus_per_instance),
            )
        if known is not None and entry.gpu_model not in (None, known.gpu_model):
            yield Mistake(
                field=f"{field}.gpu_model",
                expected=f"{known.gpu_model}, as {name} has",
                found=repr(entry.gpu_model),
            )


def _one_of(field: str, entry: _OfferingsPart, one: str, several: str) -> Iterator[Mistake]:
    if getattr(entry, one) is None and getattr(entry, several) is None:
        yield Mistake(field=f"{field}.{several}", expected=f"{several} or {one}", found="neither")
    yield from _at_most_one(field, entry, one, several)


def _at_most_one(field: str, entry: _OfferingsPart, one: str, several: str) -> Iterator[Mistake]:
    if getattr(entry, one) is not None and getattr(entry, several) is not None:
        yield Mistake(field=f"{field}.{one}", expected=f"{several} or {one}", found="both")


def _unknown_keys(
    field: str, key: str, stated: Mapping[str, str] | None, known: tuple[str, ...]
) -> Iterator[Mistake]:
    for name in stated or ():
        if known and name not in known:
            yield Mistake(
                field=f"{field}.{key}.{name}",
                expected=f"one of those listed beside it ({', '.join(known)})",
                found=repr(name),
            )
