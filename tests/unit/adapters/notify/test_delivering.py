"""Messages as receivers get them: signed, again where one was not taken, each once after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.adapters.notify.delivering import AlertDelivery, pause_s, tried
from spotline.adapters.notify.outbox import GIVEN_UP_S, OUTBOX_FILE, LetterState, Outbox
from spotline.adapters.notify.posting import Answer, check_url, post
from spotline.application.notify.alerts import Alert, AlertKind, AlertState
from spotline.application.notify.target import NotifyFormat, NotifyTarget
from spotline.domain.units import NS_PER_S
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.receiver import Receiver, receiving

pytestmark = pytest.mark.asyncio

START_NS = 1_700_000_000 * NS_PER_S
SECRET = "a secret of 32 characters, or so"
ALERT = Alert(
    alert_id="0" * 32,
    kind=AlertKind.AT_RISK,
    state=AlertState.BEGAN,
    subject="job-1",
    name="<!channel> & co",
    says="<!channel> & co: job at risk.",
    next="see what it waits for",
    tenant="vision",
    path="/jobs/job-1",
    slot=7,
    entry=99,
    market_ns=START_NS,
    logged_ns=START_NS,
)


class Clock:
    """Wall time that a test moves."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS_PER_S)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path / OUTBOX_FILE)
    yield made
    made.close()


def target_of(receiver: Receiver, **changed: object) -> NotifyTarget:
    return replace(NotifyTarget(name="ops", url=receiver.url, secret=SECRET), **changed)  # type: ignore[arg-type]


def delivery_to(
    target: NotifyTarget, outbox: Outbox, clock: Clock, **changed: object
) -> AlertDelivery:
    made = AlertDelivery(outbox, [target], now_ns=clock, dice=random.Random(1), **changed)  # type: ignore[arg-type]
    return made


async def send_due(delivery: AlertDelivery, outbox: Outbox, clock: Clock) -> bool:
    """Send the next message that is due; False where none is."""
    letter = outbox.due("ops", clock())
    if letter is not None:
        await delivery.send(delivery.targets[0], letter)
    return letter is not None


async def test_a_message_is_signed_as_documented(receiver, outbox, clock):
    delivery = delivery_to(target_of(receiver), outbox, clock)
    delivery.put([ALERT])
    assert await send_due(delivery, outbox, clock)

    (posted,) = receiver.posted
    parts = dict(part.split("=") for part in posted.headers["Spotline-Signature"].split(","))
    signed = parts["t"].encode() + b"." + posted.body
    assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == parts["v1"]
    assert int(parts["t"]) == START_NS // NS_PER_S
    assert posted.path == "/hook?a=b"
    assert posted.headers["Spotline-Event-Id"] == posted.said["id"] == ALERT.alert_id
    assert posted.said == {
        "version": 1,
        "id": ALERT.alert_id,
        "kind": "at_risk",
        "state": "began",
        "began_id": "",
        "subject": "job-1",
        "name": ALERT.name,
        "tenant": "vision",
        "says": ALERT.says,
        "next": ALERT.next,
        "path": "/jobs/job-1",
        "slot": 7,
        "entry": 99,
        "market_time": "2023-11-14T22:13:20Z",
        "logged_time": "2023-11-14T22:13:20Z",
    }
    assert outbox.counts("ops") == {"taken": 1}


async def test_slack_gets_text_and_blocks_in_which_nobody_is_called(receiver, outbox, clock):
    target = target_of(receiver, format=NotifyFormat.SLACK, secret="")
    delivery = delivery_to(target, outbox, clock)
    delivery.put([ALERT])
    await send_due(delivery, outbox, clock)

    (posted,) = receiver.posted
    assert set(posted.said) == {"text", "blocks"}
    assert posted.said["text"] == "&lt;!channel&gt; &amp; co: job at risk."
    assert [block["type"] for block in posted.said["blocks"]] == ["section", "context"]
    assert b"<!channel>" not in posted.body
    assert "Spotline-Signature" not in posted.headers


