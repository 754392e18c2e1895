"""An assessment as JSON: the keys of the page, money in micro-units of its currency."""

from __future__ import annotations

from typing import Any

from spotline.adapters.assessment.sources import AssessmentSources
from spotline.application.assessment.answer import (
    Assessment,
    BreakEven,
    JobLine,
    MoneySpread,
    SlackAnswer,
)
from spotline.application.assessment.words import verdict
from spotline.domain.units import NS_PER_S, utc_iso


def as_json(told: Assessment, sources: AssessmentSources) -> dict[str, Any]:
    """All that the page shows, and every job."""
    bill = told.bill
    return {
        "verdict": verdict(told),
        "currency": bill.currency,
        "from": utc_iso(bill.begin_s * NS_PER_S),
        "to": utc_iso(bill.end_s * NS_PER_S),
        "bill_micro": bill.paid_micro,
        "unused_commitments_micro": bill.unused_micro,
        "apart_micro": bill.apart_micro,
        "paid_micro": told.paid_micro,
        "on_demand_micro": told.on_demand_micro,
        "jobs_assessed": len(told.jobs),
        "jobs_lived": told.lived,
        "slacks": [_slack(answer) for answer in told.answers],
        "left_out": [
            {"why": left.why, "jobs": left.jobs, "micro": left.micro} for left in told.left_out
        ],
        "findings": [
            {"kind": found.kind, "rows": found.rows, "micro": found.micro, "what": found.what}
            for found in bill.findings
        ],
        "assumptions": _assumptions(told),
        "jobs": [_job(line) for line in told.jobs],
        "sources": {
            "command": sources.command,
            "spotline": sources.version,
            "files": [
                {"option": file.option, "path": file.path, "sha256": file.sha256}
                for file in sources.files
            ],
        },
    }


def _slack(answer: SlackAnswer) -> dict[str, Any]:
    return {
        "slack": answer.slack_ppm / 1e6,
        "paid": {"late": answer.ran_late_ppm / 1e6},
        "spot_plain": {**_spread(answer.spot_plain), "late": answer.late_ppm / 1e6},
        "spotline": {
            **_spread(answer.spotline),
            "missed": answer.missed,
            "lives": answer.lives,
        },
        "saving": {**_spread(answer.saving), "told_from_0": answer.saves},
        "break_even": {
            "as_paid": _break_even(answer.as_paid),
            "as_on_demand": _break_even(answer.as_on_demand),
        },
    }


def _spread(spread: MoneySpread) -> dict[str, int]:
    return {
        "p10_micro": spread.p10_micro,
        "p50_micro": spread.p50_micro,
        "p90_micro": spread.p90_micro,
        "mean_micro": spread.mean_micro,
    }


def _break_even(found: BreakEven) -> dict[str, Any]:
    share = found.share_ppm / 1e6 if found.ahead == "from" else None
    return {"ahead": found.ahead, "share_of_time_with_spot": share}


def _assumptions(told: Assessment) -> dict[str, Any]:
    stated = told.assumptions
    return {
        "launch_s": stated.launch_s,
        "checkpoint_every_s": stated.lost_s,
        "spot_price_share": stated.spot_share_ppm / 1e6,
        "futures": stated.futures,
        "seed": stated.seed,
        "priors_sha256": told.priors_sha256,
        "priors": [
            {
                "kind": use.kind,
                "jobs": use.jobs,
                "share_of_time_with_spot": {
                    name: share / 1e6 for name, share in use.share_ppm.items()
                },
            }
            for use in told.priors
        ],
        "spot_prices": [
            {
                "from": use.source.value,
                "jobs": use.jobs,
                "began_before_history": use.held,
                "mean_share_of_list": use.mean_ppm / 1e6,
            }
            for use in told.prices
        ],
    }


def _job(line: JobLine) -> dict[str, Any]:
    job = line.assessed.job
    return {
        "job_id": job.job_id,
        "owner": job.owner,
        "instance_type": job.machine.instance_type,
        "zone": job.machine.zone,
        "instances": job.instances,
        "from": utc_iso(job.begin_s * NS_PER_S),
        "work_s": job.work_s,
        "restarts": job.restarts,
        "rebuilt_by": job.rebuilt_by.value,
        "paid_micro": job.paid_micro,
        "on_demand_micro": line.on_demand_micro,
        "spotline_p50_micro": list(line.spotline_micro),
        "lived_itself": line.own_life,
    }
