from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.faust.progress import Progress


def delivered(*offsets):
    progress = Progress()
    for offset in offsets:
        progress.deliver(offset)
    return progress


def test_holes_between_delivered_offsets_are_no_unfinished_work():
    progress = delivered(3, 7, 100)

    assert progress.advance({3, 7, 100}) == 101


def test_stops_at_the_first_unfinished_message():
    progress = delivered(3, 7, 100)
    acked = {3, 100}

    assert progress.advance(acked) == 4
    assert acked == {100}
    assert progress.advance(acked) is None

    acked.add(7)
    assert progress.advance(acked) == 101
    assert acked == set()


def test_nothing_delivered_is_nothing_to_commit():
    assert Progress().advance({5}) is None


@given(
    st.lists(st.integers(1, 10_000), unique=True, max_size=40).map(sorted),
    st.randoms(use_true_random=False),
)
def test_commits_only_what_is_finished_and_in_the_end_everything(offsets, chance):
    progress = delivered(*offsets)
    acked, ever_acked, committed = set(), set(), 0
    for offset in chance.sample(offsets, len(offsets)):
        acked.add(offset)
        ever_acked.add(offset)
        if (to := progress.advance(acked)) is not None:
            assert to > committed
            committed = to
        assert {one for one in offsets if one < committed} <= ever_acked

    assert committed == (offsets[-1] + 1 if offsets else 0)
    assert not acked
    assert len(progress) == 0
