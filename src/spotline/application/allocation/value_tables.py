"""Value tables by name: what one is made of, and where a decision stands in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import MarketLaw
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import Offering
from spotline.domain.policies.interface import Outlook
from spotline.domain.solvers.table_spec import TableSpec, TableUse
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms, table_id


def table_spec(
    program: JobProgram,
    named: NamedLaw,
    offering: Offering,
    *,
    first_slot_start_ns: int,
    on_demand_price_micro_usd: int,
    on_demand_available: int,
    taken: int | None,
    on_demand_reserve_slots: int = 0,
) -> TableSpec:
    """Name the table of a job on an offering: its own, or its class's where `taken` is None.

    What others take differs with every arrival, so a class knows nothing of it: what they leave is
    in the slot's offer, and what that is worth to them in the surcharge.
    """
    terms = TableTerms(
        program=program,
        law=named.law,
        on_demand_price=on_demand_price_micro_usd,
        on_demand_available=on_demand_available,
        taken=taken or 0,
        reserve_slots=on_demand_reserve_slots,
        shared=taken is None,
    )
    return TableSpec(
        table_id=table_id(terms),
        law_id=named.law_id,
        offering_id=offering.offering_id,
        instance_type=offering.instance_type,
        first_slot_start_ns=first_slot_start_ns,
        slot_s=program.slot_s,
        on_demand_price_micro_usd=on_demand_price_micro_usd,
        on_demand_available=on_demand_available,
        taken=taken or 0,
        on_demand_reserve_slots=on_demand_reserve_slots,
        shared=taken is None,
    )


def surcharged(
    spec: TableSpec, surcharge: int, program: JobProgram, law: MarketLaw, *, by_count: bool = False
) -> TableSpec:
    """Name the table that takes spot to come for dearer by `surcharge`, micro-USD per hour.

    `by_count` it does so the more the less there is (where there is a surcharge at all).
    """
    dearer = replace(
        spec,
        spot_surcharge_micro_usd=surcharge,
        surcharge_by_count=by_count and surcharge > 0,
    )
    return same_table_of(dearer, program, law)


def evened(spec: TableSpec, program: JobProgram, law: MarketLaw) -> TableSpec:
    """Name the table of even cells; one of a class, whose cells are even for none of its jobs, stays."""
    if spec.shared:
        return spec
    return same_table_of(replace(spec, even_cells=True), program, law)


def same_table_of(spec: TableSpec, program: JobProgram, law: MarketLaw) -> TableSpec:
    """Name the table that differs from the one named by `spec` in the job's program alone."""
    return replace(spec, table_id=table_id(_terms(spec, program, law)))


# Naming a table takes longer than looking into it, and every decision names its own.
@lru_cache(maxsize=16_384)
def terms_of(spec: TableSpec, program: JobProgram, law: MarketLaw) -> TableTerms:
    """What the table named by `spec` is made of.

    Raises
    ------
    ValueError
        The name is that of another table.
    """
    terms = _terms(spec, program, law)
    named = table_id(terms)
    if named != spec.table_id:
        raise ValueError(f"table_id must be {named}, which its terms hash to, was {spec.table_id}")
    return terms


def outlook_of(
    use: TableUse | None, program: JobProgram, laws: Iterable[NamedLaw]
) -> Outlook | None:
    """What a task may look into, None where it names no table.

    Raises
    ------
    ValueError
        The table's law is not among `laws`, its name is another table's, or the run state is none
        of the law's.
    """
    if use is None:
        return None
    for named in laws:
        if named.law_id == use.table.law_id:
            if not 0 <= use.run_state < named.law.space.run_states:
                raise ValueError(
                    f"table_use.run_state must lie in 0..{named.law.space.run_states - 1}, "
                    f"was {use.run_state}"
                )
            table = table_of(terms_of(use.table, program, named.law))
            return Outlook(table=table, run_state=use.run_state)
    raise ValueError(f"laws must hold {use.table.law_id}, which a table is solved on")


def _terms(spec: TableSpec, program: JobProgram, law: MarketLaw) -> TableTerms:
    return TableTerms(
        program=program,
        law=law,
        on_demand_price=spec.on_demand_price_micro_usd,
        on_demand_available=spec.on_demand_available,
        taken=spec.taken,
        reserve_slots=spec.on_demand_reserve_slots,
        spot_surcharge=spec.spot_surcharge_micro_usd,
        shared=spec.shared,
        even_cells=spec.even_cells,
        surcharge_by_count=spec.surcharge_by_count,
    )
