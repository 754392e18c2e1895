"""Which submitted jobs the ledger holds, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.rows import OwnedRows, columns_of, value_of
from spotline.application.cloud_actuator.ports import Admission


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

    def admissions(self) -> Sequence[str]:
        """The ids of all jobs that are held, in order."""
        return [row.job_id for row in self._read(t.admissions, order=[t.admissions.c.job_id])]

    def admitted(self, job_ids: Sequence[str]) -> Mapping[str, Admission]:
        """Those of these jobs that are held: with another digest, it is another submission's."""
        rows = self._read_keyed(t.admissions, t.admissions.c.job_id, job_ids)
        return {row.job_id: value_of(Admission, row) for row in rows}
