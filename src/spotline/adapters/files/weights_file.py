"""Files of learned weights: what `--save-weights` writes and `--warm-start` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.adapters.files.json_file import read_json
from spotline.adapters.files.mistake import BadFile, mistake_of
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.domain.selection.learner import Learner


def read_weights(path: Path | None) -> str:
    """Read a file for `SelectorOptions.warm_start`; no file is no warm start.

    Raises
    ------
    BadFile
        It is no such file, or knows policies that are not in the pool.
    """
    from spotline.domain.policies.registry import POOL
    from spotline.domain.selection.saved import parse_saved

    if path is None:
        return ""
    try:
        saved = parse_saved(json.dumps(read_json(path)))
        saved.prior([policy.policy_id for policy in POOL])
    except ValueError as error:
        sentence = str(error).removeprefix("saved weights: ").removeprefix("saved weights ")
        raise BadFile(str(path), [mistake_of(sentence)]) from error
    return saved.to_json()


def weights_or_priors(path: Path | None, *, priors: bool) -> str:
    """The weights of a file; without one those in the wheel, where `priors` are wanted.

    Raises
    ------
    BadFile
        See `read_weights`.
    """
    from spotline.domain.selection.prior import shipped_weights

    return shipped_weights() if path is None and priors else read_weights(path)


def write_weights(path: Path, learner: Learner | None, provenance: str) -> None:
    """Write what was learned, with a word on what it was learned on.

    Raises
    ------
    ContractError
        Nothing was learned.
    """
    from spotline.domain.selection.saved import saved_from

    if learner is None:
        raise ContractError("weights", "only spotline learns; name it under --policy")
    try:
        saved = saved_from(learner.rule, learner.policy_ids, provenance)
    except ValueError as error:
        raise ContractError("weights", str(error)) from error
    path.write_text(saved.to_json() + "\n", encoding="utf-8")
