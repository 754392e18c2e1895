"""What a request asks for, read from its path and query; nothing unknown is passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar
from urllib.parse import parse_qsl

from spotline.application.board.messages import JobFlag, JobPhase
from spotline.application.paging import LARGEST_PAGE
from spotline.application.read_model.messages import (
    MOST_EVENTS_A_PAGE,
    HappeningQuery,
    LogPlace,
    ViewQuery,
    WatchQuery,
)
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.limits import LONGEST_NAME

_MOST_SEQ = (1 << 63) - 1
_LONGEST_SHOWN = 80

EnumT = TypeVar("EnumT", bound=Enum)


class Asked:
    """The fields of a query string; every one that is wrong is told.

    Take the fields with the methods, then call `check`.
    """

    def __init__(self, query: str, known: tuple[str, ...]) -> None:
        self._problems: list[InputProblem] = []
        self._stated: dict[str, str] = {}
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=32)
        except ValueError:
            self._wrong("", "at most 32 fields of UTF-8", query)
            pairs = []
        for name, value in pairs:
            if name not in known:
                expected = f"one of {', '.join(known)}" if known else "no fields"
                self._wrong(name, expected, name)
            elif name in self._stated:
                self._wrong(name, "one value", "several")
            else:
                self._stated[name] = value

    def text(self, name: str) -> str:
        """A name; empty where it is not stated."""
        value = self._stated.get(name, "")
        if len(value) > LONGEST_NAME or any(not letter.isprintable() for letter in value):
            self._wrong(name, f"at most {LONGEST_NAME} characters that can be printed", value)
        return value

    def count(self, name: str, most: int) -> int:
        """A whole number from 0 to `most`; 0 where it is not stated."""
        value = self._stated.get(name, "0")
        if value.isascii() and value.isdecimal() and len(value) <= 19 and int(value) <= most:
            return int(value)
        self._wrong(name, f"a whole number 0..{most}", value)
        return 0

    def word(self, name: str, of: type[EnumT]) -> EnumT | None:
        """A word of an enumeration, None where it is not stated."""
        value = self._stated.get(name)
        if value is None:
            return None
        for member in of:
            if member.value == value:
                return member
        self._wrong(name, f"one of {', '.join(str(member.value) for member in of)}", value)
        return None

    def place(self, name: str, value: str | None = None) -> LogPlace | None:
        """A place in the log, SEQ or SEQ-PART; `value` where a header states it."""
        told = self._stated.get(name) if value is None else value
        if told is None:
            return None
        seq, _, part = told.partition("-")
        parts = (seq, part or "0")
        if all(word.isascii() and word.isdecimal() and len(word) <= 19 for word in parts):
            found = LogPlace(seq=int(seq), part=int(parts[1]))
            if found.seq <= _MOST_SEQ:
                # A whole entry: none of its changes is sent again.
                return found if part else LogPlace(seq=found.seq, part=_MOST_SEQ)
        self._wrong(name, "the id of an event of this stream, such as 1234-1", told)
        return None

    def check(self) -> None:
        """Refuse the request where anything is wrong with it.

        Raises
        ------
        ViewRefused
            With every field that is wrong.
        """
        if self._problems:
            raise refused_input(*self._problems)

    def _wrong(self, field: str, expected: str, found: str) -> None:
        self._problems.append(InputProblem(field=field, expected=expected, found=_shown(found)))


def asked_jobs(query: str, whose: Callable[[str], str] = lambda stated: stated) -> ViewQuery:
    """Which jobs a list is asked for; `ViewRefused` where that cannot be said.

    `whose` makes of the stated tenant the one that is shown: a page's token counts for that.
    """
    asked = Asked(query, ("tenant", "phase", "flag", "page_size", "page_token"))
    tenant, phase = asked.text("tenant"), asked.word("phase", JobPhase)
    flag, token = asked.word("flag", JobFlag), asked.text("page_token")
    size = asked.count("page_size", LARGEST_PAGE)
    asked.check()
    tenant = whose(tenant)
    try:
        return ViewQuery(tenant=tenant, phase=phase, flag=flag, page_size=size, page_token=token)
    except ValueError:
        raise _bad_token(token) from None


def _bad_token(token: str) -> ViewRefused:
    return refused_input(
        InputProblem(
            field="page_token",
            expected="the next_page_token of an earlier answer to the same query",
            found=_shown(token),
        )
    )


def asked_happenings(query: str) -> HappeningQuery:
    """Which happenings are asked for; `ViewRefused` as above."""
    asked = Asked(query, ("after_seq", "page_size"))
    found = HappeningQuery(
        after_seq=asked.count("after_seq", _MOST_SEQ),
        most=asked.count("page_size", MOST_EVENTS_A_PAGE),
    )
    asked.check()
    return found


def asked_fleet(query: str) -> str:
    """Whose fleet is asked for; `ViewRefused` as above."""
    asked = Asked(query, ("tenant",))
    tenant = asked.text("tenant")
    asked.check()
    return tenant


def asked_nothing(query: str) -> None:
    """Refuse a query where none is taken; `ViewRefused` as above."""
    Asked(query, ()).check()


def asked_watch(query: str, headers: Mapping[str, str]) -> WatchQuery:
    """Which changes are followed, and from where; `Last-Event-ID` counts more than `after`."""
    asked = Asked(query, ("job_id", "tenant", "after"))
    job_id, tenant = asked.text("job_id"), asked.text("tenant")
    last = headers.get("last-event-id")
    after = asked.place("after") if last is None else asked.place("Last-Event-ID", last)
    asked.check()
    return WatchQuery(job_id=job_id, tenant=tenant, after=after)


def _shown(text: str) -> str:
    """Text of a caller's as it is quoted back: short, and nothing in it is obeyed."""
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