async def test_what_was_not_taken_comes_again_with_its_id(receiver, outbox, clock):
    receiver.answers = [(500, {}), (302, {"Location": receiver.url})]
    delivery = delivery_to(target_of(receiver), outbox, clock)
    delivery.put([ALERT])
    for _ in range(2):
        assert await send_due(delivery, outbox, clock)
        assert not await send_due(delivery, outbox, clock)
        clock.pass_s(10)
    assert await send_due(delivery, outbox, clock)

    assert receiver.ids() == [ALERT.alert_id] * 3
    assert outbox.counts("ops") == {"taken": 1}


async def test_a_receiver_is_left_alone_for_as_long_as_it_asks(receiver, outbox, clock):
    receiver.answers = [(429, {"Retry-After": "120"})]
    delivery = delivery_to(target_of(receiver), outbox, clock)
    delivery.put([ALERT, replace(ALERT, alert_id="1" * 32)])
    assert await send_due(delivery, outbox, clock)
    clock.pass_s(119)
    assert not await send_due(delivery, outbox, clock)
    clock.pass_s(1)
    assert await send_due(delivery, outbox, clock)
    assert await send_due(delivery, outbox, clock)

    assert len(set(receiver.ids())) == 2


async def test_it_is_given_up_after_a_day(receiver, outbox, clock):
    receiver.answers = [(503, {"Retry-After": "50000"})] * 9
    delivery = delivery_to(target_of(receiver), outbox, clock)
    delivery.put([ALERT])
    while await send_due(delivery, outbox, clock):
        clock.pass_s(50_000)

    assert outbox.counts("ops") == {"given_up": 1}
    assert len(receiver.posted) == 2


async def test_killed_between_sending_and_noting_it_is_sent_again_once(
    receiver, outbox, clock, tmp_path, monkeypatch
):
    delivery = delivery_to(target_of(receiver), outbox, clock)
    delivery.put([ALERT])

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "end", killed)
        with pytest.raises(Killed):
            await send_due(delivery, outbox, clock)
    outbox.close()

    again = Outbox(tmp_path / OUTBOX_FILE)
    after = delivery_to(target_of(receiver), again, clock)
    after.put([ALERT])
    while await send_due(after, again, clock):
        pass
    again.close()
    assert receiver.ids() == [ALERT.alert_id] * 2


async def test_a_restart_tells_nothing_twice(receiver, outbox, clock, tmp_path):
    alerts = [replace(ALERT, alert_id=str(number) * 32) for number in range(4)]
    for known in (2, 4, 4):
        opened = Outbox(tmp_path / OUTBOX_FILE)
        delivery = delivery_to(target_of(receiver), opened, clock)
        for alert in alerts[:known]:
            delivery.put([alert])
        while await send_due(delivery, opened, clock):
            pass
        opened.close()

    assert receiver.ids() == [alert.alert_id for alert in alerts]


async def test_what_was_before_a_receiver_is_not_told_nor_that_it_is_over(receiver, outbox, clock):
    delivery = delivery_to(target_of(receiver), outbox, clock)
    old = replace(ALERT, logged_ns=START_NS - 1)
    over = replace(
        ALERT, alert_id="1" * 32, state=AlertState.ENDED, began_id=old.alert_id, logged_ns=START_NS
    )
    delivery.put([old, over])

    assert not await send_due(delivery, outbox, clock)
    assert outbox.counts("ops") == {"old": 2}


async def test_what_is_more_than_a_day_old_is_not_told(receiver, outbox, clock):
    delivery = delivery_to(target_of(receiver), outbox, clock)
    clock.pass_s(GIVEN_UP_S + 1)
    delivery.put([ALERT])

    assert outbox.counts("ops") == {LetterState.OLD.value: 1}


