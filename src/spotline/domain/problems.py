"""All that is wrong with a value, said at once."""

from __future__ import annotations

from collections.abc import Iterable


class Problems(ValueError):
    """Several things are wrong with one value; each of `problems` begins with its field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def refuse_any(problems: Iterable[str]) -> None:
    """Raise `Problems` where there are any."""
    found = tuple(problems)
    if found:
        raise Problems(found)


def problems_of(error: ValueError) -> tuple[str, ...]:
    """What an error says is wrong, one by one."""
    return error.problems if isinstance(error, Problems) else (str(error),)
