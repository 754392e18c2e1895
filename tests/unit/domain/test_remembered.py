"""Results by the very object that they are of."""

from __future__ import annotations

from spotline.domain.remembered import BySelf


def test_an_object_is_known_again_and_its_like_is_another() -> None:
    made: list[tuple[int, ...]] = []

    def total(values: tuple[int, ...]) -> int:
        made.append(values)
        return sum(values)

    totals = BySelf(total, 8)
    first, like = tuple([1, 2]), tuple([1, 2])

    assert [totals.of(first), totals.of(first), totals.of(like)] == [3, 3, 3]
    assert len(made) == 2


def test_the_older_half_goes_when_there_are_too_many() -> None:
    made: list[str] = []

    def known(name: str) -> str:
        made.append(name)
        return name

    names = [f"job {index}" for index in range(5)]
    remembered = BySelf(known, 4)
    for name in names:
        remembered.of(name)

    # The fifth let the first two go.
    assert [remembered.of(name) for name in names[2:]] == names[2:]
    assert made == names
    assert remembered.of(names[0]) == names[0]
    assert made == [*names, names[0]]
