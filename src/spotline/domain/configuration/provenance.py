"""Where the values of a completed job come from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from spotline.domain.configuration.configuration import Configuration


class OriginKind(Enum):
    """Who says so: the job's owner, a measurement, a prediction, or no source."""

    USER = "user"
    MEASURED = "measured"
    PREDICTED = "predicted"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterOrigin:
    """A parameter, its value as text, and where that comes from.

    `low` and `high` are a 90 % interval in the parameter's unit, both 0 where there is none;
    `source_id` names the knowledge source of what is predicted or measured.
    """

    parameter: str
    value: str
    kind: OriginKind
    source_id: str = ""
    low: float = 0.0
    high: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        if not self.parameter:
            raise ValueError("parameter of an origin must not be empty")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(
                f"an origin's interval must be finite and low <= high, was {self.low}, {self.high}"
            )

    @property
    def said_by(self) -> str:
        """For people: `user`, `measured`, `predicted by combined`, `default`."""
        if self.kind is OriginKind.PREDICTED and self.source_id:
            return f"predicted by {self.source_id}"
        return self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfiguration:
    """How a completed job is run, and the origin of every value that was needed.

    `configuration` is that of the largest count on the chosen instance type; with `weak_scaling`
    the batch per GPU is the same at every count, else the global batch. `success_ppm` is the
    probability that it runs, `stack` the software that was assumed.
    """

    configuration: Configuration
    weak_scaling: bool
    success_ppm: int
    stack: str
    origins: tuple[ParameterOrigin, ...]

    def origin_of(self, parameter: str) -> ParameterOrigin | None:
        """The origin of one parameter, None where it was not needed."""
        for origin in self.origins:
            if origin.parameter == parameter:
                return origin
        return None
