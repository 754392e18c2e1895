"""The reckoning over diaries: what counts, what is lost, and what does not add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.demo.train.accounts import account_of
from spotline.demo.train.diary import Diary, DiaryDamaged, read_diary

BATCH = 4


def note(folder, generation, *, first, last, world=1, resumed=None, ranks=None):
    """Write the diaries of a generation that trains the steps `first` to `last`."""
    resumed = first - 1 if resumed is None else resumed
    for rank in range(world) if ranks is None else ranks:
        diary = Diary(folder, generation=generation, rank=rank)
        diary.began(step=resumed, world=world, parameters=f"after-{resumed}")
        for step in range(first, last + 1):
            begin = (step - 1) * BATCH
            diary.contributes(step, range(begin + rank, begin + BATCH, world))
            if rank == 0:
                diary.lost(step, 1.0 / step + generation)
                diary.reached(step, f"after-{step}")
        diary.close()


def end(folder, generation, step, loss=2.0):
    diary = Diary(folder, generation=generation, rank=0)
    diary.ended(step, held_out_loss=loss, parameters=f"after-{step}")
    diary.close()


def test_an_undisturbed_training_loses_nothing(tmp_path: Path) -> None:
    note(tmp_path, 0, first=1, last=5)
    end(tmp_path, 0, 5, loss=2.5)

    account = account_of(tmp_path, steps=5, batch=BATCH)

    assert account.problems == ()
    assert (account.steps_lost, account.resizes, account.held_out_loss) == (0, 0, 2.5)
    assert list(account.losses) == [1, 2, 3, 4, 5]


def test_steps_behind_the_checkpoint_that_was_resumed_are_lost(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=7, world=2)
    note(tmp_path, 2, first=5, last=6, world=1)
    note(tmp_path, 3, first=7, last=10, world=2)
    end(tmp_path, 3, 10)

    account = account_of(tmp_path, steps=10, batch=BATCH)

    assert account.problems == ()
    assert [generation.lost for generation in account.generations] == [3, 0, 0]
    assert [generation.kept for generation in account.generations] == [4, 6, 10]
    assert account.resizes == 2
    # Of steps that were trained twice, the loss is that of the training that counts.
    assert account.losses[5] == 1 / 5 + 2


def test_a_generation_that_nothing_builds_on_is_lost_whole(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=6)
    note(tmp_path, 2, first=4, last=9, world=2)
    note(tmp_path, 3, first=4, last=10)
    end(tmp_path, 3, 10)

    account = account_of(tmp_path, steps=10, batch=BATCH)

    assert account.problems == ()
    assert [generation.lost for generation in account.generations] == [3, 6, 0]


def test_a_generation_that_was_killed_while_it_started_is_passed_over(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=3)
    Diary(tmp_path, generation=2, rank=0).close()
    note(tmp_path, 3, first=4, last=4)
    end(tmp_path, 3, 4)

    account = account_of(tmp_path, steps=4, batch=BATCH)

    assert account.problems == ()
    assert [generation.generation for generation in account.generations] == [1, 3]


def test_a_cut_last_line_is_left_out_and_any_other_is_damage(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=3)
    page = tmp_path / "g00000001-r0000.jsonl"
    page.write_text(page.read_text() + '{"kind": "update", "st')

    assert len(list(read_diary(tmp_path)[0].of("update"))) == 3

    page.write_text(page.read_text() + '\n{"kind": "update"}\n')
    with pytest.raises(DiaryDamaged, match="line 11"):
        read_diary(tmp_path)


def test_a_position_that_was_left_out_is_a_problem(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=2)
    note(tmp_path, 2, first=4, last=5)
    end(tmp_path, 2, 5)

    (problem,) = [
        text
        for text in account_of(tmp_path, steps=5, batch=BATCH).problems
        if "was built on" in text
    ]

    assert problem == "generation 1: trained up to step 2, and step 3 was built on"


def test_a_rank_that_contributed_nothing_is_a_problem(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=2, world=2, ranks=[0])
    end(tmp_path, 1, 2)

    problems = account_of(tmp_path, steps=2, batch=BATCH).problems

    assert (
        "generation 1, step 1: expected one note of each of 2 ranks, found those of [0]" in problems
    )
    assert "generation 1, step 1: expected positions 0 to 3 once each, found [0, 2]" in problems


def test_a_position_that_two_ranks_trained_is_a_problem(tmp_path: Path) -> None:
    diaries = [Diary(tmp_path, generation=1, rank=rank) for rank in range(2)]
    for diary in diaries:
        diary.began(step=0, world=2, parameters="new")
        diary.contributes(1, [0, 1])
        diary.close()
    end(tmp_path, 1, 1)

    (problem,) = account_of(tmp_path, steps=1, batch=BATCH).problems

    assert problem.endswith("expected positions 0 to 3 once each, found [0, 0, 1, 1]")


def test_parameters_that_nobody_had_before_are_a_problem(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=3)
    diary = Diary(tmp_path, generation=2, rank=0)
    diary.began(step=3, world=1, parameters="others")
    diary.contributes(4, range(12, 16))
    diary.close()
    end(tmp_path, 2, 4)

    (problem,) = account_of(tmp_path, steps=4, batch=BATCH).problems

    assert problem == (
        "generation 2, rank 0: parameters of step 3 are others, which none had before it"
    )


def test_a_training_without_an_end_is_a_problem(tmp_path: Path) -> None:
    note(tmp_path, 1, first=1, last=3)

    account = account_of(tmp_path, steps=4, batch=BATCH)

    assert account.held_out_loss is None
    assert set(account.problems) == {
        "generation 1: trained up to step 3, and step 4 was built on",
        "no diary says that the training ended",
    }
