"""Bugs that forged entries bring out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.application import set_aside
from spotline.application.cloud_actuator.proof import Proofs
from spotline.application.selector import handler as selector
from spotline.application.selector import parked_entries
from spotline.application.set_aside import SetAside
from spotline.bench.faults.plants.interface import Plant, Replacement


def _anybody_may_publish() -> Sequence[Replacement]:
    def why_forged(event: Any, envelope: Any, own: str) -> None:
        return None

    return (Replacement(where=set_aside, name="why_forged", value=why_forged),)


def _commands_are_believed() -> Sequence[Replacement]:
    def check(self: Any, event: Any, waiting: Any, closed: Any) -> None:
        return None

    return (Replacement(where=Proofs, name="check", value=check),)


def _a_forged_entry_stops_its_job() -> Sequence[Replacement]:
    return (Replacement(where=parked_entries, name="NOT_BELIEVED", value=frozenset()),)


def _retries_are_believed() -> Sequence[Replacement]:
    def check_retry(self: Any, envelope: Any) -> None:
        return None

    return (Replacement(where=SetAside, name="_check_retry", value=check_retry),)


def _any_tenant_speaks_for_a_job() -> Sequence[Replacement]:
    def check_tenant(event: Any, tenant_of: Any) -> None:
        return None

    return (Replacement(where=selector, name="check_tenant", value=check_tenant),)


PLANTS = (
    Plant(
        name="anybody_may_publish",
        what="entries are taken whoever has published them",
        replacements=_anybody_may_publish,
    ),
    Plant(
        name="commands_are_believed",
        what="a command is taken that no decision of the log has led to",
        replacements=_commands_are_believed,
    ),
    Plant(
        name="a_forged_entry_stops_its_job",
        what="whoever forges an entry about a job stops buying for it",
        replacements=_a_forged_entry_stops_its_job,
    ),
    Plant(
        name="retries_are_believed",
        what="an entry is taken that pretends to be one published again by a person",
        replacements=_retries_are_believed,
    ),
    Plant(
        name="any_tenant_speaks_for_a_job",
        what="a tenant cancels or reports on the job of another",
        replacements=_any_tenant_speaks_for_a_job,
    ),
)
