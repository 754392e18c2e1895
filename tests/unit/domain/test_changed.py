"""Values with some fields changed, as `dataclasses.replace` makes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from spotline.domain.changed import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    first: int
    last: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"last must be >= first ({self.first}), was {self.last}")


SPAN = Span(first=2, last=5, name="a")


def test_other_fields_stay() -> None:
    assert changed(SPAN, last=7, name="b") == replace(SPAN, last=7, name="b")
    assert changed(SPAN) == SPAN


def test_what_its_type_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="last must be >= first"):
        changed(SPAN, last=1)
    with pytest.raises(TypeError, match="middle"):
        changed(SPAN, middle=3)
