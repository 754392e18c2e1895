import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.faust.names import (
    LONGEST_KEY_BYTES,
    KeyInHeader,
    bucket_name,
    key_in,
    key_token,
    offset_key,
    partition_filter,
    stream_name,
    stream_subjects,
    subject_of,
    topic_token,
)

TOKEN = re.compile(r"[A-Za-z0-9_=~-]+")


@given(st.one_of(st.none(), st.binary(max_size=LONGEST_KEY_BYTES)))
def test_every_key_comes_back_from_its_subject(key):
    subject = subject_of("orders", 3, key)

    assert key_in(subject.encode()) == key
    assert TOKEN.fullmatch(subject.rsplit(".", 1)[1])


@given(st.one_of(st.none(), st.binary(max_size=600)), st.one_of(st.none(), st.binary(max_size=600)))
def test_different_keys_have_different_subjects(one, other):
    assert (key_token(one) == key_token(other)) == (one == other)


def test_no_key_and_the_empty_key_are_not_the_same():
    assert key_token(None) != key_token(b"")


def test_a_digest_is_not_taken_for_the_key_it_spells():
    long = b"x" * (LONGEST_KEY_BYTES + 1)
    spelled = base64.urlsafe_b64decode(key_token(long)[1:] + "=")

    assert key_token(spelled) != key_token(long)


def test_a_key_too_long_for_a_subject_is_said_to_be_in_the_header():
    subject = subject_of("orders", 0, b"x" * 5000)

    assert len(subject) < 100
    with pytest.raises(KeyInHeader):
        key_in(subject.encode())


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_different_topics_have_different_streams(one, other):
    assert (stream_name(one) == stream_name(other)) == (one == other)
    assert not set(stream_name(one)) & set(" .*>/\\\t\r\n")


def test_faust_topic_names_read_as_they_are():
    assert stream_name("myapp-sums-changelog") == "FAUST_myapp-sums-changelog"


def test_a_topic_without_a_name_or_with_an_endless_one_is_refused():
    with pytest.raises(ValueError, match="must have 1 to 200 characters"):
        topic_token("")
    with pytest.raises(ValueError, match="must have 1 to 200 characters"):
        topic_token("x" * 201)


def test_a_message_is_on_its_stream_and_in_its_partition_alone():
    subject = subject_of("my.topic", 1, b"key").split(".")

    def matches(pattern):
        tokens = pattern.split(".")
        return len(tokens) == len(subject) and all(
            token in ("*", part) for token, part in zip(tokens, subject, strict=True)
        )

    assert any(matches(one) for one in stream_subjects("my.topic"))
    assert matches(partition_filter("my.topic", 1))
    assert not matches(partition_filter("my.topic", 11))


@given(st.text(min_size=1, max_size=40))
def test_bucket_names_are_names_nats_takes(app_id):
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", bucket_name(app_id))


def test_apps_that_differ_in_strange_characters_do_not_share_a_bucket():
    assert bucket_name("a.b") != bucket_name("a/b")


def test_offsets_are_kept_per_topic_and_partition():
    assert offset_key("a", 1) != offset_key("a", 11) != offset_key("a.1", 1)
