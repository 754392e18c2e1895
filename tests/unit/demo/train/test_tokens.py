"""The text that the proof's jobs learn."""

from __future__ import annotations

import numpy as np
import pytest

from spotline.demo.train.tokens import HELD_OUT_FROM, TokenSource


def test_a_sequence_follows_from_its_position_alone() -> None:
    source = TokenSource(task=2, seed=5)

    assert source.sequence(17).tolist() == TokenSource(task=2, seed=5).sequences(16, 3)[1].tolist()
    assert source.sequence(17).tolist() != source.sequence(18).tolist()
    assert source.sequence(17).tolist() != TokenSource(task=2, seed=6).sequence(17).tolist()
    assert source.held_out(2).tolist() == source.sequences(HELD_OUT_FROM, 2).tolist()


def test_a_task_changes_half_of_the_base_source() -> None:
    base, task = TokenSource().law, TokenSource(task=3).law

    changed = (base != task).any(axis=1)

    assert changed.sum() == len(base) // 2
    assert task.sum(axis=1) == pytest.approx(1.0)
    assert (task > 0).all()


def test_text_obeys_its_law() -> None:
    source = TokenSource(task=1, vocabulary=16)
    text = source.sequences(0, 300)
    counts = np.zeros((16, 16))
    np.add.at(counts, (text[:, :-1].ravel(), text[:, 1:].ravel()), 1.0)

    measured = counts / counts.sum(axis=1, keepdims=True)

    # Some 1,200 draws a row: three standard deviations of the likeliest successor.
    assert np.abs(measured - source.law).max() < 3 * np.sqrt(0.25 / 1000)


def test_least_loss_is_what_the_law_itself_loses() -> None:
    source = TokenSource(task=1)
    text = source.sequences(0, 400)

    own = -np.log(source.law[text[:, :-1], text[:, 1:]]).mean()

    assert own == pytest.approx(source.least_loss, abs=0.03)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"vocabulary": 11}, "vocabulary must be >= 12, was 11"),
        ({"length": 1}, "length must be >= 2 tokens, was 1"),
        ({"seed": -1}, "task and seed must be >= 0, were 0 and -1"),
    ],
)
def test_what_is_no_source_is_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TokenSource(**wrong)
