"""Errors that cross a boundary, and what the shell does about each.

SpotlineError
├── ContractError            bytes or a file break the contract: dead-letter, alert, go on
├── ConfigError              cannot start: exit 2
├── ProviderUnavailable      passing: retry with backoff
│   └── Throttled            ... after `retry_after_s`
├── InsufficientCapacity     expected: publish as an observation, decide again
├── QuotaExceeded            needs a person: alert, stop launching there
├── InstanceNotFound         on terminate: done
└── InvariantViolation       our bug: crash; a restart refolds
"""

from __future__ import annotations


class SpotlineError(Exception):
    """Root of every error Spotline raises on purpose."""


class ContractError(SpotlineError):
    """Something from outside breaks the contract; `where` names the field, row or subject."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class ConfigError(SpotlineError):
    """A setting, file or server makes it impossible to start."""


class ProviderUnavailable(SpotlineError):
    """A cloud does not answer for now."""


class Throttled(ProviderUnavailable):
    """A cloud asks us to slow down."""

    def __init__(self, provider: str, retry_after_s: float) -> None:
        super().__init__(f"{provider} throttled us, retry after {retry_after_s} s")
        self.retry_after_s = retry_after_s


class InsufficientCapacity(SpotlineError):
    """A launch was refused for lack of stock."""

    def __init__(self, offering_id: str, requested: int, granted: int) -> None:
        super().__init__(f"{offering_id}: {requested} instances requested, {granted} in stock")
        self.offering_id = offering_id
        self.requested = requested
        self.granted = granted


class QuotaExceeded(SpotlineError):
    """A cap of ours or of the account forbids a launch."""


class InstanceNotFound(SpotlineError):
    """No such instance; on terminate that means done."""


class InvariantViolation(SpotlineError):
    """Something that cannot be has happened: a bug."""
