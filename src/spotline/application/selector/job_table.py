"""The value tables of one job, as the selector follows them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.domain.market.named_law import NamedLaw
from spotline.domain.solvers.table_spec import TableSpec


@dataclass(slots=True, kw_only=True)
class JobTable:
    """A value table that was asked for in `slot`: when the job was admitted, or became another.

    A `stale` one is of what is no longer believed, until the new one is asked for. It was announced
    in `ready_slot`, None: not yet. `before` is the one that it replaces as prices have moved: decisions
    look into that until this one is built.
    """

    spec: TableSpec
    named: NamedLaw
    slot: int = -1
    stale: bool = False
    ready_slot: int | None = None
    before: JobTable | None = None

    @property
    def is_announced(self) -> bool:
        """Whether a decision may name it and finds it built; of one of a job's own nobody asks."""
        return not self.spec.shared or self.ready_slot is not None

    @property
    def named_after_slot(self) -> int:
        """The last slot whose decisions do not name it; of its own, a job waits for no announcement."""
        return max(self.slot, self.ready_slot or 0) if self.spec.shared else self.slot

    def named_in(self, slot: int) -> JobTable | None:
        """The table that decisions of a slot name: this one, the one before it, or none yet."""
        if self.is_announced and slot > self.named_after_slot:
            return self
        return None if self.before is None else self.before.named_in(slot)

    def replaced_by(self, spec: TableSpec, named: NamedLaw, slot: int) -> JobTable:
        """The table that is asked for instead in `slot`."""
        kept = None if self.stale else self.named_in(slot)
        if kept is not None:
            kept = replace(kept, before=None)
        return JobTable(spec=spec, named=named, slot=slot, before=kept)
