"""The raw parser takes what is for raw subscriptions and leaves the rest, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from spotline.adapters.faust.inbox import _RawParser

HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"


def wire(number, sid, size, *, reply, headers):
    subject, payload = f"s.{number}".encode(), bytes([65 + number % 26]) * size
    back = b" r.1" if reply else b""
    if headers:
        head = b"HMSG %s %d%s %d %d\r\n" % (*(subject, sid, back, len(HEADER), len(HEADER) + size),)
        return head + HEADER + payload + b"\r\n"
    return b"MSG %s %d%s %d\r\n" % (subject, sid, back, size) + payload + b"\r\n"


MESSAGES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 60), st.booleans(), st.booleans()),
    max_size=12,
)


@given(MESSAGES, st.lists(st.integers(1, 400), max_size=12))
async def test_every_message_gets_to_its_subscription_in_order(messages, cuts):
    client = Client()
    raw, others = [], []

    async def dispatch(sid, subject, reply, payload, block):
        others.append((subject, reply, payload, bytes(block) if block else None))

    client._process_msg = dispatch
    parser = _RawParser.take_over(client)
    parser.sinks[b"1"] = lambda *one: raw.append(one)
    expected = {1: [], 2: []}
    stream = b""
    for number, (sid, size, reply, headers) in enumerate(messages):
        stream += wire(number, sid, size, reply=reply, headers=headers)
        expected[sid].append(
            (
                f"s.{number}".encode(),
                b"r.1" if reply else b"",
                bytes([65 + number % 26]) * size,
                HEADER if headers else None,
            )
        )

    start = 0
    for cut in [*cuts, len(stream)]:
        await parser.parse(stream[start : start + cut])
        start += cut
    await parser.parse(stream[start:])

    assert raw == expected[1]
    assert others == expected[2]


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_large_message_that_comes_in_pieces_arrives_whole(pieces):
    client = Client()
    raw = []
    parser = _RawParser.take_over(client)
    parser.sinks[b"1"] = lambda *one: raw.append(one)
    stream = wire(0, 1, 300_000, reply=True, headers=True) + wire(
        1, 1, 3, reply=False, headers=False
    )

    step = len(stream) // pieces + 1
    for start in range(0, len(stream), step):
        await parser.parse(stream[start : start + step])

    assert [len(payload) for _, _, payload, _ in raw] == [300_000, 3]
    assert raw[0][3] == HEADER
