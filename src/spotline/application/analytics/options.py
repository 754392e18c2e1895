"""The options of `analytics`: which windows it issues, and how long it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotline.domain.statistics.windows import DEFAULT_WINDOWS, S_PER_DAY, WindowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """What is issued, and how long late observations are waited for.

    The watermark is the opening of the latest slot less `delay_slots` of its length: a slot's bills
    are stored only after the next one has opened. What comes up to `grace_s` after a window has
    closed is merged and issued again. `history_s` is how long results can be queried.
    """

    windows: tuple[WindowSpec, ...] = DEFAULT_WINDOWS
    delay_slots: int = 1
    grace_s: int = 3600
    history_s: int = 14 * S_PER_DAY

    def __post_init__(self) -> None:
        if not self.windows or len(set(self.windows)) < len(self.windows):
            raise ValueError("windows must name at least one size and hop, none of them twice")
        for name in ("delay_slots", "grace_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        if self.history_s < self.horizon_s:
            raise ValueError(
                f"history_s must be >= {self.horizon_s} (the longest window and the grace), was "
                f"{self.history_s}"
            )

    @property
    def horizon_s(self) -> int:
        """How long an observation can matter after its end."""
        return max(spec.size_s for spec in self.windows) + self.grace_s

    def settings(self) -> dict[str, Any]:
        """As a log's manifest holds them; `options_of` reads them back."""
        return {
            "windows": [[window.size_s, window.hop_s] for window in self.windows],
            "delay_slots": self.delay_slots,
            "grace_s": self.grace_s,
            "history_s": self.history_s,
        }


def options_of(settings: Mapping[str, Any]) -> StatisticsOptions:
    """The options among a manifest's settings of `analytics`; what is not stated is the default.

    Raises
    ------
    ValueError
        A stated value is malformed; the message begins with its name.
    """
    stated: dict[str, Any] = {}
    for name in ("delay_slots", "grace_s", "history_s"):
        value = settings.get(name, getattr(StatisticsOptions(), name))
        if type(value) is not int:
            raise ValueError(f"{name} must be a whole number, was {value!r}")
        stated[name] = value
    if "windows" in settings:
        stated["windows"] = tuple(_spec(window) for window in _list(settings["windows"]))
    return StatisticsOptions(**stated)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"windows must be a list, was {value!r}")  # noqa: TRY004 - a setting
    return value


def _spec(value: Any) -> WindowSpec:
    whole = (
        isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value)
    )
    if not whole:
        raise ValueError(f"windows must be pairs of size and hop in seconds, was {value!r}")
    return WindowSpec(size_s=value[0], hop_s=value[1])
