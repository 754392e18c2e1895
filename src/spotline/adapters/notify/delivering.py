"""Send what waits in the outbox, each receiver by itself, until it is taken or a day is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from secrets import token_hex

import structlog

from spotline.adapters.notify.message import body_of, headers_of, trial_fields
from spotline.adapters.notify.outbox import GIVEN_UP_S, Letter, LetterState, Outbox
from spotline.adapters.notify.posting import Answer, post
from spotline.application.notify.alerts import Alert
from spotline.application.notify.target import NotifyTarget
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 3_600.0
# For how long a stop waits for the answer to what is on its way; containers are killed after 10 s.
_LAST_ANSWER_S = 5.0
_ID_BYTES = 16

Poster = Callable[..., Awaitable[Answer]]
"""As `post`: URL, headers and body to an answer."""


def pause_s(tries: int, dice: random.Random) -> float:
    """Seconds until a message is sent again that was not taken `tries` times, from 1 on.

    They double up to an hour; of each a random half is left out, so that the messages of many
    systems do not come together when a receiver is back.
    """
    whole = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(tries - 1, 30))
    return whole * (0.5 + dice.random() / 2)


@dataclass(slots=True)
class AlertDelivery:
    """Puts alerts into the outbox, and sends them while `run` runs.

    Parameters
    ----------
    now_ns
        Wall time.
    last_answer_s
        How long the end of `run` waits for answers to what was sent.
    """

    outbox: Outbox
    targets: Sequence[NotifyTarget]
    post: Poster = post
    now_ns: Callable[[], int] = time.time_ns
    dice: random.Random = field(default_factory=random.Random)
    last_answer_s: float = _LAST_ANSWER_S
    _news: dict[str, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outbox.begin(self.targets, self.now_ns())
        self._news = {target.name: asyncio.Event() for target in self.targets}

    def put(self, alerts: Sequence[Alert]) -> None:
        """Take the alerts of an entry; on return they are on disk."""
        if alerts and self.outbox.put(self.targets, alerts, self.now_ns()):
            for news in self._news.values():
                news.set()

    def count(self, state: LetterState) -> int:
        """How many messages to the receivers of now are in a state. Any thread may ask."""
        return sum(self.outbox.counts(target.name).get(state.value, 0) for target in self.targets)

    async def run(self) -> None:
        """Send until cancelled; no receiver waits for another.

        What is on its way then is waited for, a few seconds, so that it is not sent again.
        """
        async with asyncio.TaskGroup() as tasks:
            for target in self.targets:
                tasks.create_task(self._serve(target), name=f"notify {target.name}")

    async def _serve(self, target: NotifyTarget) -> None:
        news = self._news[target.name]
        while True:
            news.clear()
            letter = self.outbox.due(target.name, self.now_ns())
            if letter is not None:
                await self._finish(self.send(target, letter))
                continue
            due_ns = self.outbox.next_due_ns(target.name)
            wait_s = None if due_ns is None else max(0.0, (due_ns - self.now_ns()) / NS_PER_S)
            try:
                async with asyncio.timeout(wait_s):
                    await news.wait()
            except TimeoutError:
                continue

    async def _finish(self, sending: Coroutine[None, None, None]) -> None:
        """Send, and where that is cancelled, note first what came back, if it comes soon."""
        task = asyncio.create_task(sending, name="send")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,), timeout=self.last_answer_s)
            task.cancel()
            await asyncio.wait((task,))
            raise

    async def send(self, target: NotifyTarget, letter: Letter) -> None:
        """Send a message once, and note what became of it."""
        answer = await sent(target, letter.alert_id, letter.fields, self.post, self.now_ns)
        said = {"target": target.name, "alert_id": letter.alert_id, "answer": str(answer)}
        if answer.taken:
            self.outbox.end(letter, LetterState.TAKEN, str(answer))
            _log.info("notification_taken", **said)
            return
        now_ns, tries = self.now_ns(), letter.tries + 1
        wait_s = max(pause_s(tries, self.dice), min(answer.retry_after_s, GIVEN_UP_S))
        again_ns = now_ns + round(wait_s * NS_PER_S)
        if again_ns - letter.put_ns > GIVEN_UP_S * NS_PER_S:
            self.outbox.end(letter, LetterState.GIVEN_UP, str(answer))
            _log.error("notification_given_up", tries=tries, **said)
            return
        self.outbox.again(letter, again_ns, str(answer))
        if answer.retry_after_s:
            self.outbox.hold(target.name, again_ns)
        _log.warning("notification_not_taken", tries=tries, again_s=round(wait_s, 1), **said)


async def sent(
    target: NotifyTarget,
    event_id: str,
    fields: dict[str, object],
    post: Poster = post,
    now_ns: Callable[[], int] = time.time_ns,
) -> Answer:
    """Send a message now, and say what came back."""
    body = body_of(fields, target.format)
    headers = headers_of(target, event_id, body, now_ns() // NS_PER_S)
    return await post(target.url, headers, body)


async def tried(target: NotifyTarget) -> Answer:
    """Send a receiver a message that is marked as a test, once, and say what came back."""
    test_id = token_hex(_ID_BYTES)
    return await sent(target, test_id, trial_fields(test_id, target.name))
