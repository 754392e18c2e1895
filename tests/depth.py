"""How many examples a property test draws: few in every run, many in `make test-slow`."""

import os


def examples(deep: int) -> int:
    """A third of `deep`, at least 5; all of them where SPOTLINE_DEEP is set."""
    return deep if os.environ.get("SPOTLINE_DEEP") else max(5, deep // 3)
