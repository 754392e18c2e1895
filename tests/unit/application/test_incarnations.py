"""Which comparison of a log with what is remembered of it gives which conclusion."""

from hypothesis import given
from hypothesis import strategies as st

from spotline.application.incarnations import (
    IncarnationMark,
    LogFinding,
    LogRemembered,
    LogSeen,
    conclude,
    digest_of,
    rebased,
)
from spotline.contracts.envelope import StoredEntry

OURS, THEIRS = "0" * 32, "1" * 32
SEQS = st.integers(min_value=0, max_value=1000)
SLOTS = st.integers(min_value=-1, max_value=50)


@st.composite
def seen_logs(draw):
    last_seq = draw(SEQS)
    seqs = sorted(draw(st.sets(st.integers(1, max(1, last_seq)), max_size=3))) if last_seq else []
    return LogSeen(
        created=draw(st.sampled_from(["monday", "tuesday"])),
        last_seq=last_seq,
        installation_id=draw(st.sampled_from(["", OURS, THEIRS])),
        marks=tuple(
            IncarnationMark(incarnation=place + 2, seq=seq) for place, seq in enumerate(seqs)
        ),
        floor_seq=draw(SEQS),
        last_slot=draw(SLOTS),
    )


REMEMBERED = st.builds(
    LogRemembered,
    installation_id=st.just(OURS),
    restored=st.sampled_from(["", "a copy was put back"]),
    incarnation=st.integers(1, 4),
    created=st.sampled_from(["", "monday", "tuesday"]),
    last_seq=SEQS,
    last_slot=SLOTS,
    used=st.booleans(),
    last_digest=st.sampled_from(["", "one", "other"]),
)
DIGESTS = st.sampled_from(["", "one", "other"])


@given(seen_logs(), REMEMBERED, DIGESTS)
def test_the_last_entry_that_is_remembered_is_what_is_there_or_lies_behind_what_was_begun(
    log, remembered, digest
):
    conclusion = conclude(log, remembered, digest)
    if conclusion.finding is LogFinding.SAME and digest and remembered.last_digest:
        held = rebased(remembered.last_seq, remembered.incarnation, log.marks)
        assert digest == remembered.last_digest or held < remembered.last_seq


@given(seen_logs(), st.none() | REMEMBERED)
def test_nothing_that_was_acknowledged_lies_beyond_a_log_that_is_the_same(log, remembered):
    conclusion = conclude(log, remembered)
    if conclusion.finding is LogFinding.SAME:
        assert log.floor_seq <= log.last_seq
        if remembered is not None:
            assert rebased(remembered.last_seq, remembered.incarnation, log.marks) <= log.last_seq
            assert remembered.last_slot <= log.last_slot
            assert log.installation_id in ("", OURS)


@given(seen_logs(), st.none() | REMEMBERED)
def test_an_incarnation_that_begins_is_newer_than_all_that_are_known(log, remembered):
    conclusion = conclude(log, remembered)
    if conclusion.begins:
        assert conclusion.incarnation > log.incarnation
        assert remembered is None or conclusion.incarnation > remembered.incarnation
        assert conclusion.detail


@given(seen_logs(), st.none() | REMEMBERED)
def test_what_was_begun_once_is_not_begun_again(log, remembered):
    conclusion = conclude(log, remembered)
    if not conclusion.begins:
        return
    seq = log.last_seq + 1
    mark = IncarnationMark(incarnation=conclusion.incarnation, seq=seq)
    last_slot = log.last_slot if remembered is None else max(log.last_slot, remembered.last_slot)
    after = LogSeen(
        created=log.created,
        last_seq=seq,
        installation_id=log.installation_id,
        marks=(*log.marks, mark),
        floor_seq=rebased(log.floor_seq, log.incarnation, (mark,)),
        last_slot=last_slot,
    )
    if remembered is None or not remembered.restored:
        assert conclude(after, remembered).finding is LogFinding.SAME


@given(seen_logs(), REMEMBERED)
def test_only_a_log_of_this_installation_or_of_none_is_gone_on_with(log, remembered):
    foreign = conclude(log, remembered).finding is LogFinding.FOREIGN
    assert foreign == (log.installation_id == THEIRS)


@given(
    SEQS,
    st.integers(1, 4),
    st.lists(st.builds(IncarnationMark, incarnation=st.integers(2, 5), seq=SEQS)),
)
def test_what_is_remembered_holds_up_to_the_next_incarnation_and_no_further(
    seq, incarnation, marks
):
    held = rebased(seq, incarnation, marks)
    assert held <= seq
    for mark in marks:
        assert held < mark.seq or mark.incarnation <= incarnation


def test_a_log_that_ends_before_a_slot_that_the_ledger_knows_of_was_cut():
    log = LogSeen(created="monday", last_seq=161, installation_id=OURS, floor_seq=161, last_slot=10)
    ledger = LogRemembered(installation_id=OURS, last_slot=33, used=True)

    conclusion = conclude(log, ledger)

    assert conclusion.finding is LogFinding.CUT
    assert conclusion.detail == "the log ends in slot 10, the ledger in slot 33"


def test_an_empty_log_beside_a_ledger_that_holds_something_was_wiped():
    log = LogSeen(created="tuesday", last_seq=0)

    assert conclude(log, LogRemembered(installation_id=OURS, used=True)).finding is LogFinding.WIPED
    assert conclude(log, LogRemembered(installation_id=OURS)).finding is LogFinding.SAME


def entry(**more):
    given = {"seq": 7, "stored_ns": 1, "subject": "a.b", "headers": {"ce-id": "x"}, "payload": b"p"}
    return StoredEntry(**(given | more))


def test_an_entry_is_told_by_what_it_says_and_not_by_where_or_when_it_is_stored():
    same = digest_of(entry())
    assert digest_of(entry(seq=8, stored_ns=2)) == same
    others = [entry(subject="a.c"), entry(headers={"ce-id": "y"}), entry(payload=b"q")]
    moved = entry(subject="a.bx", headers={"ce-id": ""})
    assert same not in {digest_of(each) for each in (*others, moved)}
