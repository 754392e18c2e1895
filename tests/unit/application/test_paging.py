"""Page tokens continue the query that gave them, and no other."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.allocator.messages import JobQuery, JobState
from spotline.application.paging import page_of_ids
from spotline.application.placer.messages import PlacementQuery

IDS = ["a", "b", "c", "d", "e"]


@given(st.sets(st.text(min_size=1, max_size=8)), st.integers(1, 4))
def test_pages_hold_every_id_once_in_order_whatever_their_size(ids, size):
    query, seen = JobQuery(page_size=size), []
    while True:
        shown, token = page_of_ids(query, ids)
        seen += shown
        if not token:
            break
        assert len(shown) == size
        query = JobQuery(page_size=size + 1, page_token=token)
        size += 1

    assert seen == sorted(ids)


def token_of(query: JobQuery) -> str:
    return page_of_ids(replace(query, page_size=2), IDS)[1]


def test_a_token_does_not_tell_the_place_it_holds():
    assert token_of(JobQuery()) not in IDS


@pytest.mark.parametrize(
    "foreign",
    [
        {"tenant": "other"},
        {"tenant": "research", "state": JobState.RUNNING},
    ],
)
def test_a_token_of_another_query_is_refused(foreign):
    token = token_of(JobQuery(tenant="research"))

    with pytest.raises(ValueError, match="page_token must be the next_page_token"):
        JobQuery(**foreign, page_token=token)
    assert JobQuery(tenant="research", page_token=token).last_place() == "b"


def test_a_token_of_another_method_is_refused():
    with pytest.raises(ValueError, match="page_token must be"):
        PlacementQuery(page_token=token_of(JobQuery()))


@given(st.data())
def test_an_altered_token_is_refused(data):
    token = token_of(JobQuery())
    place = data.draw(st.integers(0, len(token) - 1))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=."
    letter = data.draw(st.sampled_from(letters).filter(lambda other: other != token[place]))

    with pytest.raises(ValueError, match="page_token must be"):
        JobQuery(page_token=token[:place] + letter + token[place + 1 :])


@given(st.text(min_size=1) | st.binary(min_size=1).map(lambda b: base64.b64encode(b).decode()))
def test_no_other_text_is_a_token(text):
    with pytest.raises(ValueError, match="page_token must be"):
        JobQuery(page_token=text)
