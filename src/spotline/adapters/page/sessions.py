"""Who is signed in: sessions in memory, each standing for the token that it was opened with.

A session proves nothing by itself: its token is asked about with every request, so that what is
revoked ends at once.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason

IDLE_S = 2 * 3600.0
LIFE_S = 12 * 3600.0
OFFER_S = 600.0
MOST_SESSIONS = 512
MOST_OF_A_TOKEN = 16
MOST_TRIES = 10
TRIES_WINDOW_S = 60.0


@dataclass(slots=True)
class _Open:
    token: str = field(repr=False)
    opened_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class _Offered:
    token: str = field(repr=False)
    offered_s: float
    of_this_machine: bool


class BrowserSessions:
    """Sessions by their ids, which only their browsers know: of an id its hash is kept.

    Parameters
    ----------
    idle_s, life_s
        Seconds after which one ends: since it was used last, since it was opened.
    most, most_of_a_token
        How many there are at a time; one more ends the one that was used longest ago.
    clock
        Seconds that never go back.
    draw
        Draws a new id that nobody guesses.
    """

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        life_s: float = LIFE_S,
        most: int = MOST_SESSIONS,
        most_of_a_token: int = MOST_OF_A_TOKEN,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self._idle_s = idle_s
        self._life_s = life_s
        self._most = most
        self._most_of_a_token = most_of_a_token
        self._clock = clock
        self._draw = draw
        self._secret = draw().encode()
        self._open: dict[str, _Open] = {}
        self._offered: dict[str, _Offered] = {}

    def offer(self, token: str, *, of_this_machine: bool = False) -> str:
        """A code that stands for a token, once and for `OFFER_S` seconds.

        One `of_this_machine` counts for nobody who comes from another.
        """
        code = self._draw()
        self._offered[_key(code)] = _Offered(token, self._clock(), of_this_machine)
        return code

    def taken(self, code: str, peer: str = "") -> str:
        """The token that a code stands for; from now on it stands for none, whoever showed it.

        `peer` is the address from where it was shown.

        Raises
        ------
        ViewRefused
            It stands for none, or not for whoever is there.
        """
        offered = self._offered.pop(_key(code), None)
        if offered is None or self._clock() >= offered.offered_s + OFFER_S:
            raise ViewRefused(
                Reason.UNAUTHENTICATED, "the link was used before, or is too old; show a token"
            )
        if offered.of_this_machine and not is_loopback(peer):
            raise ViewRefused(
                Reason.UNAUTHENTICATED,
                "the link counts on the machine that printed it alone, and is used up now; "
                "show a token",
            )
        return offered.token

    def open(self, token: str) -> str:
        """Begin a session of whoever has this token, which was checked; its id."""
        now_s = self._clock()
        self._forget_ended(now_s)
        of_token = [key for key, known in self._open.items() if known.token == token]
        if len(of_token) >= self._most_of_a_token:
            self._end_oldest(of_token)
        if len(self._open) >= self._most:
            self._end_oldest(list(self._open))
        session_id = self._draw()
        self._open[_key(session_id)] = _Open(token, now_s, now_s)
        return session_id

    def token(self, session_id: str) -> str:
        """The token that a session was opened with; using it keeps it.

        Raises
        ------
        ViewRefused
            There is no such session, or it has ended.
        """
        now_s = self._clock()
        known = self._open.get(_key(session_id))
        if known is None or self._is_over(known, now_s):
            self._open.pop(_key(session_id), None)
            raise ViewRefused(Reason.UNAUTHENTICATED, "your session has ended; sign in again")
        known.seen_s = now_s
        return known.token

    def close(self, session_id: str) -> None:
        """End a session. Safe to repeat."""
        self._open.pop(_key(session_id), None)

    def csrf(self, session_id: str) -> str:
        """What a form of a session must carry; of no session (empty), of this server alone."""
        return hmac.new(self._secret, session_id.encode(), hashlib.sha256).hexdigest()

    def check_csrf(self, session_id: str, carried: str) -> bool:
        """Whether a form carries what its session's forms do."""
        return hmac.compare_digest(self.csrf(session_id).encode(), carried.encode())

    def __len__(self) -> int:
        """How many are open."""
        self._forget_ended(self._clock())
        return len(self._open)

    def _is_over(self, known: _Open, now_s: float) -> bool:
        return now_s >= known.opened_s + self._life_s or now_s >= known.seen_s + self._idle_s

    def _forget_ended(self, now_s: float) -> None:
        for key in [key for key, known in self._open.items() if self._is_over(known, now_s)]:
            del self._open[key]

    def _end_oldest(self, keys: list[str]) -> None:
        del self._open[min(keys, key=lambda key: self._open[key].seen_s)]


class Tries:
    """Refuses who has failed to sign in `most` times within `window_s` seconds, by where he is."""

    def __init__(
        self,
        *,
        most: int = MOST_TRIES,
        window_s: float = TRIES_WINDOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def check(self, peer: str) -> None:
        """Refuse one more try of a peer that failed too often.

        Raises
        ------
        ViewRefused
            It did.
        """
        self._forget(self._clock() - self._window_s)
        if len(self._failed.get(peer, ())) >= self._most:
            raise ViewRefused(
                Reason.TOO_MANY_REQUESTS,
                f"{self._most} tries to sign in have failed within {self._window_s:g} s; "
                "wait a minute",
            )

    def failed(self, peer: str) -> None:
        """Count a failed try."""
        self._failed.setdefault(peer, deque(maxlen=self._most)).append(self._clock())

    def _forget(self, before_s: float) -> None:
        for peer, times in list(self._failed.items()):
            while times and times[0] <= before_s:
                times.popleft()
            if not times:
                del self._failed[peer]


def is_loopback(host: str) -> bool:
    """Whether an address, or a name as servers are bound to, is of this machine alone."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()
