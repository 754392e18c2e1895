import json

import pytest

from spotline.agent.run_events import CheckpointSaid, ProgressSaid, ResumedSaid, read_event
from spotline.contracts.errors import ContractError
from spotline.domain.events.training import CheckpointFault, CheckpointKind

COMMITTED = {
    "kind": "checkpoint",
    "rank": 0,
    "generation": 2,
    "at_s": 5.0,
    "step": 7,
    "done": 70,
    "uri": "/s/checkpoints/00000002-0000000007-p",
    "sha256": "ab",
    "save_s": 1.5,
    "position": {"epoch": 1},
    "files": {"a": {"bytes": 3, "sha256": "x"}, "b": {"bytes": 4, "sha256": "y"}},
}


def read(**fields):
    return read_event(json.dumps(fields))


def test_progress_and_resumption_are_read():
    assert read(
        kind="progress", generation=1, rank=0, at_s=2, step=3, done=4.5, tokens_per_s=9
    ) == ProgressSaid(generation=1, at_s=2.0, step=3, done=4.5)
    assert read(
        kind="resumed", generation=1, at_s=2.0, sha256="ab", load_s=0.5, done=4
    ) == ResumedSaid(generation=1, at_s=2.0, sha256="ab", load_s=0.5, done=4.0)


def test_a_checkpoint_is_read_with_its_size_and_what_it_is_for():
    assert read(**COMMITTED) == CheckpointSaid(
        generation=2,
        at_s=5.0,
        step=7,
        done=70.0,
        uri="/s/checkpoints/00000002-0000000007-p",
        sha256="ab",
        size_bytes=7,
        kind=CheckpointKind.PREEMPTION,
        save_s=1.5,
        fault=None,
        detail="",
    )


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"uri": "a/1-1"}, CheckpointKind.PERIODIC),
        ({"uri": "a/1-1-f/"}, CheckpointKind.FINAL),
        ({"uri": "a/1-1", "checkpoint_kind": "final"}, CheckpointKind.FINAL),
        ({"uri": None}, CheckpointKind.PERIODIC),
    ],
)
def test_the_kind_is_as_said_or_as_the_folder_is_named(fields, kind):
    assert read(**{**COMMITTED, **fields}).kind is kind


def test_a_fault_is_read():
    event = read(kind="checkpoint", generation=1, at_s=1, step=2, fault="skipped", detail="late")

    assert (event.fault, event.detail) == (CheckpointFault.SKIPPED, "late")
    assert (event.size_bytes, event.sha256, event.uri) == (0, "", "")


@pytest.mark.parametrize("line", ["", "  ", '{"kind": "of tomorrow"}', "{}"])
def test_what_says_nothing_is_none(line):
    assert read_event(line) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "expected a JSON object, found '{'"),
        ("[1]", "expected a JSON object"),
        ('{"kind": "progress", "generation": 1, "at_s": 1}', "done: expected a finite number"),
        ('{"kind": "progress", "generation": -1, "at_s": 1}', "generation: expected a whole"),
        ('{"kind": "progress", "generation": 1, "at_s": NaN}', "at_s: expected a finite number"),
        (json.dumps({**COMMITTED, "fault": "odd"}), "fault: expected one of skipped, .* 'odd'"),
        (json.dumps({**COMMITTED, "checkpoint_kind": 1}), "checkpoint_kind: expected one of"),
        (json.dumps({**COMMITTED, "uri": 1}), "uri: expected a text, found 1"),
        (json.dumps({**COMMITTED, "files": {"a": {"bytes": "3"}}}), "bytes: expected a whole"),
    ],
)
def test_what_breaks_the_contract_names_its_field(line, message):
    with pytest.raises(ContractError, match=r"events\.jsonl.*" + message):
        read_event(line)
