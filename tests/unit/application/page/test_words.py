"""Nobody is ever shown a state, flag, reason or class that has no words."""

from __future__ import annotations

from enum import Enum

import pytest

from spotline.application.board.messages import JobFlag, JobPhase, WaitingFor
from spotline.application.explaining.messages import AlternativeCut
from spotline.application.page.gantt import GLYPHS
from spotline.application.page.holdings import SignKind
from spotline.application.page.words import WORDS, said
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.policies.answer import DecisionReason

KINDS = (DecisionReason, JobPhase, JobFlag, WaitingFor, AlternativeCut, RefusalClass)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_member_is_called_something_of_its_own_and_means_something(kind: type[Enum]) -> None:
    words = [said(member) for member in kind]

    assert len({word.name for word in words}) == len(list(kind))
    assert len({word.means for word in words}) == len(list(kind))
    for word in words:
        assert "_" not in word.name + word.means
        assert len(word.means) > len(word.name)


def test_nothing_else_is_in_words() -> None:
    assert set(WORDS) == {member for kind in KINDS for member in kind}


def test_every_mark_has_a_sign_of_its_own() -> None:
    assert set(GLYPHS) == set(SignKind)
    assert len(set(GLYPHS.values())) == len(SignKind)
