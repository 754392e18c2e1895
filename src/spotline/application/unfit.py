"""What a handler says of an event that does not fit what it knows."""

from __future__ import annotations


class Unfit(ValueError):
    """An event that was read and cannot be taken: which field, what was expected, what was found.

    A turn that ends so leaves the state as it was, and the event is parked with this as its reason.
    """

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field} must be {expected}, was {found}")
        self.field = field
        self.expected = expected
        self.found = found


class Unproven(Unfit):
    """An event that nothing in the log bears out: a command without a decision, another's job.

    It says nothing of the job that it names: nothing follows from it but that people are told.
    """


class Forged(Unproven):
    """An event of a source that may not publish it, or that no entry of the log has led to."""


NOT_BELIEVED = frozenset({Unproven.__name__, Forged.__name__})
"""The `error_type` of what was parked because it was not believed.

Nothing may follow from that: or whoever forges an entry stops a job, or a market, by it.
"""
