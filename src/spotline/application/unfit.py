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
