"""How many cases a test goes through: few in every run, all or many in `make test-slow`."""

import os
from collections.abc import Sequence
from typing import TypeVar

CaseT = TypeVar("CaseT")


def examples(deep: int, *, fewest: int = 5) -> int:
    """An eighth of `deep`, but `fewest` or all where that is more; all of them where SPOTLINE_DEEP is set."""
    return deep if os.environ.get("SPOTLINE_DEEP") else min(deep, max(fewest, deep // 8))


def every_third(cases: Sequence[CaseT]) -> Sequence[CaseT]:
    """A third of `cases`, spread over all of them; all where SPOTLINE_DEEP is set."""
    return cases if os.environ.get("SPOTLINE_DEEP") else cases[1::3]
