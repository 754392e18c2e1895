"""The compiled decoder gives what Faust's own gives."""

import json

import faust
import pytest
from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.types import TP, ConsumerMessage
from hypothesis import example, given
from hypothesis import strategies as st

from spotline.adapters.faust.decoding import compiled_decoder


class Point(faust.Record, serializer="json"):
    x: int
    y: int = 0


APP = faust.App("decoding", broker="nats://127.0.0.1:1", web_enabled=False)
APP.finalize()

KINDS = {
    "autodetect": {},
    "int": {"key_type": str, "value_type": int},
    "float": {"key_type": int, "value_type": float},
    "str": {"key_type": bytes, "value_type": str},
    "raw": {"key_type": bytes, "value_serializer": "raw"},
    "record": {"key_type": Point, "value_type": Point},
    "json key": {"key_serializer": "json", "value_type": Point},
    "empty allowed": {"value_type": Point, "allow_empty": True},
}
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.integers().map(lambda one: json.dumps(one).encode()),
    st.just(json.dumps({"x": 1, "y": 2}).encode()),
    st.just(json.dumps({"x": 1, "y": 2, "__faust": {"ns": "nothing"}}).encode()),
    st.text(max_size=5).map(lambda one: json.dumps(one).encode()),
)


def message(key, value):
    return ConsumerMessage(
        "t", 0, 1, 2.0, 0, [("h", b"1")], key, value, None, None, None, TP("t", 0)
    )


async def outcome(decode):
    try:
        event = await decode()
    except (KeyDecodeError, ValueDecodeError) as error:
        return type(error), str(error)
    # By what they are called: NaN, which "nan" is as a float, differs from itself.
    return type(event), repr(event.key), repr(event.value), event.headers


@pytest.mark.parametrize("kind", KINDS)
@given(key=VALUES, value=VALUES)
@example(key=None, value=b'"NAN"')
async def test_it_decodes_and_refuses_as_faust_does(kind, key, value):
    channel = APP.topic("t", **KINDS[kind])
    one = message(key, value)
    compiled = compiled_decoder(channel)

    async def fast():
        return compiled(one)

    for _ in range(2):  # the second time keys are known
        assert await outcome(fast) == await outcome(lambda: channel.decode(one, propagate=True))


def test_mutable_keys_are_not_shared():
    compiled = compiled_decoder(APP.topic("t", key_serializer="json"))

    first, second = (compiled(message(b"[1]", b"1")).key for _ in range(2))

    assert first == second == [1]
    assert first is not second


def test_a_schema_of_its_own_is_left_to_itself():
    class Own(faust.Schema):
        pass

    assert compiled_decoder(APP.topic("t", schema=Own())) is None
