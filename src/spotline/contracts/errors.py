"""Errors that cross a boundary, and what the shell does about each.

SpotlineError
├── ContractError            bytes or a file break the contract: dead-letter, alert, go on
├── ConfigError              cannot start: exit 2
├── ProviderUnavailable      passing: retry with backoff
│   └── Throttled            ... after `retry_after_s`
├── UnknownOutcome           a launch was sent and not answered: look it up by its token
├── LogCut                   entries that were stored are gone: end; a restart goes on without them
├── LedgerDamaged            the ledger is not what was written: stop, exit 2, a person restores it
└── InvariantViolation       our bug: crash; a restart refolds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SpotlineError(Exception):
    """Root of every error Spotline raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One field that is wrong: its path in the message, empty for the whole; and what is wrong."""

    field: str
    description: str


class ContractError(SpotlineError):
    """Something from outside breaks the contract; `where` names the field, row or subject.

    A message that breaks it in several fields has all of them in `violations`, the first of which
    is told by `where` and `problem`; what is no message has none.
    """

    def __init__(self, where: str, problem: str, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem
        self.violations = tuple(violations)


class ConfigError(SpotlineError):
    """A setting, file or server makes it impossible to start."""


class ProviderUnavailable(SpotlineError):
    """A cloud does not answer for now."""


class Throttled(ProviderUnavailable):
    """A cloud asks us to slow down."""

    def __init__(self, provider: str, retry_after_s: float) -> None:
        super().__init__(f"{provider} throttled us, retry after {retry_after_s} s")
        self.retry_after_s = retry_after_s


class UnknownOutcome(SpotlineError):
    """A launch was sent and no answer came: only the cloud knows what it did.

    It is looked up by token and tag; to send it again, or with a new token, may launch it twice.
    """

    def __init__(self, provider: str, token: str, problem: str) -> None:
        super().__init__(f"{provider} did not answer launch {token}: {problem}")
        self.token = token
        self.problem = problem


class LogCut(SpotlineError):
    """Entries of a log that were stored, and acknowledged, are not there any more.

    `last_seq` is where the log ends, `known_seq` the last entry that was known; both 0 where the
    stream itself is gone, or is another one.
    """

    def __init__(self, stream: str, problem: str, *, last_seq: int = 0, known_seq: int = 0) -> None:
        super().__init__(
            f"the log {stream} was cut: {problem}; a start goes on with what is there, as another "
            "incarnation; look with spotline store check"
        )
        self.stream = stream
        self.last_seq = last_seq
        self.known_seq = known_seq


class LedgerDamaged(SpotlineError):
    """What the ledger holds is not what was written; `table` and `key` say where, as far as known."""

    def __init__(self, table: str, key: str, problem: str) -> None:
        where = f"{table} ({key})" if key else table
        super().__init__(
            f"the ledger is damaged in {where}: {problem}; nothing is bought on it: look with spotline store "
            "check, restore it from a copy (spotline store restore), then start again"
        )
        self.table = table
        self.key = key


class Unauthenticated(SpotlineError):
    """What a caller showed proves nobody; the message never holds what was shown."""


class AuditUnavailable(SpotlineError):
    """The audit cannot be written: what would have been recorded is not to be done."""


class InvariantViolation(SpotlineError):
    """Something that cannot be has happened: a bug."""
