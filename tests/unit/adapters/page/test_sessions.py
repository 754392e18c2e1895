"""Sessions end by themselves, and there are never too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.page.sessions import BrowserSessions, Tries
from spotline.application.read_model.ports import ViewRefused


def test_a_session_ends_when_it_is_idle_and_when_it_is_old() -> None:
    now = [0.0]
    sessions = BrowserSessions(idle_s=10.0, life_s=25.0, clock=lambda: now[0])
    idle, used = sessions.open("a token"), sessions.open("a token")
    for now[0] in (8.0, 16.0, 24.0):
        sessions.token(used)
    assert len(sessions) == 1
    now[0] = 26.0

    for ended in (idle, used, "never opened"):
        with pytest.raises(ViewRefused, match="has ended"):
            sessions.token(ended)


@given(opened=st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=40))
def test_there_are_never_more_sessions_than_may_be_and_the_newest_is_good(opened) -> None:
    now = [0.0]
    sessions = BrowserSessions(most=5, most_of_a_token=2, clock=lambda: now[0])
    kept: dict[str, str] = {}
    for token in opened:
        now[0] += 1e-3
        kept[sessions.open(token)] = token
        assert len(sessions) <= min(5, 2 * len(set(kept.values())))
    newest = list(kept)[-1]
    assert sessions.token(newest) == opened[-1]


def test_what_a_form_carries_is_one_sessions_and_one_servers() -> None:
    one, other = BrowserSessions(), BrowserSessions()

    assert one.check_csrf("a", one.csrf("a"))
    for carried in (one.csrf("b"), other.csrf("a"), "", "é"):
        assert not one.check_csrf("a", carried)


def test_tries_are_bounded_for_each_peer_and_come_back() -> None:
    now = [0.0]
    tries = Tries(most=2, window_s=10.0, clock=lambda: now[0])
    for now[0] in (0.0, 6.0):
        tries.check("here")
        tries.failed("here")

    with pytest.raises(ViewRefused, match="2 tries"):
        tries.check("here")
    tries.check("there")
    now[0] = 10.5
    tries.check("here")


def test_a_link_signs_in_once_and_not_for_long() -> None:
    now = [0.0]
    sessions = BrowserSessions(clock=lambda: now[0])
    used, old = sessions.offer("a token"), sessions.offer("another")

    assert sessions.taken(used) == "a token"
    now[0] = 600.0
    for code in (used, old, "never offered"):
        with pytest.raises(ViewRefused, match="used before, or is too old"):
            sessions.taken(code)


@pytest.mark.parametrize(
    ("peer", "counts"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("", False),
    ],
)
def test_a_link_of_this_machine_counts_for_nobody_from_elsewhere(peer, counts):
    sessions = BrowserSessions()
    code = sessions.offer("a token", of_this_machine=True)

    if counts:
        assert sessions.taken(code, peer) == "a token"
    else:
        with pytest.raises(ViewRefused, match="used up now"):
            sessions.taken(code, peer)
    with pytest.raises(ViewRefused, match="used before"):
        sessions.taken(code, "127.0.0.1")
