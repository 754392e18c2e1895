import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.faust.headers import (
    KEY,
    NO_VALUE,
    OTHERS,
    base64_text,
    decode_headers,
    encode_headers,
    long_key,
    parse_block,
    status_of,
)


def on_the_wire(headers):
    """The block nats-py sends."""
    for name, value in headers.items():
        assert re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name)
        assert value == value.strip()
    lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
    return b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"


def there_and_back(headers):
    return decode_headers(parse_block(on_the_wire(encode_headers(headers))))


@given(st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=12)), max_size=6))
def test_all_headers_arrive_as_they_were(headers):
    assert sorted(there_and_back(headers)) == sorted(headers)


def test_text_headers_stay_readable_for_any_nats_client():
    assert encode_headers({"traceparent": b"00-1-2-01"}) == {"traceparent": "00-1-2-01"}


def test_what_would_break_a_header_line_travels_encoded():
    headers = [("a", b"line\r\nInjected: 1"), ("b", b"\xff"), ("c d", b"1"), ("e", b" 1")]

    assert set(encode_headers(headers)) == {OTHERS}
    assert there_and_back(headers) == headers


def test_a_user_cannot_delete_a_key_by_a_header():
    assert there_and_back({NO_VALUE: b"1"}) == [(NO_VALUE, b"1")]
    assert NO_VALUE not in encode_headers({NO_VALUE: b"1"})


def test_instructions_to_the_server_are_spent():
    assert there_and_back({"Nats-Msg-Id": b"7", "x": b"1"}) == [("x", b"1")]


def test_no_headers_are_none():
    assert encode_headers(None) == encode_headers([]) == encode_headers({}) == {}


def test_a_long_key_comes_back_from_its_header():
    key = bytes(range(256)) * 3

    assert long_key(on_the_wire({KEY: base64_text(key)})) == key
    with pytest.raises(ValueError, match="Faust-Key is missing"):
        long_key(b"NATS/1.0\r\n\r\n")


def test_malformed_encoded_headers_are_refused():
    with pytest.raises(ValueError, match="Faust-Headers is malformed"):
        decode_headers([(OTHERS, b"[[1]]")])


def test_control_messages_are_told_from_ordinary_ones():
    assert status_of(b"NATS/1.0 404 No Messages\r\n\r\n") == "404"
    assert status_of(b"NATS/1.0\r\na: 404\r\n\r\n") == ""
    assert status_of(None) == ""
