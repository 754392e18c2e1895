"""The statistics of a recorded log as one batch, in polars: nothing is shared with the fold.

Only what was there when the last window closed counts, and nothing is too late: logs with
observations beyond the grace are not for this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PipelineSubmitted
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued

NS = 1_000_000_000
PPM = 1_000_000
Spec = tuple[int, int]
KEYS = ["size", "hop", "end"]
FAR = 1 << 62


def batch(
    entries: Iterable[StoredEntry], specs: Sequence[Spec], *, delay_slots: int = 1
) -> dict[tuple[str, str, int, int, int], dict[str, Any]]:
    """Figures by (scope, name, window, hop, end in seconds) of every window that has closed."""
    tables = _tables(entries)
    slots = tables["slot"]
    if slots.is_empty():
        return {}
    moves = slots.with_columns(mark=pl.col("at") - delay_slots * pl.col("slot_s")).sort("seq")
    moves = moves.with_columns(watermark=pl.col("mark").cum_max())
    moves = moves.filter(pl.col("watermark") > pl.col("watermark").shift(1, fill_value=-FAR))
    last_seq, watermark = moves.select("seq", "watermark").row(-1)
    tables = {name: table.filter(pl.col("seq") <= last_seq) for name, table in tables.items()}
    opened = _in_windows(tables["slot"], specs, watermark, reach=pl.lit(1, pl.Int64))
    issued = set(opened.select(KEYS).unique().iter_rows())
    found = {**_market(tables, specs, watermark), **_platform(tables, specs, watermark)}
    return {key: one for key, one in found.items() if key[2:] in issued}


# --- the log as tables ------------------------------------------------------------------------

SCHEMAS: dict[str, dict[str, Any]] = {
    "slot": dict(slot=pl.Int64, at=pl.Int64, slot_s=pl.Int64, opened_ns=pl.Int64),
    "quote": dict(
        slot=pl.Int64, offering=pl.String, spot=pl.Int64, on_demand=pl.Int64, count=pl.Int64
    ),
    "forecast": dict(slot=pl.Int64, forecast_ns=pl.Int64),
    "decided": dict(slot=pl.Int64, decided_ns=pl.Int64),
    "choice": dict(slot=pl.Int64, tenant=pl.String, policy=pl.String),
    "bill": dict(
        slot=pl.Int64,
        tenant=pl.String,
        job=pl.String,
        offering=pl.String,
        spot=pl.Boolean,
        instances=pl.Int64,
        held_s=pl.Int64,
        cost=pl.Int64,
        price=pl.Int64,
    ),
    "submitted": dict(job=pl.String, hard=pl.Boolean),
    "admitted": dict(job=pl.String, owner=pl.String, policy=pl.String),
    "closed": dict(
        slot=pl.Int64, tenant=pl.String, job=pl.String, policy=pl.String, outcome=pl.String
    ),
    "feedback": dict(cause=pl.String, job=pl.String, candidate=pl.String, utility=pl.Int64),
}


def _tables(entries: Iterable[StoredEntry]) -> dict[str, pl.DataFrame]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
    seen: set[str] = set()
    for entry in sorted(entries, key=lambda one: one.seq):
        if is_dead_letter(entry):
            continue
        envelope = entry.envelope()
        if envelope.event_id in seen:
            continue
        seen.add(envelope.event_id)
        whole = {"seq": entry.seq, "id": envelope.event_id}
        for name, row in _rows(event_of(entry), entry.stored_ns, envelope.causation_id):
            rows[name].append(whole | row)
    schema = {"seq": pl.Int64, "id": pl.String}
    return {name: pl.DataFrame(rows[name], schema=schema | SCHEMAS[name]) for name in SCHEMAS}


def _rows(event, stored_ns, cause):
    match event:
        case SlotOpened():
            yield (
                "slot",
                dict(
                    slot=event.slot,
                    at=event.ts_event_ns // NS,
                    slot_s=event.slot_s,
                    opened_ns=stored_ns,
                ),
            )
            for one in event.quotes:
                available = one.quote.spot_available
                yield (
                    "quote",
                    dict(
                        slot=event.slot,
                        offering=one.quote.offering_id,
                        spot=one.quote.spot_price_micro_usd,
                        on_demand=one.quote.on_demand_price_micro_usd,
                        count=available.instances if available.known else None,
                    ),
                )
        case ForecastIssued():
            yield "forecast", dict(slot=event.slot, forecast_ns=stored_ns)
        case SlotDecided(revision=0):
            yield "decided", dict(slot=event.slot, decided_ns=stored_ns)
        case AllocationDecided(revision=0):
            yield "choice", dict(slot=event.slot, tenant=event.tenant, policy=event.policy_id)
        case CostAccrued():
            yield (
                "bill",
                dict(
                    slot=event.slot,
                    tenant=event.tenant,
                    job=event.job_id,
                    offering=event.offering_id,
                    spot=event.capacity_type.value == "spot",
                    instances=event.instances,
                    held_s=event.held_s,
                    cost=event.cost_micro_usd,
                    price=event.price_micro_usd,
                ),
            )
        case JobSubmitted():
            hard = event.job.deadline.kind.value == "hard"
            yield "submitted", dict(job=event.job.job_id, hard=hard)
        case JobAdmitted():
            yield "admitted", dict(job=event.job_id, owner=event.tenant, policy=event.policy_id)
        case PipelineSubmitted():
            pipeline = event.pipeline
            yield "admitted", dict(job=pipeline.job_id, owner=pipeline.tenant, policy="")
        case JobClosed():
            yield (
                "closed",
                dict(
                    slot=event.slot,
                    tenant=event.tenant,
                    job=event.job_id,
                    policy=event.policy_id,
                    outcome=event.outcome.value,
                ),
            )
        case PolicyWeightsUpdated(rehearsed_slot=-1):
            for one in event.weights:
                yield (
                    "feedback",
                    dict(
                        cause=cause,
                        job=event.job_id,
                        candidate=one.policy_id,
                        utility=one.utility_micro_usd,
                    ),
                )


def _in_windows(
    frame: pl.DataFrame, specs: Sequence[Spec], watermark: int, *, reach: pl.Expr
) -> pl.DataFrame:
    """One row per window that shares time with [at, at + reach), with where they overlap."""
    parts = []
    for size, hop in specs:
        first = (pl.col("at") // hop + 1) * hop
        last = (pl.col("at") + reach - 1) // hop * hop + size
        parts.append(
            frame.with_columns(
                size=pl.lit(size, pl.Int64),
                hop=pl.lit(hop, pl.Int64),
                end=pl.int_ranges(first, last + 1, hop),
            ).explode("end")
        )
    rows = pl.concat(parts).filter(pl.col("end") <= watermark)
    start = pl.col("end") - pl.col("size")
    return rows.with_columns(
        a=pl.max_horizontal("at", start),
        b=pl.min_horizontal(pl.col("at") + reach, "end"),
        begins=pl.col("at") >= start,
    )


# --- the market -------------------------------------------------------------------------------


def _market(tables, specs, watermark):
    quotes = (
        tables["quote"].join(tables["slot"].drop("seq", "id"), on="slot").sort("offering", "at")
    )
    before = pl.col("at") == (pl.col("at") + pl.col("slot_s")).shift(1).over("offering")
    up = pl.col("count") > 0
    was = up.shift(1).over("offering")
    quotes = quotes.with_columns(
        spot_change=(before & (pl.col("spot") != pl.col("spot").shift(1).over("offering"))),
        od_change=(before & (pl.col("on_demand") != pl.col("on_demand").shift(1).over("offering"))),
        up=(before & up & ~was).fill_null(False),
        down=(before & ~up & was).fill_null(False),
        goes_on=(before & (up == was)).fill_null(False),
    )
    rows = _in_windows(quotes, specs, watermark, reach=pl.col("slot_s"))
    by = ["offering", *KEYS]
    held = pl.col("b") - pl.col("a")
    known = held.filter(pl.col("count").is_not_null()).sum()
    some = held.filter(pl.col("count") > 0).sum()
    # The first slot of a window goes on with nothing.
    rows = rows.sort(*by, "at").with_columns(first=pl.col("at") == pl.col("at").min().over(by))
    starts = ~pl.col("goes_on") | pl.col("first")
    figures = rows.group_by(by).agg(
        slots=pl.len().cast(pl.Int64),
        covered_s=held.sum(),
        known_s=known,
        available_s=some,
        ups=(pl.col("up") & pl.col("begins")).sum().cast(pl.Int64),
        downs=(pl.col("down") & pl.col("begins")).sum().cast(pl.Int64),
        available_runs=(starts & (pl.col("count") > 0)).sum().cast(pl.Int64),
        unavailable_runs=(starts & (pl.col("count") == 0)).sum().cast(pl.Int64),
        **_price("spot", "spot", "spot_change", held),
        **_price("on_demand", "od", "od_change", held),
    )
    counts = (
        rows.filter(pl.col("count").is_not_null())
        .group_by(*by, "count")
        .agg(held.sum().alias("held_s"))
        .sort(*by, "count")
        .group_by(by, maintain_order=True)
        .agg(pl.struct("count", "held_s").alias("counts"))
    )
    figures = figures.join(counts, on=by, how="left")
    found = {}
    for row in figures.iter_rows(named=True):
        covered, known_s, some_s = row["covered_s"], row["known_s"], row["available_s"]
        found["market", row["offering"], row["size"], row["hop"], row["end"]] = {
            **{
                name: row[name]
                for name in (
                    "slots",
                    "covered_s",
                    "known_s",
                    "available_s",
                    "ups",
                    "downs",
                    "available_runs",
                    "unavailable_runs",
                )
            },
            "spot_price": _price_row(row, "spot", covered),
            "on_demand_price": _price_row(row, "od", covered),
            "available_ppm": some_s * PPM // known_s if known_s else 0,
            "counts": tuple((one["count"], one["held_s"]) for one in row["counts"] or ()),
            "mean_available_run_s": _half_up(some_s, row["available_runs"]),
            "mean_unavailable_run_s": _half_up(known_s - some_s, row["unavailable_runs"]),
        }
    return found


def _price(column, name, change, held):
    price = pl.col(column)
    return {
        f"{name}_weighted": (price * held).sum(),
        f"{name}_low": price.min(),
        f"{name}_high": price.max(),
        f"{name}_first": price.sort_by("at").first(),
        f"{name}_last": price.sort_by("at").last(),
        f"{name}_changes": (pl.col(change).fill_null(False) & pl.col("begins")).sum(),
    }


def _price_row(row, name, covered):
    return {
        "mean_micro_usd": _half_up(row[f"{name}_weighted"], covered),
        "low_micro_usd": row[f"{name}_low"],
        "high_micro_usd": row[f"{name}_high"],
        "spread_micro_usd": row[f"{name}_high"] - row[f"{name}_low"],
        "changes": row[f"{name}_changes"],
        "change_ppm": (row[f"{name}_last"] - row[f"{name}_first"]) * PPM // row[f"{name}_first"],
    }


def _half_up(total, parts):
    return (2 * total + parts) // (2 * parts) if parts else 0


# --- the platform -----------------------------------------------------------------------------


def _platform(tables, specs, watermark):
    slots = tables["slot"].select("slot", "at", "slot_s", "opened_ns")
    admitted = tables["admitted"].select("job", "owner", "policy")
    point = pl.lit(1, pl.Int64)

    prices = tables["quote"].select("slot", "offering", pl.col("on_demand").alias("quoted"))
    bills = (
        tables["bill"]
        .join(slots, on="slot")
        .join(admitted, on="job")
        .join(prices, on=["slot", "offering"], how="left")
        .with_columns(quoted=pl.coalesce("quoted", "price"))
        .with_columns(
            same=(pl.col("quoted") * pl.col("instances") * pl.col("held_s") + 1800) // 3600,
            spot_s=pl.when("spot").then(pl.col("instances") * pl.col("held_s")).otherwise(0),
            od_s=pl.when("spot").then(0).otherwise(pl.col("instances") * pl.col("held_s")),
        )
    )
    bills = _in_windows(_both(bills), specs, watermark, reach=pl.col("slot_s"))
    amounts = {
        name: (
            pl.col(name) * (pl.col("b") - pl.col("at")) // pl.col("slot_s")
            - pl.col(name) * (pl.col("a") - pl.col("at")) // pl.col("slot_s")
        )
        for name in ("cost", "same", "spot_s", "od_s")
    }
    bills = bills.with_columns(**amounts)

    closed = (
        tables["closed"]
        .join(slots, on="slot")
        .join(tables["submitted"].select("job", "hard"), on="job")
    )
    closed = _in_windows(_both(closed), specs, watermark, reach=point)

    causes = tables["slot"].select(pl.col("id").alias("cause"), "at", "slot_s")
    feedback = (
        tables["feedback"]
        .join(causes, on="cause")
        .join(admitted, on="job")
        .rename({"owner": "tenant"})
    )
    feedback = _in_windows(_both(feedback), specs, watermark, reach=point)

    decided = tables["decided"].select("slot", "decided_ns", pl.col("seq").alias("decided_seq"))
    choices = (
        tables["choice"]
        .join(slots, on="slot")
        .join(decided, on="slot")
        .join(
            tables["forecast"].select("slot", "forecast_ns", pl.col("seq").alias("forecast_seq")),
            on="slot",
            how="left",
        )
        .with_columns(
            after_slot=(pl.col("decided_ns") - pl.col("opened_ns")).clip(lower_bound=0),
            after_forecast=pl.when(pl.col("forecast_seq") < pl.col("decided_seq")).then(
                (pl.col("decided_ns") - pl.col("forecast_ns")).clip(lower_bound=0)
            ),
        )
    )
    choices = _in_windows(_both(choices), specs, watermark, reach=point)

    found: dict[Any, dict[str, Any]] = {}
    for whole in (True, False):
        by = ["tenant", *KEYS] if whole else ["tenant", *KEYS, "policy"]
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        for frame in (bills, closed, feedback, choices):
            for key in frame.select(by).unique().iter_rows():
                groups.setdefault(key, _nothing())
        _spend(groups, bills, by)
        _deadlines(groups, closed, by)
        _regret(groups, feedback, by)
        _latency(groups, choices, by)
        for key, figures in groups.items():
            tenant, size, hop, end = key[:4]
            place = found.setdefault(
                ("platform", tenant, size, hop, end), {"total": None, "policies": {}}
            )
            if whole:
                place["total"] = figures
            else:
                place["policies"][key[4]] = figures
    return found


def _both(frame: pl.DataFrame) -> pl.DataFrame:
    """Every row for its tenant, and for all together."""
    return pl.concat([frame, frame.with_columns(tenant=pl.lit("*"))])


def _nothing():
    none = {"samples": 0, "p50_ns": 0, "p99_ns": 0, "max_ns": 0}
    return {
        "spend": (0, 0, 0, 0, 0),
        "deadlines": (0, 0, 0, 0, 0),
        "regret": (0, "", 0, 0),
        "decision_after_slot": none,
        "decision_after_forecast": none,
    }


def _spend(groups, bills, by):
    sums = bills.group_by(by).agg(pl.col("cost", "same", "spot_s", "od_s").sum())
    for row in sums.iter_rows(named=True):
        groups[tuple(row[name] for name in by)]["spend"] = (
            row["cost"],
            row["same"],
            row["same"] - row["cost"],
            row["spot_s"],
            row["od_s"],
        )


def _deadlines(groups, closed, by):
    hit = pl.col("outcome") == "completed"
    # Neither the tenant's leave nor a program's own failure says how the platform did.
    away = pl.col("outcome").is_in(["cancelled", "failed"])
    hard = pl.col("hard")
    sums = closed.group_by(by).agg(
        (hit & hard).sum().alias("0"),
        (~hit & ~away & hard).sum().alias("1"),
        (hit & ~hard).sum().alias("2"),
        (~hit & ~away & ~hard).sum().alias("3"),
        away.sum().alias("4"),
    )
    for row in sums.iter_rows(named=True):
        groups[tuple(row[name] for name in by)]["deadlines"] = tuple(row[str(i)] for i in range(5))


def _regret(groups, feedback, by):
    candidates = feedback.group_by(*by, "candidate").agg(
        pl.col("utility").sum(), pl.col("job").n_unique().alias("jobs")
    )
    best = (
        candidates.sort("utility", "candidate", descending=[True, False])
        .group_by(by, maintain_order=True)
        .first()
    )
    mine = feedback.filter(pl.col("candidate") == pl.col("policy"))
    drawn = mine.group_by(by).agg(pl.col("utility").sum().alias("drawn"))
    for row in best.join(drawn, on=by).iter_rows(named=True):
        groups[tuple(row[name] for name in by)]["regret"] = (
            row["jobs"],
            row["candidate"],
            row["utility"],
            row["utility"] - row["drawn"],
        )


def _latency(groups, choices, by):
    once = choices.unique([*by, "slot"])
    for name in ("after_slot", "after_forecast"):
        lists = once.filter(pl.col(name).is_not_null()).group_by(by).agg(pl.col(name).sort())
        for row in lists.iter_rows(named=True):
            samples = row[name]
            rank = {p: -(-p * len(samples) // 100) - 1 for p in (50, 99)}
            groups[tuple(row[one] for one in by)][f"decision_{name}"] = {
                "samples": len(samples),
                "p50_ns": samples[rank[50]],
                "p99_ns": samples[rank[99]],
                "max_ns": samples[-1],
            }


# --- what was issued, in the same shape -------------------------------------------------------


def latest(issued: Iterable[Event]) -> dict[tuple[str, str, int, int, int], dict[str, Any]]:
    """The greatest revision of every window among events, comparable with `batch`."""
    found: dict[Any, tuple[int, dict[str, Any]]] = {}
    for event in issued:
        end = event.ts_event_ns // NS
        if isinstance(event, MarketStatisticsIssued):
            key = ("market", event.offering_id, event.window_s, event.hop_s, end)
            plain = _plain_market(event.figures)
        else:
            key = ("platform", event.tenant, event.window_s, event.hop_s, end)
            plain = {
                "total": _plain_platform(event.total),
                "policies": {one.policy_id: _plain_platform(one.figures) for one in event.policies},
            }
        if key not in found or found[key][0] < event.revision:
            found[key] = (event.revision, plain)
    return {key: plain for key, (_, plain) in found.items()}


def _fields(value) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _plain_market(figures):
    return {
        **_fields(figures),
        "spot_price": _fields(figures.spot_price),
        "on_demand_price": _fields(figures.on_demand_price),
        "counts": tuple((one.instances, one.held_s) for one in figures.counts),
    }


def _plain_platform(figures):
    return {
        "spend": tuple(_fields(figures.spend).values()),
        "deadlines": tuple(_fields(figures.deadlines).values()),
        "regret": tuple(_fields(figures.regret).values()),
        "decision_after_slot": _fields(figures.decision_after_slot),
        "decision_after_forecast": _fields(figures.decision_after_forecast),
    }
