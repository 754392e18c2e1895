"""Say again in a log what it lost of jobs and spend, and the ledger knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from spotline.application.cloud_actuator.ports import Ledger
from spotline.application.cloud_actuator.retelling import (
    TAKES,
    LogOfJobs,
    Retold,
    lost_jobs,
    retold,
    unknown_jobs,
)
from spotline.application.incarnations import FIRST, LogRemembered
from spotline.contracts.batch import unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import subjects_with
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.runtime.log_settling import LastingLog, settled_log

_log = structlog.get_logger(__name__)


async def tell_again(
    stream: LastingLog, ledger: Ledger, remembered: LogRemembered
) -> Sequence[Retold]:
    """Say again what a log lacks that lost entries; idempotent.

    A log that does not know a job which the ledger admitted has lost entries: it goes on as another
    incarnation. Jobs that were admitted before the ledger held submissions cannot be said again:
    they are named.
    """
    missing = await missing_in(stream, ledger)
    if stream.incarnation == FIRST:
        if not missing.lost:
            return ()
        reason = lost_jobs_detail(missing.lost)
        await settled_log(stream, replace(remembered, restored=reason))
    for job_id in missing.unknown:
        _log.error("job_lost", job_id=job_id, reason="the ledger does not hold its submission")
    for told in missing.retold:
        envelope = envelope_for(
            told.event,
            event_id=told.event_id,
            source=told.source,
            causation_id="",
            correlation_id=told.correlation_id,
        )
        await stream.publish([envelope])
        if isinstance(told.event, JobSubmitted):
            _log.warning("job_submitted_again", job_id=told.event.job.job_id)
    return missing.retold


def lost_jobs_detail(job_ids: Sequence[str]) -> str:
    """Say that a log lacks jobs, in a line."""
    return f"the ledger admitted {len(job_ids)} jobs that the log does not know"


class Missing:
    """What a log lacks: `retold` can be said again, `lost` are the jobs of it, `unknown` cannot."""

    def __init__(
        self, retold: Sequence[Retold], lost: Sequence[str], unknown: Sequence[str]
    ) -> None:
        self.retold = retold
        self.lost = lost
        self.unknown = unknown


async def missing_in(stream: LastingLog, ledger: Ledger) -> Missing:
    """Compare a log with a ledger; changes neither."""
    log = await _log_of_jobs(stream)
    records = await ledger.job_records()
    admitted = await ledger.admitted_ids()
    charged = [charge.cost for charge in await ledger.charges_since(0)]
    return Missing(
        retold=tuple(retold(records, charged, log)),
        lost=lost_jobs(records, log),
        unknown=unknown_jobs(admitted, records, log),
    )


async def _log_of_jobs(stream: LastingLog) -> LogOfJobs:
    log = LogOfJobs()
    last_seq = await stream.last_seq()
    async for entry in stream.read(subjects_with(TAKES), last_seq=last_seq):
        try:
            events = [(event_of(event), event.envelope()) for event in unpacked(entry)]
        except ContractError:
            continue  # those who consume it have said so
        for event, envelope in events:
            log.fold(event, envelope.event_id)
    return log
