"""Where the time of an event goes, by cProfile."""

from __future__ import annotations

import cProfile
import pstats
from collections import defaultdict
from typing import Any

# The first part of a path that fits names the group.
_GROUPS = (
    ("spotline/adapters/faust/inbox", "reading: protocol"),
    ("spotline/adapters/faust/reader", "reading: records"),
    ("/nats/", "reading: nats-py"),
    ("asyncio/streams", "reading: nats-py"),
    ("spotline/adapters/faust/messages", "messages and headers"),
    ("spotline/adapters/faust/names", "messages and headers"),
    ("faust/types/tuples", "messages and headers"),
    ("spotline/adapters/faust/decoding", "decoding"),
    ("faust/serializers", "decoding"),
    ("faust/utils/json", "decoding"),
    ("/json/", "decoding"),
    ("faust/events", "decoding"),
    ("faust/app", "decoding"),
    ("spotline/adapters/faust/conductor", "handing over"),
    ("spotline/adapters/faust/consumer", "handing over"),
    ("spotline/adapters/faust/progress", "committing"),
    ("spotline/adapters/faust/changelog", "changelog"),
    ("spotline/adapters/faust/producer", "changelog"),
    ("spotline/adapters/faust/publisher", "changelog"),
    ("faust/transport", "handing over"),
    ("mode/utils/queues", "Faust: stream and queue"),
    ("asyncio/queues", "Faust: stream and queue"),
    ("faust/streams", "Faust: stream and queue"),
    ("faust/_cython", "Faust: stream and queue"),
    ("faust/channels", "Faust: stream and queue"),
    ("faust/topics", "Faust: stream and queue"),
    ("faust/sensors", "Faust: monitor"),
    ("faust/tables", "Faust: table and window"),
    ("faust/stores", "Faust: table and window"),
    ("faust/windows", "Faust: table and window"),
    ("mode/utils/collections", "Faust: table and window"),
    ("faust/types/settings", "Faust: settings"),
    ("faust/", "Faust: other"),
    ("mode/", "Faust: other"),
    ("spotline/bench", "the agent itself"),
)
_OTHER = "event loop and other"


def group_shares(profile: cProfile.Profile) -> dict[str, float]:
    """The share of profiled time in each group, largest first; they sum to 1.

    What is written in C counts for who called it. The profiler charges per call, so what calls
    much looks more expensive than it is.
    """
    stats: Any = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    spent: dict[str, float] = defaultdict(float)
    for function, (_, _, own_s, _, callers) in stats.items():
        if function[0] != "~" or not callers:
            spent[_group(function)] += own_s
            continue
        for caller, (_, _, caller_own_s, _) in callers.items():
            spent[_group(caller)] += caller_own_s
    total = sum(spent.values()) or 1.0
    return {
        name: seconds / total
        for name, seconds in sorted(spent.items(), key=lambda one: (-one[1], one[0]))
    }


def _group(function: tuple[str, int, str]) -> str:
    path = function[0].replace("\\", "/")
    return next((name for part, name in _GROUPS if part in path), _OTHER)
