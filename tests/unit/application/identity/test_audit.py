"""A chain of records holds as it was written, and says where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.identity.audit import (
    BEGUN,
    DONE,
    MOST_LINE_BYTES,
    MOST_TEXT,
    UNKNOWN_OUTCOME,
    Act,
    ActTally,
    AuditDoor,
    BreakKind,
    ChainHead,
    LineUnreadable,
    joined,
    line_of,
    origin_of,
    record_of,
    recorded,
    verified_chain,
)

ACT = Act(
    ts_ns=1_772_323_200_000_000_000,
    door=AuditDoor.GRPC,
    action="/spotline.api.v1.JobService/Cancel",
    outcome=DONE,
    subject="ann",
    role="owner",
    tenant="research",
    target="job_id=j1",
    peer="ipv4:10.0.0.7:4242",
)
MINUTE_NS = 60 * 10**9


def chain(count: int, name: str = "allocator") -> list[str]:
    head, lines = origin_of(name), []
    for number in range(count):
        record = recorded(head, replace(ACT, target=f"job_id=j{number + 1}"))
        lines.append(line_of(record))
        head = record.head
    return lines


def heads(lines: list[str]) -> list[ChainHead]:
    return [record_of(line).head for line in lines]


def broken(lines: list[str], *, kept: list[ChainHead] | None = None) -> tuple[int, BreakKind]:
    found = verified_chain("allocator", lines, kept or []).broken
    assert found is not None
    assert str(found.seq) in str(found)
    return found.seq, found.kind


@given(
    st.builds(
        Act,
        ts_ns=st.integers(0, 2**63),
        door=st.sampled_from(AuditDoor),
        action=st.text(),
        outcome=st.text(),
        subject=st.text(),
        target=st.text(max_size=400),
        peer=st.text(),
        count=st.integers(1, 2**40),
    )
)
def test_a_record_is_read_as_it_was_written(act):
    record = recorded(origin_of("placer"), act)

    line = line_of(record)

    assert record_of(line) == record
    assert line.isascii()
    assert "\n" not in line
    assert len(line) <= MOST_LINE_BYTES


def test_what_a_caller_writes_bounds_no_line():
    widest = "\U0001f600" * 10_000
    act = replace(ACT, target=widest, subject=widest, request_id=widest, peer=widest, reason=widest)

    assert len(act.target) == MOST_TEXT
    assert len(line_of(recorded(origin_of("allocator"), act))) <= MOST_LINE_BYTES


def test_a_whole_chain_holds_and_says_its_head():
    lines = chain(5)

    report = verified_chain("allocator", lines, heads(lines))

    assert report.broken is None
    assert report.head == heads(lines)[-1]


@given(st.integers(0, 4), st.data())
def test_any_changed_byte_names_its_record(at, data):
    lines = chain(5)
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    other = data.draw(st.characters(exclude_characters=lines[at][place], codec="ascii"))
    changed = lines[at][:place] + other + lines[at][place + 1 :]

    report = verified_chain("allocator", [*lines[:at], changed, *lines[at + 1 :]])

    assert report.broken is not None
    assert report.head.seq == at
    assert report.broken.kind is BreakKind.CHANGED


@given(st.integers(1, 4), st.integers(1, 3))
def test_lost_records_are_named_by_the_first(first, many):
    lines = chain(8)

    assert broken(lines[: first - 1] + lines[first - 1 + many :]) == (first, BreakKind.LOST)


def test_a_record_that_was_repeated_was_put_in():
    lines = chain(4)

    assert broken([*lines[:3], lines[1], lines[3]]) == (2, BreakKind.PUT_IN)


def test_a_record_written_anew_with_its_own_hash_is_named():
    lines = chain(4)
    anew = recorded(heads(lines)[0], replace(ACT, subject="nobody"))

    assert broken([lines[0], line_of(anew), *lines[2:]]) == (2, BreakKind.CHANGED)


def test_another_chains_records_do_not_pass():
    assert broken(chain(2, "placer")) == (1, BreakKind.PUT_IN)


def test_a_tail_that_is_gone_shows_by_a_kept_head_only():
    lines = chain(5)
    kept = [heads(lines)[4]]

    assert verified_chain("allocator", lines[:3]).broken is None
    assert broken(lines[:3], kept=kept) == (4, BreakKind.LOST)


def test_a_chain_written_anew_shows_by_a_kept_head_only():
    kept = [heads(chain(5))[2]]
    head, anew = origin_of("allocator"), []
    for _ in range(5):
        record = recorded(head, replace(ACT, subject="nobody"))
        anew.append(line_of(record))
        head = record.head

    assert verified_chain("allocator", anew).broken is None
    assert broken(anew, kept=kept) == (3, BreakKind.REWRITTEN)


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "null", "7", '{"seq":1}', "[" * 9_000, "\ud800", '{"seq": NaN}']
)
def test_what_is_no_record_is_refused_and_never_believed(line):
    with pytest.raises(LineUnreadable):
        record_of(line)


def test_numbers_that_are_none_are_refused():
    said = line_of(recorded(origin_of("allocator"), ACT))

    with pytest.raises(LineUnreadable, match="seq must be a whole number"):
        record_of(said.replace('"seq":1,', '"seq":true,'))


# --- many alike ---------------------------------------------------------------------------------


def test_a_flood_is_some_records_and_their_sum():
    tally = ActTally(singles=3, window_ns=MINUTE_NS)
    at = [replace(ACT, ts_ns=number * 10**6) for number in range(1_000)]

    written = [act for act in at for act in tally.note(("UNAUTHENTICATED",), act)]
    later = tally.note(("UNAUTHENTICATED",), replace(ACT, ts_ns=2 * MINUTE_NS))

    assert written == at[:3]
    assert [act.count for act in later] == [997, 1]
    assert later[0].ts_ns == at[3].ts_ns
    assert later[0].until_ns == at[-1].ts_ns


def test_kinds_do_not_hide_each_other():
    tally = ActTally(singles=1, window_ns=MINUTE_NS)
    tally.note(("UNAUTHENTICATED",), ACT)
    tally.note(("UNAUTHENTICATED",), ACT)

    assert tally.note(("ROLE_DENIED",), ACT) == (ACT,)
    assert [act.count for act in tally.rest()] == [1]
    assert tally.rest() == ()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40 * 10**9)), max_size=60))
def test_nothing_is_lost_in_counting(noted):
    tally, now_ns, written = ActTally(singles=2, window_ns=MINUTE_NS), 0, []
    for kind, after_ns in noted:
        now_ns += after_ns
        written += tally.note((kind,), replace(ACT, ts_ns=now_ns, subject=kind))
    written += tally.rest()

    for kind in "abc":
        assert sum(act.count for act in written if act.subject == kind) == sum(
            1 for noted_kind, _ in noted if noted_kind == kind
        )


# --- as people read it --------------------------------------------------------------------------


def test_what_was_begun_is_one_with_what_came_of_it():
    began = recorded(origin_of("allocator"), replace(ACT, outcome=BEGUN, ts_ns=10))
    other = recorded(began.head, replace(ACT, outcome=BEGUN, target="job_id=j2", ts_ns=11))
    ended = recorded(other.head, replace(ACT, of_seq=1, ts_ns=15))

    first, second = joined("allocator", [began, other, ended])

    assert (first.seq, first.act.outcome) == (1, DONE)
    assert (first.act.ts_ns, first.act.until_ns) == (10, 15)
    assert (second.seq, second.act.outcome) == (2, UNKNOWN_OUTCOME)
