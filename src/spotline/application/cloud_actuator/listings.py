"""What a cloud shows where a part of it does not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spotline.application.cloud_actuator.ports import Instance


class PartialListing(tuple[Instance, ...]):
    """A listing where a part of the cloud did not answer: of `silent` offerings it says nothing new.

    What was last shown there stands. That something is not in it proves nothing.
    """

    silent: frozenset[str]

    def __new__(cls, instances: Iterable[Instance], silent: Iterable[str]) -> PartialListing:
        """The instances, and the ids of silent offerings."""
        made = super().__new__(cls, instances)
        made.silent = frozenset(silent)
        return made


def silent_in(listing: Sequence[Instance]) -> frozenset[str]:
    """The offerings of which a listing says nothing new."""
    return listing.silent if isinstance(listing, PartialListing) else frozenset()
