"""Queues and rules as a fold over the records of a log: what was sent is there after a restart.

A record has `at_ns` (market time), `kind`, and what it is about. Who has received a message is not
recorded: after a restart it comes again, as it may at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spotline.rehearsal.aws.queues import QueueMoment, RehearsedQueue
from spotline.rehearsal.aws.state import Record
from spotline.rehearsal.aws.state_log import BrokenLog, StateLog

Key = tuple[str, str, str]
"""Account, region and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusRule:
    """A rule on the default bus of an account in a region; `targets` are ARNs by id."""

    name: str
    account_id: str
    region: str
    pattern: str
    state: str = "ENABLED"
    description: str = ""
    targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:events:{self.region}:{self.account_id}:rule/{self.name}"

    @property
    def key(self) -> Key:
        """Where it is."""
        return (self.account_id, self.region, self.name)


class Messaging:
    """All queues and rules. They change by records only, and each is in the log first.

    Parameters
    ----------
    log
        Where records go; None: nothing is kept.
    copied_share
        Messages that come twice, drawn by `seed`.
    """

    def __init__(
        self, log: StateLog | None = None, *, seed: int = 0, copied_share: float = 0.0
    ) -> None:
        self.queues: dict[Key, RehearsedQueue] = {}
        self.rules: dict[Key, BusRule] = {}
        self._log = log
        self._seed = seed
        self._copied_share = copied_share

    def restore(self, records: Iterable[Record]) -> None:
        """Take in what was before.

        Raises
        ------
        BrokenLog
            A record is none of these.
        """
        for record in records:
            try:
                self._apply(record)
            except (KeyError, TypeError) as error:
                raise BrokenLog(f"no record of queues and rules: {record} ({error!r})") from error

    def record(self, kind: str, key: Key, at: QueueMoment, **said: Any) -> None:
        """Write a record, and let it be so."""
        record = {
            "at_ns": at.market_ns,
            "kind": kind,
            "key": list(key),
            "wall_ns": at.wall_ns,
            **said,
        }
        if self._log is not None:
            self._log.append(record)
        self._apply(record)

    def put_rule(self, rule: BusRule, at: QueueMoment) -> None:
        """Have a rule as it is given."""
        self.record("rule", rule.key, at, rule=asdict(rule))

    def _apply(self, record: Record) -> None:
        account_id, region, name = record["key"]
        at = QueueMoment(market_ns=record["at_ns"], wall_ns=record["wall_ns"])
        _APPLY[record["kind"]](self, (account_id, region, name), record, at)

    def _queue(self, key: Key, record: Record, at: QueueMoment) -> None:
        account_id, region, name = key
        queue = RehearsedQueue(
            name=name,
            account_id=account_id,
            region=region,
            created_ns=at.market_ns,
            seed=self._seed,
            copied_share=self._copied_share,
        )
        queue.set_attributes(record["attributes"], at)
        self.queues[key] = queue

    def _attributes(self, key: Key, record: Record, at: QueueMoment) -> None:
        self.queues[key].set_attributes(record["attributes"], at)

    def _queue_deleted(self, key: Key, record: Record, at: QueueMoment) -> None:
        del self.queues[key]

    def _sent(self, key: Key, record: Record, at: QueueMoment) -> None:
        self.queues[key].send(record["body"], record["sender"], at, record["delay_s"])

    def _deleted(self, key: Key, record: Record, at: QueueMoment) -> None:
        self.queues[key].forget(record["message_id"], is_copy=record["is_copy"])

    def _purged(self, key: Key, record: Record, at: QueueMoment) -> None:
        self.queues[key].purge(at)

    def _rule(self, key: Key, record: Record, at: QueueMoment) -> None:
        self.rules[key] = BusRule(**record["rule"])

    def _rule_deleted(self, key: Key, record: Record, at: QueueMoment) -> None:
        del self.rules[key]


_APPLY: dict[str, Callable[[Messaging, Key, Record, QueueMoment], None]] = {
    "queue": Messaging._queue,
    "attributes": Messaging._attributes,
    "queue_deleted": Messaging._queue_deleted,
    "sent": Messaging._sent,
    "deleted": Messaging._deleted,
    "purged": Messaging._purged,
    "rule": Messaging._rule,
    "rule_deleted": Messaging._rule_deleted,
}
