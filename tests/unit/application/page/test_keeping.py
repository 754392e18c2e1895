"""What the book keeps comes back as it was, and is not changed by what follows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from spotline.application.page.applied import applied
from spotline.application.page.keeping import copied, read, written
from spotline.replay.recorded import readable_events
from tests.fakes.recorded_run import small_run


@dataclass(frozen=True)
class Frozen:
    number: int


@dataclass(slots=True)
class Mutable:
    named: dict[str, list[int]] = field(default_factory=dict)
    last: deque[Frozen] = field(default_factory=lambda: deque(maxlen=2))
    both: tuple[list[int], Frozen] = field(default_factory=lambda: ([], Frozen(0)))


def test_events_come_back_as_they_were() -> None:
    told = [
        applied(found.event, found.envelope, found.seq) for found in readable_events(small_run())
    ]

    assert read(written(told)) == told
    assert read(written([replace(event, payload=b"") for event in told])) == told


def test_a_copy_is_equal_and_changes_alone() -> None:
    state = Mutable(named={"a": [1]}, last=deque([Frozen(1), Frozen(2)], maxlen=2))
    made = copied(state)
    assert made == state

    made.named["a"].append(2)
    made.last.append(Frozen(3))
    made.both[0].append(7)

    assert state.named == {"a": [1]}
    assert list(state.last) == [Frozen(1), Frozen(2)]
    assert state.both == ([], Frozen(0))
    assert list(made.last) == [Frozen(2), Frozen(3)]


def test_what_is_shared_inside_is_shared_inside_the_copy_and_what_is_frozen_with_it() -> None:
    shared, frozen = [1], Frozen(1)
    made = copied({"one": shared, "other": shared, "frozen": frozen})

    assert made["one"] is made["other"]
    assert made["one"] is not shared
    assert made["frozen"] is frozen
