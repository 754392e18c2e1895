"""What follows when a limit is reached."""

from __future__ import annotations

from enum import Enum


class LimitAction(Enum):
    """What follows when a limit is reached; see `limits.proto`."""

    STOP = "stop"
    WIND_DOWN = "wind_down"
    FINISH = "finish"
    WAIT = "wait"
