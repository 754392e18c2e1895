"""Jobs drawn by chance, and every charge behind them: what a bill's readers must find again.

Shares nothing with the readers. A charge is neutral; `focus`, `cur` and `gcp` write it as an export
has it. What is paid, worked and planted is counted here, while drawing.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

HOUR_S = 3600
FIRST_S = 1_788_220_800  # 2026-09-01T00:00:00Z
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A machine and its price; `spot` and `plan` are parts of the on-demand price."""

    name: str
    region: str
    zone: str
    gpus: int
    usd_per_hour: Decimal


AWS_KINDS = (
    Kind(name="p4d.24xlarge", region="us-east-2", zone="us-east-2b", gpus=8, usd_per_hour=Decimal("32.7726")),
    Kind(name="g5.xlarge", region="us-west-2", zone="us-west-2a", gpus=1, usd_per_hour=Decimal("1.006")),
    Kind(name="p3.16xlarge", region="us-east-1", zone="us-east-1c", gpus=8, usd_per_hour=Decimal("24.48")),
)  # fmt: skip
GCP_KINDS = (
    Kind(name="a2-highgpu-4g", region="us-central1", zone="us-central1-a", gpus=4, usd_per_hour=Decimal("14.69")),
    Kind(name="g2-standard-24", region="europe-west4", zone="europe-west4-b", gpus=2, usd_per_hour=Decimal("2.00")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A line of a bill before it has a format; `what` is its kind, `kind` its machine.

    `asked` is what the line asks for before commitments, `usd` what it costs after.
    """

    what: str
    begin_s: int
    end_s: int
    usd: Decimal
    asked: Decimal = Decimal(0)
    listed: Decimal = Decimal(0)
    used_s: int = 0
    resource: str = ""
    kind: Kind | None = None
    spot: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    currency: str = "USD"


@dataclass(slots=True, kw_only=True)
class TrueJob:
    """What really ran."""

    job_id: str
    owner: str
    kind: Kind
    instances: int
    work_s: int = 0
    restarts: int = 0
    failed: int = 0
    begin_s: int = 0
    end_s: int = 0
    paid: Decimal = Decimal(0)
    beside: Decimal = Decimal(0)
    resources: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Truth:
    """Sums over the charges in the main currency, and rows and money of each planted trap."""

    paid: Decimal = Decimal(0)
    unused: Decimal = Decimal(0)
    jobs: list[TrueJob] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    usd: dict[str, Decimal] = field(default_factory=dict)
    runs: int = 0

    def trap(self, kind: str, usd: Decimal, rows: int = 1) -> None:
        self.rows[kind] += rows
        self.usd[kind] = self.usd.get(kind, Decimal(0)) + usd


def micro(usd: Decimal) -> Decimal:
    return usd.quantize(_MICRO)


class Drawn:
    """A bill of `days`; `charges` yields it once and fills `truth`."""

    def __init__(
        self,
        seed: int,
        *,
        jobs: int,
        days: int,
        kinds: Sequence[Kind] = AWS_KINDS,
        tag: str = "job",
        hours: tuple[int, int] = (3, 30),
    ) -> None:
        self._dice = random.Random(seed)
        self._jobs, self._kinds, self._tag, self._hours = jobs, kinds, tag, hours
        self._end_s = FIRST_S + days * 24 * HOUR_S
        self._ids = 0
        self.truth = Truth()

    def charges(self) -> Iterator[Charge]:
        """All charges, jobs first, then what is planted."""
        for number in range(self._jobs):
            for charge in self._job(f"train-{number:05d}"):
                yield self._counted(charge)

    def planted(self) -> Iterator[Charge]:
        """The traps that every kind of export can have."""
        plants = (
            self._covered_job(),
            self._corrections(),
            self._untagged(),
            self._open_run(),
            self._apart(),
            self._zero(),
        )
        for plant in plants:
            for charge in plant:
                yield self._counted(charge)
        yield from self._other_currency()

    def _counted(self, charge: Charge) -> Charge:
        self.truth.paid += charge.usd
        return charge

    # --- jobs -----------------------------------------------------------------------------------

    def _job(self, name: str) -> Iterator[Charge]:
        dice = self._dice
        kind = dice.choice(self._kinds)
        job = TrueJob(
            job_id=name, owner=dice.choice(("ann", "bob")), kind=kind, instances=dice.choice((1, 1, 2, 4))
        )  # fmt: skip
        tags = ((self._tag, name), ("owner", job.owner))
        spot = dice.random() < 0.6
        segments = self._segments(dice.choice((1, 1, 2, 3)) if spot else 1)
        job.begin_s, job.end_s = segments[0][0], segments[-1][1]
        job.work_s = sum(end - begin for begin, end in segments)
        job.restarts = len(segments) - 1
        # One machine of the gang goes each time and is replaced; the others wait for it.
        stays = job.instances > 1 and dice.random() < 0.5
        spans: list[tuple[int, int]] = []
        for member in range(job.instances):
            if stays and member:
                spans.append((job.begin_s, job.end_s))
            else:
                spans += segments
        for begin_s, end_s in spans:
            yield from self._run(job, begin_s, end_s, spot=spot, tags=tags)
        for (_, ended), (begun, _) in itertools.pairwise(segments):
            if begun - ended > 1200 and dice.random() < 0.7:
                begin_s = ended + 60
                until = begin_s + dice.randint(120, 480)
                # A launch within one hour, as hours cut longer ones in two.
                if begin_s // HOUR_S == until // HOUR_S:
                    job.failed += 1
                    before = job.paid
                    yield from self._run(job, begin_s, until, spot=spot, tags=tags)
                    self.truth.trap("failed_launch", job.paid - before)
        egress = micro(Decimal(dice.randint(1, 5000)) / 100)
        job.beside += egress
        job.paid += egress
        yield Charge(
            what="egress", begin_s=job.begin_s // HOUR_S * HOUR_S, end_s=job.begin_s // HOUR_S * HOUR_S + HOUR_S,
            usd=egress, asked=egress, resource=job.resources[0], kind=kind, tags=tags,
        )  # fmt: skip
        self.truth.jobs.append(job)

    def _segments(self, count: int) -> list[tuple[int, int]]:
        dice = self._dice
        shortest, longest = self._hours
        span_s = self._end_s - FIRST_S
        at_s = (
            FIRST_S + HOUR_S + dice.randrange(1, max(2, span_s - count * (longest + 10) * HOUR_S))
        )
        segments = []
        for _ in range(count):
            end_s = at_s + dice.randint(shortest * HOUR_S, longest * HOUR_S)
            segments.append((at_s, end_s))
            at_s = end_s + dice.randint(600, 3 * HOUR_S)
        return segments

    def _run(
        self,
        job: TrueJob,
        begin_s: int,
        end_s: int,
        *,
        spot: bool,
        tags: tuple[tuple[str, str], ...],
        what: str = "machine",
    ) -> Iterator[Charge]:
        self._ids += 1
        self.truth.runs += 1
        resource = f"i-{self._ids:017x}"
        job.resources.append(resource)
        share = Decimal(self._dice.randint(25, 60)) / 100 if spot else Decimal(1)
        if what == "covered":
            share = Decimal("0.7")
        for charge in hours(
            resource, job.kind, begin_s, end_s, share, spot=spot, tags=tags, what=what
        ):
            job.paid += charge.usd
            yield charge

    # --- traps ----------------------------------------------------------------------------------

    def _covered_job(self) -> Iterator[Charge]:
        """A job that a savings plan covers, and the plan's hours that nothing used."""
        begin_s = FIRST_S + 30 * HOUR_S + 77
        job = TrueJob(job_id="planned", owner="ann", kind=self._kinds[0], instances=2)
        job.begin_s, job.end_s, job.work_s = begin_s, begin_s + 20 * HOUR_S, 20 * HOUR_S
        tags = ((self._tag, "planned"), ("owner", "ann"))
        for _ in range(2):
            for charge in self._run(job, begin_s, job.end_s, spot=False, tags=tags, what="covered"):
                self.truth.trap("covered", charge.usd)
                yield charge
        self.truth.jobs.append(job)
        unused = micro(job.paid / 4)
        self.truth.unused += unused
        self.truth.trap("unused_commitment", unused)
        hour_s = FIRST_S + 30 * HOUR_S
        yield Charge(
            what="unused",
            begin_s=hour_s,
            end_s=hour_s + HOUR_S,
            usd=unused,
            asked=job.paid + unused,
        )

    def _corrections(self) -> Iterator[Charge]:
        """A refund of a machine's hour, and a credit that names no resource."""
        job = self.truth.jobs[0]
        hour_s = (job.begin_s // HOUR_S + 1) * HOUR_S
        refund = Decimal("-1.5")
        job.paid += refund
        self.truth.trap("refund", refund)
        yield Charge(
            what="refund", begin_s=hour_s, end_s=hour_s + HOUR_S, usd=refund, asked=refund,
            resource=job.resources[0], kind=job.kind, tags=((self._tag, job.job_id),),
        )  # fmt: skip
        self.truth.trap("credit", Decimal(-25))
        yield self._single("credit", Decimal(-25))

    def _untagged(self) -> Iterator[Charge]:
        """A gang that no tag names, and a machine alone that none names either."""
        gang = TrueJob(job_id="", owner="", kind=self._kinds[-1], instances=3)
        begin_s = FIRST_S + 50 * HOUR_S + 500
        gang.begin_s, gang.end_s, gang.work_s = begin_s, begin_s + 9 * HOUR_S, 9 * HOUR_S - 60
        for late in (0, 30, 60):
            yield from self._run(gang, begin_s + late, gang.end_s, spot=False, tags=())
        self.truth.jobs.append(gang)
        alone = TrueJob(job_id="", owner="", kind=self._kinds[0], instances=1)
        begin_s += 30 * HOUR_S
        yield from self._run(alone, begin_s, begin_s + 5 * HOUR_S, spot=False, tags=())
        self.truth.trap("untagged", gang.paid + alone.paid, rows=4)

    def _open_run(self) -> Iterator[Charge]:
        """A machine that was there before the bill began."""
        job = TrueJob(job_id="opened", owner="bob", kind=self._kinds[0], instances=1)
        job.begin_s, job.end_s, job.work_s = FIRST_S, FIRST_S + 6 * HOUR_S + 99, 6 * HOUR_S + 99
        tags = ((self._tag, "opened"), ("owner", "bob"))
        yield from self._run(job, job.begin_s, job.end_s, spot=True, tags=tags)
        self.truth.jobs.append(job)
        self.truth.trap("open_run", job.paid)

    def _apart(self) -> Iterator[Charge]:
        """What is no job: taxes, support, what others sell, storage, machines without GPUs."""
        for what, usd in (("tax", "301.25"), ("support", "100"), ("marketplace", "12.5"), ("other_service", "77.07")):  # fmt: skip
            self.truth.trap(what, Decimal(usd))
            yield self._single(what, Decimal(usd))
        self.truth.trap("no_gpu", Decimal("0.24"), rows=3)
        for hour in range(3):
            begin_s = FIRST_S + (12 + hour) * HOUR_S
            yield Charge(
                what="cpu", begin_s=begin_s, end_s=begin_s + HOUR_S, used_s=HOUR_S, usd=Decimal("0.08"),
                asked=Decimal("0.08"), listed=Decimal("0.08"), resource="i-0cpu", kind=self._kinds[0],
            )  # fmt: skip
        self.truth.trap("disk_apart", Decimal("8.8"))
        yield self._single("disk", Decimal("8.8"))

    def _zero(self) -> Iterator[Charge]:
        job = self.truth.jobs[0]
        hour_s = job.begin_s // HOUR_S * HOUR_S
        self.truth.trap("zero_duration", Decimal(0))
        yield Charge(
            what="machine", begin_s=hour_s, end_s=hour_s + HOUR_S, usd=Decimal(0), used_s=0,
            resource=job.resources[0], kind=job.kind, spot=True, tags=((self._tag, job.job_id),),
        )  # fmt: skip

    def _other_currency(self) -> Iterator[Charge]:
        self.truth.trap("other_currency", Decimal("40.5"), rows=2)
        for usd in ("30.5", "10"):
            yield self._single("other_service", Decimal(usd), currency="EUR")

    def _single(self, what: str, usd: Decimal, currency: str = "USD") -> Charge:
        begin_s = FIRST_S + 12 * HOUR_S
        return Charge(
            what=what, begin_s=begin_s, end_s=begin_s + HOUR_S, usd=usd, asked=usd, currency=currency
        )  # fmt: skip


def hours(
    resource: str,
    kind: Kind,
    begin_s: int,
    end_s: int,
    share: Decimal,
    *,
    spot: bool,
    tags: tuple[tuple[str, str], ...],
    what: str = "machine",
) -> Iterator[Charge]:
    """A run as lines of an hour each."""
    at_s = begin_s
    while at_s < end_s:
        window_s = at_s // HOUR_S * HOUR_S
        until_s = min(window_s + HOUR_S, end_s)
        listed = micro(kind.usd_per_hour * (until_s - at_s) / HOUR_S)
        yield Charge(
            what=what, begin_s=window_s, end_s=window_s + HOUR_S, used_s=until_s - at_s, usd=micro(listed * share),
            asked=listed if what == "covered" else micro(listed * share), listed=listed, resource=resource,
            kind=kind, spot=spot, tags=tags,
        )  # fmt: skip
        at_s = until_s
