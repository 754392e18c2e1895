"""Which submitted jobs the ledger holds, and what the log said of them, in SQL."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.rows import OwnedRows, Transaction, columns_of, value_of
from spotline.adapters.ledger.statements import owned
from spotline.application.cloud_actuator.ports import Admission
from spotline.contracts.codec import decode, encode
from spotline.contracts.errors import LedgerDamaged
from spotline.contracts.subjects import KINDS
from spotline.domain.ledger.job_records import JobEvent, JobRecord

_ADMISSIONS = owned(t.admissions)
_ADMISSIONS_BY_JOB = owned(t.admissions, order=[t.admissions.c.job_id])
_JOB_RECORDS = owned(t.job_records, order=[t.job_records.c.position])


class AdmissionRows(OwnedRows):
    """Holds what `Ledger` says of admissions."""

    def admit(self, admissions: Sequence[Admission]) -> None:
        """Hold these jobs, as one transaction; those held already stay as they are."""
        first: dict[str, Admission] = {}
        for admission in admissions:
            first.setdefault(admission.job_id, admission)
        with self._writing() as transaction:
            rows = transaction.read_keyed(t.admissions, t.admissions.c.job_id, sorted(first))
            known = {row.job_id for row in rows}
            transaction.add(
                t.admissions,
                [
                    columns_of(t.admissions, admission)
                    for job_id, admission in first.items()
                    if job_id not in known
                ],
            )
            _record(transaction, [each.record for each in admissions if each.record is not None])

    def admitted_ids(self) -> Sequence[str]:
        """The ids of all jobs that are held, in order."""
        return [row.job_id for row in self._read(_ADMISSIONS_BY_JOB)]

    def admitted(self, job_ids: Sequence[str]) -> Mapping[str, Admission]:
        """Those of these jobs that are held: with another digest, it is another submission's."""
        rows = self._read_keyed(t.admissions, t.admissions.c.job_id, job_ids)
        return {row.job_id: value_of(Admission, row, record=None) for row in rows}

    def admissions(self) -> Sequence[Admission]:
        """All jobs that are held, by id, without what the log said of them."""
        return [value_of(Admission, row, record=None) for row in self._read(_ADMISSIONS)]

    def note_jobs(self, records: Sequence[JobRecord]) -> None:
        """Hold what the log says of jobs, as one transaction; idempotent by event id."""
        with self._writing() as transaction:
            _record(transaction, records)

    def job_records(self) -> Sequence[JobRecord]:
        """What the log said of jobs, in the order in which it was noted.

        Raises
        ------
        ContractError
            An event is of a newer release than this one.
        """
        return [
            JobRecord(
                event_id=row.event_id,
                correlation_id=row.correlation_id,
                job_id=row.job_id,
                event=_event(row.event_id, row.kind, row.payload),
            )
            for row in self._read(_JOB_RECORDS)
        ]


def _event(event_id: str, kind: str, payload: str) -> JobEvent:
    event = decode(kind, base64.b64decode(payload))
    if not isinstance(event, JobEvent):
        key = f"event_id={event_id!r}"
        raise LedgerDamaged(t.job_records.name, key, f"holds {kind}, which is not said of a job")
    return event


def _record(transaction: Transaction, records: Sequence[JobRecord]) -> None:
    first: dict[str, JobRecord] = {}
    for record in records:
        first.setdefault(record.event_id, record)
    rows = transaction.read_keyed(t.job_records, t.job_records.c.event_id, sorted(first))
    known = {row.event_id for row in rows}
    fresh = [record for event_id, record in first.items() if event_id not in known]
    if not fresh:
        return
    position = transaction.next(t.job_records.c.position)
    transaction.add(
        t.job_records,
        [
            columns_of(t.job_records, record)
            | {
                "position": position + place,
                "kind": KINDS[type(record.event)],
                "payload": base64.b64encode(encode(record.event)).decode("ascii"),
            }
            for place, record in enumerate(fresh)
        ],
    )
