"""What has to be said of AWS before anything is bought there: accounts, and offerings in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.offering import Disks, Reservation
from spotline.domain.modes import Mode
from spotline.domain.units import micro_usd_from_usd

_ACCOUNT_ID = re.compile(r"\d{12}")
# "If an EC2 instance is interrupted ... two minutes": best effort, but told of all (clouds.md D10).
ANNOUNCED_S = 120
MOST_QUEUE_WAIT_S = 20
# In a spotline.yaml it begins at the folder of the file.
A_PATH = {"path": True}


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine: only a rehearsal of AWS is there."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccount:
    """An account of AWS, and how we come to act in it.

    Parameters
    ----------
    name
        What offerings call it; unique.
    account_id
        Its twelve digits.
    role_arn
        The role that is assumed there; empty: the credentials of the environment are of this account.
    external_id
        What its owner demands with the role; a secret.
    queues
        URL of the SQS queue that our own EventBridge rule fills, by region. A region without one is
        never told of interruptions by the cloud, only by its instances.
    mode
        What it begins in; live only in a rehearsal, elsewhere `spotline promote` makes it so.
    """

    name: str
    account_id: str
    role_arn: str = ""
    external_id: str = field(default="", repr=False)
    queues: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.OBSERVE

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("accounts[].name must not be empty")
        if not _ACCOUNT_ID.fullmatch(self.account_id):
            raise ValueError(
                f"accounts[{self.name}].account_id must be 12 digits, was {self.account_id!r}"
            )
        if self.external_id and not self.role_arn:
            raise ValueError(
                f"accounts[{self.name}].external_id needs a role_arn, and there is none"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSavingsPlan:
    """So many dollars an hour are paid, used or not, for on demand at prices of the plan's own.

    Parameters
    ----------
    plan_id
        What offerings of it are called by; of all plans another.
    usd_per_hour
        The commitment.
    usd_per_instance_hour
        The plan's price of each instance type that it covers, as the plan's rates say it.
    accounts, regions
        Where it holds; empty: everywhere.
    until_ns
        When it ends, ns since the epoch; 0: it does not.
    """

    plan_id: str
    usd_per_hour: float
    usd_per_instance_hour: Mapping[str, float]
    accounts: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    until_ns: int = 0

    def __post_init__(self) -> None:
        where = f"savings_plans[{self.plan_id}]"
        if not self.plan_id:
            raise ValueError("savings_plans[].id must not be empty")
        if not self.usd_per_instance_hour:
            raise ValueError(f"{where}.usd_per_instance_hour must name an instance type, has none")
        for name, price in self.usd_per_instance_hour.items():
            if not 0 < price <= self.usd_per_hour:
                raise ValueError(
                    f"{where}.usd_per_instance_hour.{name} must be > 0 and at most usd_per_hour "
                    f"({self.usd_per_hour:g}), was {price:g}"
                )

    def covers(self, offering: AwsOffering) -> bool:
        """Whether what is bought of an offering on demand falls under it."""
        return (
            not offering.capacity_reservation_id
            and offering.savings_plan is None
            and offering.instance_type in self.usd_per_instance_hour
            and (not self.accounts or offering.account in self.accounts)
            and (not self.regions or offering.region in self.regions)
        )

    def reservation(self, instance_type: str) -> Reservation:
        """What fits into its money of one instance type."""
        hourly = micro_usd_from_usd(self.usd_per_hour)
        price = micro_usd_from_usd(self.usd_per_instance_hour[instance_type])
        return Reservation(
            instances=hourly // price,
            ends_ns=self.until_ns,
            sunk_price_micro_usd=price,
            plan=self.plan_id,
            plan_micro_usd_per_hour=hourly,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOffering:
    """An instance type in one zone of one account, and the user's launch template for it.

    Image, disks, roles, keys, network interfaces and security groups are the template's: Spotline
    owns and creates none.

    Parameters
    ----------
    zone
        The zone's id, such as `use1-az4`: names differ between accounts.
    launch_template_id, launch_template_version
        `lt-...`, and which version of it: a number, `$Default` or `$Latest`.
    subnet_id
        Of that zone; empty: the template names it.
    placement_group
        Cluster placement group of gangs; empty: the template's, or none.
    gpu_model, gpus_per_instance
        As in offerings of a market file (`a100-40gb`).
    capacity_reservation_id
        `cr-...` of an ODCR or capacity block that is used here; empty: none. The launch template names
        it, too: a fleet cannot.
    capacity_block
        Whether that is a capacity block.
    reserved_instances, reserved_until_ns, reserved_usd_per_hour
        Of that commitment: how many instances, until when (ns since the epoch, 0: it does not end),
        and what each costs an hour whether it is used or not.
    disk_gb, disk_usd_per_gb_month
        Size of the disks that the launch template gives one instance, and what a gigabyte of them
        costs a month; 0: none that count.
    savings_plan
        The plan by whose money it is bought: an offering of its own beside that of the list price,
        made by `with_savings_plans`; None: none.
    """

    account: str
    region: str
    zone: str
    instance_type: str
    gpu_model: str
    gpus_per_instance: int
    launch_template_id: str
    launch_template_version: str = "$Default"
    subnet_id: str = ""
    placement_group: str = ""
    capacity_reservation_id: str = ""
    capacity_block: bool = False
    reserved_instances: int = 0
    reserved_until_ns: int = 0
    reserved_usd_per_hour: float = 0.0
    disk_gb: int = 0
    disk_usd_per_gb_month: float = 0.0
    savings_plan: AwsSavingsPlan | None = None

    def __post_init__(self) -> None:
        for name in ("account", "region", "zone", "instance_type", "launch_template_id"):
            if not getattr(self, name):
                raise ValueError(f"offerings[].{name} must not be empty")
        if self.gpus_per_instance < 1:
            raise ValueError(
                f"offerings[{self.offering_id}].gpus_per_instance must be >= 1, "
                f"was {self.gpus_per_instance}"
            )
        if self.capacity_block and not self.capacity_reservation_id:
            raise ValueError(
                f"offerings[{self.offering_id}].capacity_block needs a capacity_reservation_id, "
                "and there is none"
            )
        if self.reserved_instances and not self.capacity_reservation_id:
            raise ValueError(
                f"offerings[{self.offering_id}].reserved_instances needs a "
                "capacity_reservation_id, and there is none"
            )

        if bool(self.disk_gb) is not bool(self.disk_usd_per_gb_month):
            raise ValueError(
                f"offerings[{self.offering_id}].disk_gb and disk_usd_per_gb_month must be stated "
                "together"
            )

    @property
    def disks(self) -> Disks | None:
        """The disks of one instance, beside it in bills and prices; None: none are stated."""
        if not self.disk_gb:
            return None
        price = micro_usd_from_usd(self.disk_usd_per_gb_month)
        return Disks(gb=self.disk_gb, micro_usd_per_gb_month=price)

    @property
    def reservation(self) -> Reservation | None:
        """What is committed to here: filled first, at a marginal price of 0; None: nothing known."""
        if self.savings_plan is not None:
            return self.savings_plan.reservation(self.instance_type)
        if not self.reserved_instances:
            return None
        return Reservation(
            instances=self.reserved_instances,
            ends_ns=self.reserved_until_ns,
            sunk_price_micro_usd=micro_usd_from_usd(self.reserved_usd_per_hour),
        )

    @property
    def offering_id(self) -> str:
        """The id of the offering in markets, commands and bills."""
        bought = f"aws:{self.account}:{self.zone}:{self.instance_type}"
        # As reservations that are added to other markets are called.
        plan = "" if self.savings_plan is None else self.savings_plan.plan_id
        reserved = self.capacity_reservation_id or plan
        return f"{bought}/reserved/{reserved}" if reserved else bought


def with_savings_plans(
    offerings: Sequence[AwsOffering], plans: Sequence[AwsSavingsPlan]
) -> tuple[AwsOffering, ...]:
    """The offerings, and for each that a plan covers one more that is bought by the plan's money."""
    planned = (
        replace(offering, savings_plan=plan)
        for plan in plans
        for offering in offerings
        if plan.covers(offering)
    )
    return (*offerings, *planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Accounts and offerings of AWS, and how it is reached.

    Parameters
    ----------
    placement_scores_for
        So many instances AWS is asked for placement scores of, once a day, to be told with quotes;
        0: it is not asked.
    savings_plans
        Plans whose offerings are among `offerings`.
    endpoint_url
        One endpoint for all services, of a rehearsal; empty: AWS's own.
    clock
        How market time follows wall time: the same but in a rehearsal.
    connect_timeout_s, read_timeout_s
        Wall seconds that a call gets.
    queue_wait_s
        Wall seconds that a look into a queue waits for a message, 0 to 20 (SQS's long poll).
    identity_certificates
        What instances prove by that they are ours (docs/agent.md): a folder with `REGION.pem` for each
        region, or one file for all; empty: their agents do not join by themselves.
    """

    accounts: tuple[AwsAccount, ...] = ()
    offerings: tuple[AwsOffering, ...] = ()
    savings_plans: tuple[AwsSavingsPlan, ...] = ()
    placement_scores_for: int = 0
    endpoint_url: str = ""
    clock: MarketClock = WALL_TIME
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    queue_wait_s: int = 20
    identity_certificates: str = field(default="", metadata=A_PATH)

    def __post_init__(self) -> None:
        names = [account.name for account in self.accounts]
        if len(set(names)) != len(names):
            raise ValueError(f"accounts[].name must be unique, were {names}")
        ids = [offering.offering_id for offering in self.offerings]
        if len(set(ids)) != len(ids):
            raise ValueError(f"offerings must differ in account, zone or instance type, were {ids}")
        for offering in self.offerings:
            if offering.account not in names:
                raise ValueError(
                    f"offerings[{offering.offering_id}].account must be one of "
                    f"{', '.join(names) or 'none'}, was {offering.account!r}"
                )
        for account in self.accounts:
            if account.mode is Mode.LIVE and not self.rehearsed:
                raise ValueError(
                    f"accounts[{account.name}].mode must be observe or shadow, was live: "
                    f"spotline promote aws/{account.name} --to live --reason WHY"
                )
        self._check_endpoint()
        for name in ("connect_timeout_s", "read_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")
        if self.placement_scores_for < 0:
            raise ValueError(f"placement_scores_for must be >= 0, was {self.placement_scores_for}")
        if not 0 <= self.queue_wait_s <= MOST_QUEUE_WAIT_S:
            raise ValueError(
                f"queue_wait_s must be within 0..{MOST_QUEUE_WAIT_S}, was {self.queue_wait_s}"
            )

    def _check_endpoint(self) -> None:
        """Hold what a variable states to what the file may state; a password is not repeated."""
        url = urlsplit(self.endpoint_url)
        if self.endpoint_url and url.scheme not in ("https", "http"):
            raise ValueError("endpoint_url must be http(s)://..., was none")
        if url.username is not None or url.password is not None:
            raise ValueError("endpoint_url must have no password in it, had one")
        if url.scheme == "http" and not self.rehearsed:
            raise ValueError(
                "endpoint_url must be https://..., or http://... of a rehearsal on this machine, "
                f"was {self.endpoint_url!r}"
            )
        if not self.rehearsed and not self.clock.is_wall_time:
            raise ValueError("clock must be wall time but in a rehearsal on this machine")

    @property
    def rehearsed(self) -> bool:
        """Whether this is no AWS, but a rehearsal of it on this machine."""
        return is_loopback(self.endpoint_url)

    @property
    def regions(self) -> tuple[str, ...]:
        """Regions of offerings, in order of name."""
        return tuple(sorted({offering.region for offering in self.offerings}))

    def account_modes(self) -> dict[str, Mode]:
        """What each account begins in, by "aws/NAME"."""
        return {f"aws/{account.name}": account.mode for account in self.accounts}