async def test_it_sends_while_it_runs_and_another_receiver_does_not_wait(receiver, outbox):
    stuck = asyncio.Event()

    async def posting(url, headers, body):
        if url == "stuck":
            await stuck.wait()
        return await post(url, headers, body)

    targets = [NotifyTarget(name="first", url="stuck", secret=SECRET), target_of(receiver)]
    delivery = AlertDelivery(outbox, targets, post=posting, now_ns=lambda: START_NS)
    running = asyncio.create_task(delivery.run())
    delivery.put([ALERT])
    await eventually(lambda: outbox.counts("ops") == {"taken": 1})
    delivery.put([replace(ALERT, alert_id="1" * 32)])
    await eventually(lambda: outbox.counts("ops") == {"taken": 2})

    assert outbox.counts("first") == {"waiting": 2}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_trial_is_marked_as_one(receiver):
    answer = await tried(target_of(receiver))

    assert answer.taken
    assert receiver.posted[0].said["kind"] == "test"


async def test_nobody_there_is_an_answer():
    with receiving() as gone:
        url = gone.url
    answer = await post(url, {}, b"")

    assert not answer.taken
    assert str(answer).startswith("not reached: ")


async def test_a_silent_receiver_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        answer = await post(f"http://127.0.0.1:{port}/", {}, b"x", timeout_s=0.05)

    assert answer == Answer(said="no answer within 0.05 s")


async def test_pauses_grow_to_an_hour_and_differ():
    dice = random.Random(7)
    pauses = [pause_s(tries, dice) for tries in range(1, 40)]

    for tries, pause in enumerate(pauses, start=1):
        whole = min(3_600.0, 5.0 * 2.0 ** (tries - 1))
        assert whole / 2 <= pause <= whole
    assert len(set(pauses)) == len(pauses)


@pytest.mark.parametrize(
    ("url", "insecure", "well"),
    [
        ("https://example.com/x", False, True),
        ("http://127.0.0.1:9/x", False, True),
        ("http://[::1]:9/x", False, True),
        ("http://localhost/x", False, True),
        ("http://example.com/x", False, False),
        ("http://localhost.example.com/x", False, False),
        ("http://example.com/x", True, True),
        ("ftp://example.com/x", True, False),
        ("https://user:word@example.com/x", False, False),
        ("https://example.com:0/x", False, False),
        ("https://example.com:99999/x", False, False),
        ("https:///x", False, False),
        ("https://example.com/" + "x" * 1_000, False, False),
        ("https://example.com/a b", False, False),
        ("https://example.com/\r\nX: y", False, False),
    ],
)
async def test_where_messages_may_be_posted(url, insecure, well):
    assert (check_url(url, insecure=insecure) == "") is well


async def test_nothing_shows_a_secret(receiver):
    target = target_of(receiver)

    assert SECRET not in repr(target)
    assert receiver.url not in repr(target)


@pytest.mark.parametrize(
    ("answers", "counts"), [(True, {"taken": 1}), (False, {"waiting": 1})], ids=["soon", "never"]
)
async def test_a_stop_notes_the_answer_to_what_is_on_its_way(outbox, clock, answers, counts):
    posted, answered = asyncio.Event(), asyncio.Event()

    async def slow(url: str, headers: dict[str, str], body: bytes) -> Answer:
        posted.set()
        await answered.wait()
        return Answer(status=204)

    target = NotifyTarget(name="ops", url="https://example.com/", secret=SECRET)
    delivery = delivery_to(
        target, outbox, clock, post=slow, last_answer_s=PATIENCE_S if answers else 0.0
    )
    delivery.put([ALERT])
    running = asyncio.create_task(delivery.run())
    await posted.wait()
    running.cancel()
    if answers:
        asyncio.get_running_loop().call_soon(answered.set)
    with pytest.raises(asyncio.CancelledError):
        await running

    assert outbox.counts("ops") == counts
    assert delivery.count(LetterState.TAKEN) == counts.get("taken", 0)
