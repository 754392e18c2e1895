"""How many cases a test goes through: few in every run, all or many in `make test-slow`."""

import os
from collections.abc import Sequence
from typing import TypeVar

CaseT = TypeVar("CaseT")


def examples(deep: int) -> int:
    """A third of `deep`, at least 5; all of them where SPOTLINE_DEEP is set."""
    return deep if os.environ.get("SPOTLINE_DEEP") else max(5, deep // 3)


def every_third(cases: Sequence[CaseT]) -> Sequence[CaseT]:
    """A third of `cases`, spread over all of them; all where SPOTLINE_DEEP is set."""
    return cases if os.environ.get("SPOTLINE_DEEP") else cases[1::3]
