"""What `spotline.yaml` may say, and which option of `spotline up` and variable of services it sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from spotline.adapters.files.fields import (
    Name,
    NotNegative,
    Part,
    Positive,
    Seconds,
    Stated,
    Text,
    TimeNs,
    Usd,
    Whole,
    duration,
    expected,
    no_bool,
    parts_in,
)
from spotline.adapters.files.limits_file import LimitsPart
from spotline.adapters.files.mistake import SecretText
from spotline.adapters.files.reservations_file import ReservationPart
from spotline.adapters.files.spotline_yaml.notify_part import Receivers
from spotline.adapters.files.spotline_yaml.secret_values import BY_PLACE, NOT_SHOWN
from spotline.domain.market.overrides import PriceOverride, SavingsPlan
from spotline.domain.units import micro_usd_from_usd


@dataclass(frozen=True, slots=True)
class StatedAs:
    """What a key sets.

    Attributes
    ----------
    option
        The parameter of the command `up`; empty: none.
    variables
        What services read, without `SPOTLINE_`; an explicit variable of the environment wins.
    is_path
        Whether it is a path, which begins at the folder of the file.
    """

    option: str = ""
    variables: tuple[str, ...] = ()
    is_path: bool = False


def _path(option: str, *variables: str) -> StatedAs:
    return StatedAs(option, variables, is_path=True)


def _sets(option: str, *variables: str) -> StatedAs:
    return StatedAs(option, variables)


def _without_password(value: Any) -> Any:
    """A URL that holds a password is a secret."""
    if isinstance(value, str) and not isinstance(value, SecretText):
        _, at, _ = value.rpartition("@")
        if at:
            raise expected(BY_PLACE, found=NOT_SHOWN)
    return value


# YAML's numbers, as `slots_per_s: 2`, are no texts; nor is `yes`.
Switch = Annotated[bool, Field(strict=True)]
Port = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=65535)]
NatsUrl = Annotated[str, BeforeValidator(_without_password)]
Names = tuple[Name, ...]


def _age(value: Any) -> Any:
    return -1 if value == "never" else value


StaleAfter = Annotated[
    int,
    BeforeValidator(no_bool),
    BeforeValidator(duration),
    BeforeValidator(_age),
    Field(ge=-1, le=10**9),
]


class AddressesPart(Part):
    """Where servers listen."""

    allocator: Annotated[Stated | None, _sets("address", "ALLOCATOR_ADDRESS")] = None
    agents: Annotated[Stated | None, _sets("agents_address", "AGENTS_ADDRESS")] = None
    agents_advertise: Annotated[Stated | None, _sets("advertise", "AGENTS_ADVERTISE")] = None
    configurator: Annotated[
        Stated | None, _sets("configurator_address", "CONFIGURATOR_ADDRESS")
    ] = None
    placer: Annotated[Stated | None, _sets("placer_address", "PLACER_ADDRESS")] = None
    analytics: Annotated[Stated | None, _sets("analytics_address", "ANALYTICS_ADDRESS")] = None
    http: Annotated[Text | None, _sets("http_address", "HTTP_ADDRESS")] = None
    http_hosts: Annotated[Names | None, _sets("http_hosts", "HTTP_HOSTS")] = None
    health_port: Annotated[Port | None, _sets("health_port")] = None


class MarketPart(Part):
    """Which market, and how its time runs."""

    file: Annotated[Stated | None, _path("market", "MARKET")] = None
    slot: Annotated[Seconds | None, _sets("slot", "SLOT_S")] = None
    speed: Annotated[NotNegative | None, _sets("speed", "MARKET_S_PER_S")] = None
    slots_per_s: Annotated[NotNegative | None, _sets("slots_per_s", "SLOTS_PER_S")] = None
    wall_clock: Annotated[Switch | None, _sets("wall_clock", "WALL_CLOCK")] = None
    wait_for_work: Annotated[Switch | None, _sets("wait_for_work", "WAIT_FOR_WORK")] = None
    price_sanity: Annotated[Switch | None, _sets("price_sanity", "PRICE_SANITY")] = None
    stale_after: Annotated[StaleAfter | None, _sets("stale_after", "STALE_AFTER_S")] = None
    list_prices: Annotated[
        dict[Name, Annotated[Positive, Field(le=1e6)]] | None, _sets("list_price", "LIST_PRICES")
    ] = None


class IdentityPart(Part):
    """Whether callers are asked who they are, and what proves it."""

    required: Annotated[Switch | None, _sets("identity")] = None
    hosts: Annotated[Names | None, _sets("identity_hosts", "IDENTITY_HOSTS")] = None
    issuers: Annotated[Stated | None, _path("issuers", "IDENTITY_ISSUERS")] = None
    mtls: Annotated[Switch | None, _sets("mtls", "IDENTITY_MTLS")] = None


class CallersPart(Part):
    """How much is taken from callers at a time."""

    most_calls: Annotated[Whole | None, _sets("most_calls", "MOST_CALLS")] = None
    most_calls_a_tenant: Annotated[
        Whole | None, _sets("most_calls_a_tenant", "MOST_CALLS_A_TENANT")
    ] = None
    most_streams: Annotated[Whole | None, _sets("most_streams", "MOST_STREAMS")] = None
    most_streams_a_tenant: Annotated[
        Whole | None, _sets("most_streams_a_tenant", "MOST_STREAMS_A_TENANT")
    ] = None
    most_allocations: Annotated[Whole | None, _sets("most_allocations", "MOST_ALLOCATIONS")] = None
    most_open_jobs_a_tenant: Annotated[
        Whole | None, _sets("most_open_jobs", "MOST_OPEN_JOBS_A_TENANT")
    ] = None


class JobsPart(Part):
    """How jobs are valued and judged."""

    quote_margin: Annotated[
        Annotated[NotNegative, Field(le=100)] | None, _sets("quote_margin", "QUOTE_MARGIN")
    ] = None
    judge_limits: Annotated[Switch | None, _sets("limits", "LIMITS")] = None
    warm_start: Annotated[Stated | None, _path("warm_start")] = None
    priors: Annotated[Switch | None, _sets("priors", "PRIORS")] = None
    fairness: Annotated[
        Annotated[NotNegative, Field(ge=1, le=1000)] | None, _sets("fairness", "FAIRNESS")
    ] = None
    tenant_shares: Annotated[Text | None, _sets("tenant_shares", "TENANT_SHARES")] = None
    probes: Annotated[Whole | None, _sets("probes", "PROBES")] = None


class OrphansPart(Part):
    """What is done about instances that belong to no job."""

    reap: Annotated[Literal["report", "reap"] | None, _sets("reap", "REAP")] = None
    accounts: Annotated[Names | None, _sets("reap_accounts", "REAP_ACCOUNTS")] = None
    compare_every_slots: Annotated[Whole | None, _sets("compare_every", "COMPARE_EVERY_SLOTS")] = (
        None
    )


class KnowledgePart(Part):
    """Measured runs."""

    file: Annotated[Stated | None, _path("knowledge", "KNOWLEDGE")] = None
    stack: Annotated[Text | None, _sets("knowledge_stack", "KNOWLEDGE_STACK")] = None


class PlacementPart(Part):
    """Where pipelines across regions are placed."""

    geography: Annotated[Stated | None, _path("geography", "GEOGRAPHY")] = None
    method: Annotated[Name | None, _sets("placement_method", "PLACEMENT_METHOD")] = None
    cost: Annotated[Literal["energy", "rent"] | None, _sets("placement_cost", "PLACEMENT_COST")] = (
        None
    )


_Share = Annotated[NotNegative, Field(lt=1)]


class SavingsPlanPart(Part):
    """On-demand that is bought by the hour in advance."""

    usd_per_hour: Annotated[Usd, Field(gt=0)]
    on_demand_discount: _Share


def _only_one_of_spot(value: Any) -> Any:
    if isinstance(value, dict):
        stated = [
            key for key in ("on_demand_usd_per_instance_hour", "on_demand_discount") if key in value
        ]
        if len(stated) == 2:
            raise expected(f"one of {' and '.join(stated)}", found="both")
        named = {"offerings", "from", "until"}
        if not named.issuperset(value) or not value:
            return value
        raise expected("a price, a discount or a savings plan", found="none")
    return value


class OverridePart(Part):
    """A private price, discount or savings plan; shares lie in 0 to below 1."""

    offerings: Name
    on_demand_usd_per_instance_hour: Annotated[Usd, Field(gt=0)] | None = None
    on_demand_discount: _Share | None = None
    spot_discount: _Share | None = None
    savings_plan: SavingsPlanPart | None = None
    from_: Annotated[TimeNs | None, Field(alias="from")] = None
    until: TimeNs | None = None

    def price_override(self) -> PriceOverride:
        """What it says of prices; `ValueError` where that cannot be."""
        plan = self.savings_plan
        return PriceOverride(
            offerings=self.offerings,
            on_demand_micro_usd=micro_usd_from_usd(self.on_demand_usd_per_instance_hour or 0.0),
            on_demand_discount_ppm=_ppm(self.on_demand_discount),
            spot_discount_ppm=_ppm(self.spot_discount),
            savings_plan=None
            if plan is None
            else SavingsPlan(
                micro_usd_per_hour=micro_usd_from_usd(plan.usd_per_hour),
                discount_ppm=_ppm(plan.on_demand_discount),
            ),
            from_ns=self.from_ or 0,
            until_ns=self.until or 0,
        )


def _ppm(share: float | None) -> int:
    return round((share or 0.0) * 1_000_000)


Override = Annotated[OverridePart, BeforeValidator(_only_one_of_spot)]


class ConfigPart(Part):
    """All of the file; what a cloud's own section says is that cloud's to read."""

    cloud: Annotated[Name | None, _sets("cloud", "CLOUD")] = None
    mode: Annotated[Literal["observe", "shadow", "live"] | None, _sets("mode", "MODE")] = None
    store: Annotated[Stated | None, _path("store", "STORE")] = None
    nats_url: Annotated[NatsUrl | None, _sets("nats_url", "NATS_URL")] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, _sets("log_level", "LOG_LEVEL")
    ] = None
    addresses: AddressesPart = AddressesPart()
    market: MarketPart = MarketPart()
    overrides: tuple[Override, ...] = ()
    reservations: tuple[ReservationPart, ...] = ()
    limits: LimitsPart | None = None
    notify: Receivers = Field(default=(), repr=False)
    jobs: JobsPart = JobsPart()
    orphans: OrphansPart = OrphansPart()
    callers: CallersPart = CallersPart()
    identity: IdentityPart = IdentityPart()
    knowledge: KnowledgePart = KnowledgePart()
    placement: PlacementPart = PlacementPart()
    clouds: dict[Name, dict[str, Any]] = Field(default_factory=dict, repr=False)


def keys() -> Iterator[tuple[str, StatedAs]]:
    """Every key that sets an option or a variable, in the order of the file."""
    yield from _keys_of(ConfigPart, "")


def _keys_of(part: type[Part], above: str) -> Iterator[tuple[str, StatedAs]]:
    for name, field in part.model_fields.items():
        sets = sets_of(field)
        if sets is not None:
            yield f"{above}{name}", sets
            continue
        for inner in parts_in(field.annotation):
            yield from _keys_of(inner, f"{above}{name}.")


def sets_of(field: FieldInfo) -> StatedAs | None:
    """What a field sets, None for one that sets nothing by itself."""
    return next((mark for mark in field.metadata if isinstance(mark, StatedAs)), None)


def value_at(part: Part, key: str) -> Any:
    """What a file says of a key of `keys`, None where it says nothing."""
    value: Any = part
    for step in key.split("."):
        value = getattr(value, step)
    return value


def as_text(value: Any) -> str:
    """A value as the text of a variable."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case Mapping():
            import json

            return json.dumps(value)
        case _:
            return str(value)
