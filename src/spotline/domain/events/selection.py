"""Events of policy selection: `selection.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.selection.regret import SelectionRegret


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeight:
    """A policy's weight, and its utility for the job that moved the weights."""

    policy_id: str
    weight_ppb: int
    utility_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeightsUpdated:
    """The weights after one more job's feedback; utilities are those of a full replay.

    The floor and ceiling scale utilities to [0, 1] for rules that need it. `rehearsed_slot` is -1
    for a job that ended, else the past slot from which an arriving job was rehearsed. `regret`
    includes this job; it is None before the first job has ended. Where spot counts were only
    believed, utilities are means over `sampled_paths` of them (0: counts were known), whose law is
    at most `misfit_ppm` of total variation from the belief by all that was seen.
    """

    round: int
    job_id: str
    rule: str
    weights: tuple[PolicyWeight, ...]
    rehearsed_slot: int
    utility_floor_micro_usd: int
    utility_ceiling_micro_usd: int
    regret: SelectionRegret | None = None
    sampled_paths: int = 0
    misfit_ppm: int = 0
