"""What a certification showed and what it held: the report, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from spotline.adapters.clouds.aws.certify.budget import LEAST_BILLED_S
from spotline.application.cloud_checks import CheckOutcome, CloudCheck
from spotline.contracts.errors import ContractError
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.ledger.disk_bill import disk_cost_micro_usd
from spotline.domain.market.offering import CapacityType, Disks
from spotline.domain.units import NS_PER_S, cost_micro_usd, usd_from_micro_usd, utc_iso

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldForTrial:
    """An instance that was held: market time, 0 where it was not seen to begin or end.

    `price_micro_usd` is the list price; of spot it is the most that it can have cost. `volume_ids`
    are its disks, as far as they were seen; `disks` is what they cost.
    """

    instance_id: str
    offering_id: str
    capacity_type: str
    began_ns: int
    ended_ns: int = 0
    price_micro_usd: int = 0
    disks: Disks | None = None
    volume_ids: tuple[str, ...] = ()

    @property
    def held_s(self) -> int:
        """Seconds that are billed, a minute at least."""
        seconds = -(-(self.ended_ns - self.began_ns) // NS_PER_S) if self.ended_ns else 0
        return max(LEAST_BILLED_S, seconds)

    @property
    def cost_micro_usd(self) -> int:
        """What it costs by our count, without its disks."""
        return cost_micro_usd(self.price_micro_usd, 1, self.held_s)

    @property
    def disk_micro_usd(self) -> int:
        """What its disks cost by our count."""
        begin_s = self.began_ns // NS_PER_S
        kind = CapacityType(self.capacity_type)
        life = BilledLife(capacity_type=kind, begin_s=begin_s, end_s=begin_s + self.held_s)
        return disk_cost_micro_usd(self.disks, life)

    def ended(self, at_ns: int) -> HeldForTrial:
        """The same, ended; the first word counts."""
        return self if self.ended_ns else replace(self, ended_ns=at_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A certification as it went."""

    owner: str
    offering_id: str
    began_ns: int
    ended_ns: int
    most_micro_usd: int
    worst_micro_usd: int
    checks: Sequence[CloudCheck]
    held: Sequence[HeldForTrial]

    @property
    def cost_micro_usd(self) -> int:
        """What everything cost by our count; an upper bound where spot is in it."""
        return sum(each.cost_micro_usd + each.disk_micro_usd for each in self.held)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "version": VERSION,
            "owner": self.owner,
            "offering_id": self.offering_id,
            "began": utc_iso(self.began_ns),
            "ended": utc_iso(self.ended_ns),
            "most_micro_usd": self.most_micro_usd,
            "worst_micro_usd": self.worst_micro_usd,
            "cost_micro_usd": self.cost_micro_usd,
            "checks": [check.as_json() for check in self.checks],
            "instances": [
                {
                    **asdict(each),
                    "held_s": each.held_s,
                    "cost_micro_usd": each.cost_micro_usd,
                    "disk_micro_usd": each.disk_micro_usd,
                }
                for each in self.held
            ],
        }

    def as_markdown(self) -> str:
        """The report for people."""
        shown = [check for check in self.checks if check.outcome is CheckOutcome.OK]
        lines = [
            f"# Certification of {self.offering_id}",
            "",
            f"Owner tag `{self.owner}`, from {utc_iso(self.began_ns)} to {utc_iso(self.ended_ns)}.",
            f"{len(shown)} of {len(self.checks)} steps were shown. By our count it cost at most "
            f"{usd_from_micro_usd(self.cost_micro_usd):.4f} USD; allowed were "
            f"{usd_from_micro_usd(self.most_micro_usd):.2f} USD.",
            "",
            "| step | outcome | what was seen | what to do next |",
            "|---|---|---|---|",
            *(
                f"| {check.name} | {check.outcome.value} | {_cell(check.detail)} "
                f"| {_cell(check.next_step)} |"
                for check in self.checks
            ),
            "",
            "| instance | bought | held, s | list price, USD/h | cost at most, USD | disks, USD |",
            "|---|---|---|---|---|---|",
            *(
                f"| {each.instance_id} | {each.capacity_type} | {each.held_s} "
                f"| {usd_from_micro_usd(each.price_micro_usd):g} "
                f"| {usd_from_micro_usd(each.cost_micro_usd):.6f} "
                f"| {usd_from_micro_usd(each.disk_micro_usd):.6f} |"
                for each in self.held
            ),
            "",
        ]
        return "\n".join(lines)


def read_held(text: str, where: str) -> tuple[HeldForTrial, ...]:
    """The instances of a report.

    Raises
    ------
    ContractError
        It is no report; names the file and the field.
    """
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ContractError(
            where, f"expected a report of certify as JSON, found {error}"
        ) from error
    if not isinstance(said, dict) or said.get("version") != VERSION:
        raise ContractError(where, f"version: expected a report of version {VERSION}")
    return tuple(_held(row, f"{where}: instances") for row in _rows(said, where))


def _rows(said: Mapping[str, Any], where: str) -> Iterable[Any]:
    rows = said.get("instances")
    if not isinstance(rows, list):
        raise ContractError(where, f"instances: expected a list, found {type(rows).__name__}")
    return rows


def _held(row: Any, where: str) -> HeldForTrial:
    try:
        return HeldForTrial(
            instance_id=str(row["instance_id"]),
            offering_id=str(row["offering_id"]),
            capacity_type=str(row["capacity_type"]),
            began_ns=int(row["began_ns"]),
            ended_ns=int(row["ended_ns"]),
            price_micro_usd=int(row["price_micro_usd"]),
            # Reports of before know of no disks.
            disks=_disks(row.get("disks")),
            volume_ids=tuple(map(str, row.get("volume_ids", ()))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ContractError(where, f"expected an instance that was held, found {row!r}") from error


def _disks(said: Any) -> Disks | None:
    if said is None:
        return None
    return Disks(gb=int(said["gb"]), micro_usd_per_gb_month=int(said["micro_usd_per_gb_month"]))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
