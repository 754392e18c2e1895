"""The queues that our own EventBridge rules fill: read, stored, and only then deleted.

A look is made in a thread from start to end: whoever waits for it may be cancelled in the middle, and
nothing that SQS handed out is forgotten until it hands it out again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial

import structlog

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached, is_passing
from spotline.adapters.clouds.aws.parse import Message, MessageKind, bodies, message_of
from spotline.adapters.clouds.aws.settings import ANNOUNCED_S, AwsSettings
from spotline.adapters.clouds.aws.store import AwsStore, ToldEvent
from spotline.application.cloud_actuator.ports import (
    CloudClock,
    CloudEventKind,
    InstanceState,
)
from spotline.contracts.errors import ContractError, Throttled
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

_BATCH = 10  # the most that SQS hands out at once
# Messages that were handed out and not deleted come again after this (as Karpenter's): a kill between
# the two must not use up the two minutes of a notice.
_VISIBILITY_S = 20
# A queue that is full of others' messages must not hold up a step.
_MOST_LOOKS = 20
_TRIES = 3
# Of the time that a call has this much is for the answer.
_ANSWER_S = 5
# Wall seconds: then a step goes on without what a queue may hold, which its look still takes.
DRAINED_WITHIN_S = 15.0
_BETWEEN_S = 1.0
# Wall seconds. A missing right does not come back within moments, an answer does.
_SHORT_REST_S, _REST_S = 0.2, 5.0


class Queues:
    """Looks into all queues, at the same time; one long look at a queue is under way at most."""

    def __init__(
        self, api: AwsApi, store: AwsStore, settings: AwsSettings, clock: CloudClock
    ) -> None:
        self._api, self._store, self._clock = api, store, clock
        # A look that waits as long as its call may take would never hear anything.
        longest_s = max(0, int(settings.read_timeout_s) - _ANSWER_S)
        self._wait_s = min(settings.queue_wait_s, longest_s)
        self._urls = dict(_urls(settings))
        self._looks: dict[AwsPlace, Future[None]] = {}
        self._drains: dict[AwsPlace, Future[None]] = {}
        self._closed = threading.Event()

    @property
    def places(self) -> frozenset[AwsPlace]:
        """Where a queue is."""
        return frozenset(self._urls)

    def urls(self) -> Mapping[AwsPlace, str]:
        """The queue of each place."""
        return dict(self._urls)

    async def drain(self) -> None:
        """Take what lies in the queues now.

        A queue that fails is told in the log: what happens to instances is shown by listings, too.

        Raises
        ------
        Throttled
            AWS asks us to slow down.
        """
        if not self._urls:
            return
        for place in self._urls:
            drain = self._drains.get(place)
            if drain is None or drain.done():
                self._drains[place] = self._api.start(partial(self._drain, place))
        waited = {place: asyncio.wrap_future(self._drains[place]) for place in self._urls}
        try:
            await asyncio.wait(waited.values(), timeout=DRAINED_WITHIN_S)
        finally:
            late = {place for place, one in waited.items() if not one.done()}
            for place in late:
                waited[place].cancel()
        for place, one in waited.items():
            silent = NoAnswer(f"not read within {DRAINED_WITHIN_S:g} s")
            error = silent if place in late else one.exception()
            if error is not None:
                self._say(place, error)

    async def wait(self) -> None:
        """Return when some long look is over; a failed one rests first.

        Raises what nobody expects of a look.
        """
        if not self._urls:
            await asyncio.Event().wait()
        for place in self._urls:
            look = self._looks.get(place)
            if look is None or look.done():
                self._looks[place] = self._api.start(partial(self._look_on, place))
        # A future of a thread that runs cannot be cancelled: it goes on, and is found here again.
        waiting = [asyncio.wrap_future(look) for look in self._looks.values()]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                if one.done() and not one.cancelled():
                    one.exception()
                else:
                    one.cancel()
        for one in done:
            one.result()

    def close(self) -> None:
        """Begin no further look."""
        self._closed.set()

    # --- in a thread --------------------------------------------------------------------------

    def _drain(self, place: AwsPlace) -> None:
        tries = _TRIES
        for _ in range(_MOST_LOOKS):
            try:
                if self._closed.is_set() or not self._take(place, wait_s=0):
                    return
            except (AwsRefused, NotReached, NoAnswer) as error:
                tries -= 1
                if not tries or not is_passing(error):
                    raise

    def _look_on(self, place: AwsPlace) -> None:
        try:
            if not self._closed.is_set() and not self._take(place, wait_s=self._wait_s):
                # SQS has waited, or nobody has.
                self._closed.wait(0.0 if self._wait_s else _BETWEEN_S)
        except (AwsRefused, NotReached, NoAnswer) as error:
            self._store.count("queue_failures")
            _log.warning(
                "queue_not_read", account=place.account, region=place.region, error=str(error)
            )
            self._closed.wait(_SHORT_REST_S if is_passing(error) else _REST_S)

    def _take(self, place: AwsPlace, *, wait_s: int) -> int:
        url = self._urls[place]
        received = self._api.call_now(
            place,
            "sqs",
            "receive_message",
            QueueUrl=url,
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=_VISIBILITY_S,
        )
        messages = bodies(received)
        if not messages:
            return 0
        now_ns = self._clock.now_ns()
        told: list[ToldEvent] = []
        for message_id, _, body in messages:
            try:
                message = message_of(body)
            except ContractError as error:
                self._store.keep_aside(message_id, body, str(error))
                self._store.count("messages_malformed")
                _log.warning("message_not_read", message_id=message_id, error=str(error))
                continue
            told += self._told_by(message, now_ns)
        self._store.heard(told, now_ns)
        self._store.count("messages", len(messages))
        self._api.call_now(
            place,
            "sqs",
            "delete_message_batch",
            QueueUrl=url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": handle}
                for number, (_, handle, _) in enumerate(messages)
            ],
        )
        return len(messages)

    def _told_by(self, message: Message | None, now_ns: int) -> list[ToldEvent]:
        if message is None:
            self._store.count("messages_of_others")
            return []
        if message.kind is MessageKind.REBALANCE:
            # Advice: Karpenter tells people and does nothing either.
            self._store.count("rebalance_recommendations")
            _log.info("rebalance_recommended", instance_id=message.instance_id)
            return []
        told = told_by(message, now_ns)
        return [] if told is None else [told]

    def _say(self, place: AwsPlace, error: BaseException) -> None:
        if isinstance(error, AwsRefused) and error.refusal_class is RefusalClass.THROTTLED:
            raise Throttled("aws", error.retry_after_s or 1.0) from error
        if not isinstance(error, (AwsRefused, NotReached, NoAnswer)):
            raise error
        self._store.count("queue_failures")
        _log.warning("queue_not_read", account=place.account, region=place.region, error=str(error))


def told_by(message: Message, now_ns: int) -> ToldEvent | None:
    """What a message says of its instance; None where that is nothing new.

    The lead of a notice is reckoned from the message's own time: one that comes late leaves less. What
    is told of a time to come, by a clock that is ahead of ours, is told of now.
    """
    told_ns = min(message.at_ns, now_ns)
    if message.kind is MessageKind.NOTICE:
        left_ns = told_ns + ANNOUNCED_S * NS_PER_S - now_ns
        return ToldEvent(
            # EventBridge may tell it twice, with ids of its own; the instance is noticed once.
            event_id=f"notice-{message.instance_id}",
            instance_id=message.instance_id,
            kind=CloudEventKind.NOTICE,
            state=InstanceState.RUNNING,
            at_ns=now_ns,
            lead_s=max(0, left_ns // NS_PER_S),
        )
    if message.state in (None, InstanceState.PENDING):
        return None
    assert message.state is not None  # noqa: S101 - for the type checker
    return state_told(message.instance_id, message.state, told_ns)


def state_told(instance_id: str, state: InstanceState, at_ns: int) -> ToldEvent:
    """An instance has come into a state: told once, by whichever way it is learnt first."""
    return ToldEvent(
        event_id=f"{state.value}-{instance_id}",
        instance_id=instance_id,
        kind=CloudEventKind.STATE,
        state=state,
        at_ns=at_ns,
    )


def _urls(settings: AwsSettings) -> Iterator[tuple[AwsPlace, str]]:
    for account in settings.accounts:
        for region in sorted(account.queues):
            yield AwsPlace(account.name, region), account.queues[region]
