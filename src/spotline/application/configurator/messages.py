"""What is asked of the configurator and what it answers, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spotline.application.market_view import ClockReading
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Prediction
from spotline.domain.configuration.interface import SourceDescription
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job, Throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """Make a whole job of a draft, with a knowledge source (empty: the default)."""

    message_name: ClassVar[str] = "CompleteRequest"

    draft: JobDraft
    source_id: str = ""
    most_options: int = 0

    def __post_init__(self) -> None:
        if self.most_options < 0:
            raise ValueError(f"most_options must be >= 0, was {self.most_options}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationOption:
    """A complete configuration, what it would cost to meet the deadline with it, and why (not).

    `configuration` is that of the largest of `allowed_counts` on `instance_type`; `offering_id` is
    the one where it is cheapest, planned with `policy_id`.
    """

    configuration: Configuration
    instance_type: str
    offering_id: str
    allowed_counts: tuple[int, ...]
    throughput: Throughput
    tokens_per_s: float
    low_tokens_per_s: float
    high_tokens_per_s: float
    success_ppm: int
    expected_cost_micro_usd: int
    on_time_probability_ppm: int
    expected_utility_micro_usd: int
    policy_id: str
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The whole job with the origin of every value, and the best of the `considered` options."""

    message_name: ClassVar[str] = "CompleteResponse"

    job: Job
    options: tuple[ConfigurationOption, ...]
    considered: int
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """Say how configurations would run, on a stack (empty: the service's own)."""

    message_name: ClassVar[str] = "PredictRequest"

    configurations: tuple[Configuration, ...]
    source_id: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionAnswer:
    """What is expected of one configuration, or the `reason` why nothing is."""

    prediction: Prediction | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionAnswers:
    """One answer per configuration, in order."""

    message_name: ClassVar[str] = "PredictResponse"

    answers: tuple[PredictionAnswer, ...]
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Measured runs to add to what is known."""

    message_name: ClassVar[str] = "LearnRequest"

    runs: tuple[MeasuredRun, ...]
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRun:
    """A run that was not taken: its index in the lesson, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonReceipt:
    """How many runs were recorded, and which were not."""

    message_name: ClassVar[str] = "LearnResponse"

    recorded: int
    refused: tuple[RefusedRun, ...] = ()
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSources:
    """All sources by name, the default one, and the software stack that is assumed."""

    message_name: ClassVar[str] = "SourcesResponse"

    default_source_id: str
    stack: str
    sources: tuple[SourceDescription, ...]
    clock: ClockReading | None = None
