"""A queue delivers at least once, in no order, and hides what a reader has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.rehearsal.aws.queues import QueueMoment, RehearsedQueue
from spotline.rehearsal.aws.service import AwsError
from tests.depth import examples

S = 10**9


def at(seconds):
    return QueueMoment(market_ns=1_000 * S + int(seconds * S), wall_ns=int(seconds * S))


def a_queue(**changes):
    return RehearsedQueue("q", "000000000001", "us-east-1", created_ns=0, **changes)


def delete(queue, handle):
    message = queue.received_with(handle)
    if message is not None:
        queue.forget(message.message_id, is_copy=message.is_copy)


def filled(count, **changes):
    queue = a_queue(**changes)
    for number in range(count):
        queue.send(f"{number}", "me", at(0))
    return queue


def test_reader_hides_what_it_took_from_the_other_until_its_time_is_over():
    queue = filled(2)

    mine = queue.receive(1, 30, at(0))
    others = queue.receive(10, 30, at(1))

    assert {message.body for message in [*mine, *others]} == {"0", "1"}
    assert queue.receive(10, 30, at(29)) == []
    assert [message.body for message in queue.receive(10, 30, at(30))] == [mine[0].body]


def test_deleted_message_does_not_come_back_but_by_its_old_handle():
    queue = filled(1)
    old = queue.receive(1, 10, at(0))[0].handle
    new = queue.receive(1, 10, at(10))[0].handle

    delete(queue, old)
    assert len(queue.receive(1, 10, at(20))) == 1
    delete(queue, new)  # its message is in other hands by now: fine, and without effect
    assert len(queue.receive(1, 10, at(30))) == 1
    delete(queue, queue.receive(1, 10, at(40))[0].handle)
    assert queue.receive(1, 10, at(90)) == []


def test_order_is_not_that_of_sending():
    orders = set()
    for seed in range(20):
        queue = filled(5, seed=seed)
        orders.add(tuple(message.body for message in queue.receive(10, 30, at(0))))

    assert len(orders) > 10


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_each_message_comes_once_or_twice_and_then_never(seed, count):
    queue = filled(count, seed=seed, copied_share=0.5)
    seen = []

    for second in range(40):
        for message in queue.receive(10, 5, at(second)):
            seen.append(message.body)
            delete(queue, message.handle)

    assert set(seen) == {str(number) for number in range(count)}
    assert all(seen.count(body) <= 2 for body in seen)
    assert queue.messages == []


def test_visibility_is_changed_only_of_what_is_in_flight():
    queue = filled(1)
    handle = queue.receive(1, 10, at(0))[0].handle

    queue.change_visibility(handle, 0, at(1))

    assert queue.receive(1, 10, at(1))[0].body == "0"
    with pytest.raises(AwsError, match="MessageNotInflight"):
        queue.change_visibility(handle, 5, at(1))
    with pytest.raises(AwsError, match="ReceiptHandleIsInvalid"):
        delete(queue, "made up")


def test_message_waits_for_its_delay_and_is_forgotten_after_its_retention():
    queue = a_queue()
    queue.set_attributes({"MessageRetentionPeriod": "60"}, at(0))
    queue.send("late", "me", at(0), delay_s=20)

    assert queue.receive(1, 0, at(19)) == []
    assert len(queue.receive(1, 0, at(20))) == 1
    assert queue.receive(1, 0, at(61)) == []


def test_a_queue_that_nobody_reads_keeps_nothing_beyond_its_retention():
    queue = a_queue()
    queue.set_attributes({"MessageRetentionPeriod": "60"}, at(0))
    for second in range(0, 600, 10):
        queue.send("body", "me", at(second))

    assert len(queue.messages) == 7


def test_counts_say_what_is_visible_in_flight_and_delayed():
    queue = filled(3)
    queue.send("later", "me", at(0), delay_s=60)
    queue.receive(1, 30, at(0))

    told = queue.described(["All"], at(1))

    assert told["ApproximateNumberOfMessages"] == "2"
    assert told["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert told["ApproximateNumberOfMessagesDelayed"] == "1"
    assert told["QueueArn"] == "arn:aws:sqs:us-east-1:000000000001:q"


def test_queue_is_purged_once_a_minute():
    queue = filled(3)
    queue.purge(at(0))

    assert queue.receive(10, 0, at(0)) == []
    with pytest.raises(AwsError, match="PurgeQueueInProgress"):
        queue.check_purge(at(59))
    queue.check_purge(at(60))


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"),
        ("Policy", "{", "InvalidAttributeValue"),
        ("Policy", '{"Statement": [{"Effect": "Allow"}]}', "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "yes", "InvalidAttributeValue"),
        ("Colour", "red", "InvalidAttributeName"),
    ],
)
def test_attribute_that_is_none_is_refused(name, value, code):
    with pytest.raises(AwsError, match=code):
        a_queue().set_attributes({name: value}, at(0))
