"""How laws were learned, as a log's manifest says it."""

from __future__ import annotations

import re
from dataclasses import asdict, fields

import pytest

from spotline.contracts.errors import ContractError
from spotline.domain.market.learning_rules import ALL_RULES, FIRST_RULES, LearningRules
from spotline.replay.handlers import learning_rules

NAMES = [each.name for each in fields(LearningRules)]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_log_does_not_state_was_not_done(name: str) -> None:
    stated = learning_rules({"forecaster": {"forecaster": "mixture", name: True}})

    assert asdict(stated) == {**asdict(FIRST_RULES), name: True}
    assert learning_rules({}) == FIRST_RULES
    assert learning_rules({"forecaster": asdict(ALL_RULES)}) == ALL_RULES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("said", [1, "yes", None])
def test_what_is_neither_true_nor_false_is_refused(name: str, said: object) -> None:
    wrong = f"settings.forecaster.{name}: expected true or false, found {said!r}"
    with pytest.raises(ContractError, match=re.escape(wrong)):
        learning_rules({"forecaster": {name: said}})
