"""`spotline simulate --log`: what happened in a recorded run, and what would have happened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.cli.accounts_view import (
    print_job_rows,
    print_left_out,
    print_reconciliation,
    print_rules,
)
from spotline.cli.simulate_view import RECORDED, Outputs
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.domain.market.market import Market
    from spotline.replay.account import Account, RecordedLog
    from spotline.replay.closed_loop import LoopOptions
    from spotline.replay.reconcile import AccountChain, LedgerSums
    from spotline.replay.what_if import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuestion:
    """What is asked about a log; empty and None where nothing else than as it was."""

    log: Path
    market: str
    terms: WhatIf
    policies: tuple[str, ...]
    forecaster: str
    seed: int
    warm_start: str
    reconcile: bool
    ledger: Path | None

    @property
    def is_what_if(self) -> bool:
        """Whether market, deadlines or prices are others than they were."""
        return bool(self.market) or self.terms.changes_jobs or self.terms.changes_prices


def simulate_log(question: LogQuestion, outputs: Outputs) -> None:
    """Answer it.

    Raises
    ------
    ContractError
        Something that was given is not what it should be.
    """
    from spotline.replay.account import (
        ON_WHAT_WAS_LEFT,
        SIMPLE_RULES,
        account,
        read_recorded,
        reconciled,
    )
    from spotline.replay.simulate import expand_names
    from spotline.replay.summary import SPOTLINE

    names = [name for name in question.policies if name != RECORDED]
    rules = expand_names(names) if names else ()
    if not question.policies:
        # What happened cannot be asked what it would have done.
        rules = (SPOTLINE, *SIMPLE_RULES) if question.is_what_if else SIMPLE_RULES
    recorded = read_recorded(question.log)
    market, moved = _market(question, recorded)
    made = account(
        recorded,
        rules,
        terms=question.terms,
        market=market,
        options=_options(question, recorded),
    )
    if market is not None:
        on = f"on the market {question.market}, {market.slots} slots of {market.slot_s} s{moved}"
        made = replace(made, changed=(on, *made.changed))
    agreed = None
    if question.reconcile or question.ledger is not None:
        sums = None if question.ledger is None else _ledger_sums(question.ledger)
        agreed = reconciled(made, question.log, sums)
    rows = made.rows()
    outputs.write(_as_json(made, agreed), rows)
    _print(question, made, agreed)
    if outputs.per_job:
        print_line()
        # On other terms, what was left in the recorded run is no comparison.
        print_job_rows([row for row in rows if made.as_it_was or row.basis != ON_WHAT_WAS_LEFT])


def _options(question: LogQuestion, recorded: RecordedLog) -> LoopOptions:
    options = replace(recorded.options, seed=question.seed)
    if question.forecaster:
        options = replace(options, forecaster=question.forecaster)
    if question.warm_start:
        selector = replace(options.selector, warm_start=question.warm_start)
        options = replace(options, selector=selector)
    return options


def _market(question: LogQuestion, recorded: RecordedLog) -> tuple[Market | None, str]:
    """Another market, and what was done to it so that the log's jobs lie in it."""
    if not question.market:
        return None, ""
    from spotline.cli.simulate_inputs import market_named
    from spotline.domain.units import NS_PER_S, utc_iso

    market = market_named(question.market, question.seed)
    start_ns = recorded.observed.start_ns
    end_ns = start_ns + recorded.observed.slots * recorded.observed.slot_s * NS_PER_S
    length_ns = market.slots * market.slot_s * NS_PER_S
    if market.start_ns < end_ns and start_ns < market.start_ns + length_ns:
        return market, ""
    return market.beginning_at(start_ns), f", taken to begin at {utc_iso(start_ns)}"


def _ledger_sums(path: Path) -> LedgerSums:
    from spotline.adapters.ledger.opening import ledger_url
    from spotline.adapters.ledger.sql import SqlLedger
    from spotline.bootstrap.system import LEDGER_OWNER
    from spotline.replay.reconcile import LedgerSums

    if not path.is_file():
        raise ContractError(str(path), "expected a ledger, such as STORE/ledger.sqlite, found none")
    ledger = SqlLedger.looked_at(ledger_url(path), LEDGER_OWNER)
    try:
        return LedgerSums(charged=ledger.spend_by_job(), bills=tuple(ledger.bills()))
    finally:
        ledger.close()


def _as_json(made: Account, agreed: AccountChain | None) -> dict[str, object]:
    """The account; `recorded` has the keys and the values of the run's own report."""
    from spotline.replay.report import configured_as_json

    report = made.report
    policies: dict[str, object] = {}
    if made.recorded_counted is not None:
        policies[RECORDED] = made.recorded_counted.as_json()
    policies |= {name: summary.as_json() for name, summary in made.rules.items()}
    result = {
        "jobs": len(report.jobs),
        "policies": policies,
        "clairvoyant": report.clairvoyant.as_json() if report.clairvoyant else None,
        RECORDED: {**report.as_json(), "configured": configured_as_json(report)},
        **made.as_json(),
    }
    if agreed is not None:
        result["reconciliation"] = agreed.as_json()
    return result


def _print(question: LogQuestion, made: Account, agreed: AccountChain | None) -> None:
    report = made.report
    print_line(
        f"{question.log}: {len(report.jobs)} jobs, {len(report.slots)} slots of "
        f"{made.market.slot_s} s; what is said is of {len(made.counted)} of them"
    )
    print_left_out(made.left_out)
    for change in made.changed:
        print_line(f"what if: {change}")
    if made.changed:
        print_line("what is recorded is as it was; the rules by themselves are on these terms")
    print_rules(made)
    if agreed is not None:
        print_line()
        print_reconciliation(agreed)
