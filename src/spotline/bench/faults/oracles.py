"""What must hold after every run, told from its books alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotline.bench.faults.accounts import Accounts, Row, comparable, slot_s_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import MarketOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.units import NS_PER_S, S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What did not hold, and the oracle that says so."""

    oracle: str
    detail: str

    def __str__(self) -> str:
        """Oracle first."""
        return f"{self.oracle}: {self.detail}"


Problems = Iterator[str]
_MOST_TOLD = 3


def system_lives(accounts: Accounts) -> Problems:
    """The run came to its end, and no service ended by itself more than once on its way."""
    if accounts.outcome.stalled:
        yield accounts.outcome.stalled
    expected = accounts.outcome.notes.get("may_crash", ())
    for service, said in accounts.outcome.crashes.items():
        if service not in expected:  # type: ignore[operator]
            yield f"{service} ended {len(said)} times, the last time with {said[-1][:300]}"


def jobs_end_with_a_reason(accounts: Accounts) -> Problems:
    """Every accepted job is closed, once."""
    closed = Counter(event.job_id for event in accounts.events(JobClosed))
    for job_id in sorted(accounts.outcome.accepted):
        if closed[job_id] != 1:
            yield f"job {job_id} was accepted and closed {closed[job_id]} times"


def slots_run_once(accounts: Accounts) -> Problems:
    """Slots open in order, none is skipped, market time follows them."""
    opened = accounts.slots
    slots = list(opened)
    if slots != list(range(len(slots))):
        yield f"slots opened as {slots}"
    if len(slots) != accounts.outcome.scenario.market.slots:
        yield f"{len(slots)} of {accounts.outcome.scenario.market.slots} slots opened"
    slot_s = slot_s_of(accounts)
    first = next(accounts.events(MarketOpened), None)
    for slot, event in opened.items():
        expected = 0 if first is None else first.first_slot_start_ns + slot * slot_s * NS_PER_S
        if event.ts_event_ns != expected:
            yield f"slot {slot} opened at {event.ts_event_ns}, not {expected}"


def log_and_ledger_charge_the_same(accounts: Accounts) -> Problems:
    """Each charge of the ledger is a `CostAccrued` of the log, and the reverse."""
    said = Counter(
        (
            *(event.slot, event.job_id, event.offering_id, event.capacity_type.value),
            *(event.instances, event.held_s, event.price_micro_usd, event.cost_micro_usd),
        )
        for event in accounts.events(CostAccrued)
    )
    names = ("slot", "job_id", "offering_id", "capacity_type", "instances", "held_s")
    held = Counter(
        tuple(row[name] for name in (*names, "price_micro_usd", "cost_micro_usd"))
        for row in accounts.ledger["charges"]
    )
    for charge, count in sorted((said - held).items()):
        yield f"the log has {count} x {charge}, which the ledger has not"
    for charge, count in sorted((held - said).items()):
        yield f"the ledger has {count} x {charge}, which the log has not"


def ledger_adds_up(accounts: Accounts) -> Problems:
    """What each job spent is the sum of its charges, each at the quoted price."""
    sums: Counter[str] = Counter()
    for row in accounts.ledger["charges"]:
        sums[row["job_id"]] += row["cost_micro_usd"]
        cost = row["price_micro_usd"] * row["instances"] * row["held_s"]
        if row["instances"] and (cost + S_PER_HOUR // 2) // S_PER_HOUR != row["cost_micro_usd"]:
            yield f"charge {_shown(row)} is not price x instances x time"
    for row in accounts.ledger["spend"]:
        if sums[row["job_id"]] != row["micro_usd"]:
            yield f"job {row['job_id']} spent {row['micro_usd']}, its charges sum to {sums[row['job_id']]}"


def charged_at_quotes(accounts: Accounts) -> Problems:
    """Every charge is at the price that its slot was opened with."""
    slots = accounts.slots
    for row in accounts.ledger["charges"]:
        if not row["instances"] or row["slot"] not in slots:
            continue
        quote = next(
            (
                quoted.quote
                for quoted in slots[row["slot"]].quotes
                if quoted.quote.offering_id == row["offering_id"]
            ),
            None,
        )
        if quote is None:
            continue
        spot = row["capacity_type"] == "spot"
        price = quote.spot_price_micro_usd if spot else quote.on_demand_price_micro_usd
        if price != row["price_micro_usd"]:
            yield f"charge {_shown(row)} is not at the quoted {price}"


def nothing_runs_on(accounts: Accounts) -> Problems:
    """After the end no instance is left, neither in the cloud nor in the ledger."""
    for instance in accounts.instances:
        if instance.end_ns is None:
            yield f"instance {instance.instance_id} of job {instance.job_id} still runs"
    for row in accounts.ledger["instances"]:
        if row["end_slot"] is None:
            yield f"the ledger still holds {row['instance_id']} of job {row['job_id']}"


def ledger_and_cloud_know_the_same(accounts: Accounts) -> Problems:
    """Every instance that the cloud started is in the ledger, and the reverse."""
    started = {instance.instance_id for instance in accounts.instances}
    held = {row["instance_id"] for row in accounts.ledger["instances"]}
    for instance_id in sorted(started - held):
        yield f"the cloud started {instance_id}, of which the ledger knows nothing"
    for instance_id in sorted(held - started):
        yield f"the ledger holds {instance_id}, which the cloud never started"


def cloud_bills_what_is_charged(accounts: Accounts) -> Problems:
    """Instance-seconds by job, offering and kind are the same in cloud and ledger.

    An end that the cloud did not tell of in time is known to a slot.
    """
    slot_s = slot_s_of(accounts)
    ran: Counter[tuple[str, str, str]] = Counter()
    blurred: Counter[tuple[str, str, str]] = Counter()
    for instance in accounts.instances:
        if instance.end_ns is not None:
            key = (instance.job_id, instance.offering_id, instance.capacity_type)
            ran[key] += (instance.end_ns - instance.start_ns) // NS_PER_S
            blurred[key] += slot_s * (instance.instance_id in _untold(accounts))
    charged: Counter[tuple[str, str, str]] = Counter()
    for row in accounts.ledger["charges"]:
        key = (row["job_id"], row["offering_id"], row["capacity_type"])
        charged[key] += row["instances"] * row["held_s"]
    for key in sorted(ran.keys() | charged.keys()):
        if abs(ran[key] - charged[key]) > blurred[key]:
            yield f"{key}: the cloud ran {ran[key]} instance-seconds, charged are {charged[key]}"


def one_set_per_job_and_slot(accounts: Accounts) -> Problems:
    """At no moment does a job hold more than was decided for that slot or the one before."""
    slot_s = slot_s_of(accounts)
    first = next(accounts.events(MarketOpened), None)
    if first is None:
        return
    decided: Mapping[str, dict[int, int]] = defaultdict(dict)
    for event in accounts.events(AllocationDecided):
        total = sum(lot.spot + lot.on_demand for lot in event.lots)
        most = decided[event.job_id]
        most[event.slot] = max(most.get(event.slot, 0), total)
    steps: Mapping[str, list[tuple[int, int]]] = defaultdict(list)
    for instance in accounts.instances:
        if instance.instance_id in _untold(accounts):
            continue
        steps[instance.job_id].append((instance.start_ns, 1))
        if instance.end_ns is not None:
            steps[instance.job_id].append((instance.end_ns, -1))
    for job_id, changes in sorted(steps.items()):
        running = 0
        # Ends come before starts of the same moment.
        for at_ns, change in sorted(changes):
            running += change
            slot = (at_ns - first.first_slot_start_ns) // (slot_s * NS_PER_S)
            allowed = max(decided[job_id].get(slot, 0), decided[job_id].get(slot - 1, 0))
            if change > 0 and running > allowed:
                yield f"job {job_id} holds {running} in slot {slot}, decided were {allowed}"


def instances_belong_to_jobs(accounts: Accounts) -> Problems:
    """Nothing was ever started for a job that nobody submitted."""
    known = {job.job_id for job in accounts.outcome.scenario.jobs}
    for instance in accounts.instances:
        if instance.job_id not in known:
            yield f"{instance.instance_id} was started for {instance.job_id!r}, which is no job"


def no_more_is_decided_than_is_of_use(accounts: Accounts) -> Problems:
    """No decision gives a job more instances than it can use, but what it holds already."""
    most = {job.job_id: job.allowed_counts[-1] for job in accounts.outcome.scenario.jobs}
    held: dict[str, int] = {}
    for event in accounts.events(AllocationDecided, CapacityReported):
        if isinstance(event, CapacityReported):
            held = {
                holding.job_id: sum(lot.spot + lot.on_demand for lot in holding.lots)
                for holding in event.holdings
            }
            continue
        decided = sum(lot.spot + lot.on_demand for lot in event.lots)
        if decided > max(most.get(event.job_id, 0), held.get(event.job_id, 0)):
            yield f"job {event.job_id} is given {decided} instances in slot {event.slot}"


def former_owners_are_fenced(accounts: Accounts) -> Problems:
    """Nobody calls the cloud once another owns the ledger."""
    yield from accounts.outcome.notes.get("stale_calls", ())  # type: ignore[misc]


def only_poison_is_parked(accounts: Accounts) -> Problems:
    """What is parked is what a fault wrote, and what cannot be taken at all is parked."""
    notes = accounts.outcome.notes
    foreign: Any = notes.get("foreign", frozenset())
    parked = {event.event_id: event for event in accounts.events(EntryParked)}
    expected: Any = notes.get("may_park", frozenset())
    for event_id, event in parked.items():
        if event_id not in foreign and (event.service, event.kind) not in expected:
            yield f"{event.service} parked {event.kind} of entry {event.seq}: {event.error}"
    must: Any = notes.get("must_park", frozenset())
    for event_id in sorted(must - set(parked)):
        yield f"{event_id} cannot be taken, and nobody says that it was left out"


def forgeries_are_not_believed(accounts: Accounts) -> Problems:
    """Whoever gets a forged entry leaves it out, and says that it was not believed."""
    expected: Any = accounts.outcome.notes.get("not_believed", {})
    parked = {
        (event.service, event.event_id)
        for event in accounts.events(EntryParked)
        if event.error_type in ("Forged", "Unproven")
    }
    for event_id, services in sorted(expected.items()):
        for service in services:
            if (service, event_id) not in parked:
                yield f"{service} got the forged {event_id}, and does not say that it left it out"


def what_cannot_be_used_is_refused(accounts: Accounts) -> Problems:
    """Stores that are damaged or of another release are refused, and the refusal says which."""
    unrefused: Any = accounts.outcome.notes.get("unrefused", ())
    yield from unrefused


def noise_is_told(accounts: Accounts) -> Problems:
    """What cannot be read is put where people find it."""
    letters = sum(".deadletter." in entry.subject for entry in accounts.outcome.entries)
    noise: Any = accounts.outcome.notes.get("noise", 0)
    if noise and not letters:
        yield f"{noise} entries cannot be read, and no dead letter says so"


def _untold(accounts: Accounts) -> set[str]:
    """Instances of whose end the cloud told late, or never."""
    return accounts.outcome.notes.get("untold", set())  # type: ignore[return-value]


Oracle = Callable[[Accounts], Problems]

ALWAYS: tuple[Oracle, ...] = (
    system_lives,
    jobs_end_with_a_reason,
    slots_run_once,
    log_and_ledger_charge_the_same,
    ledger_adds_up,
    charged_at_quotes,
    nothing_runs_on,
    ledger_and_cloud_know_the_same,
    cloud_bills_what_is_charged,
    one_set_per_job_and_slot,
    instances_belong_to_jobs,
    no_more_is_decided_than_is_of_use,
    former_owners_are_fenced,
    only_poison_is_parked,
    forgeries_are_not_believed,
    what_cannot_be_used_is_refused,
    noise_is_told,
)


def judge(accounts: Accounts, oracles: tuple[Oracle, ...] = ALWAYS) -> list[Violation]:
    """Ask every oracle; of each the first few problems."""
    found: list[Violation] = []
    for oracle in oracles:
        for number, problem in enumerate(oracle(accounts)):
            if number == _MOST_TOLD:
                break
            found.append(Violation(oracle=oracle.__name__, detail=problem))
    return found


def same_ledger(accounts: Accounts, calm: Accounts) -> list[Violation]:
    """The ledger is that of the undisturbed run, row by row."""
    found: list[Violation] = []
    here, there = comparable(accounts.ledger), comparable(calm.ledger)
    for table, rows in there.items():
        problems = list(_differences(here[table], rows))
        found += [
            Violation(oracle="same_ledger", detail=f"{table}: {problem}")
            for problem in problems[:_MOST_TOLD]
        ]
    return found


def spend_stays_within(accounts: Accounts, calm: Accounts, percent: int) -> list[Violation]:
    """No more is spent than a share of what the undisturbed run spends."""
    spent, most = (
        sum(row["cost_micro_usd"] for row in books.ledger["charges"]) for books in (accounts, calm)
    )
    if spent * 100 <= most * percent:
        return []
    detail = f"spent are {spent} micro-USD, undisturbed {most}: more than {percent} %"
    return [Violation(oracle="spend_stays_within", detail=detail)]


def _differences(here: list[Row], there: list[Row]) -> Problems:
    ours, theirs = ([_shown(row) for row in rows] for rows in (here, there))
    for row in ours:
        if row not in theirs:
            yield f"only here: {row[:300]}"
    for row in theirs:
        if row not in ours:
            yield f"missing: {row[:300]}"
    if len(ours) != len(theirs):
        yield f"{len(ours)} rows, undisturbed {len(theirs)}"


def _shown(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items() if name not in ("owner",))
