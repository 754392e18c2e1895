"""Goldens are what their metadata says, the check on them can fail, and the cheapest one is equal."""

import hashlib
import json

import pytest

from tests.samples.stored_ledgers import FOLDER
from tests.samples.stored_runs import STORED
from tools import goldens

FOLDERS = (goldens.FOLDER, STORED, FOLDER)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_stored_files_are_those_that_their_metadata_hashes(folder):
    noted = goldens.loaded(folder / goldens.METADATA)["sha256"]

    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != goldens.METADATA
    }
    assert found == noted
    assert all(file.stat().st_size < 500 * 1024 for file in folder.iterdir())


def test_every_case_has_its_golden():
    kept = {file.stem for file in goldens.FOLDER.glob("*.json") if file.name != goldens.METADATA}

    assert kept == goldens.CASES.keys()


def test_the_value_tables_are_equal(tmp_path):
    noted = goldens.loaded(goldens.FOLDER / goldens.METADATA)["environment"]
    if noted != goldens.surroundings():
        pytest.skip("tables are floating point: equal only where the goldens were made")

    made = goldens.value_tables(tmp_path)

    kept = goldens.loaded(goldens.FOLDER / "value-table.json")
    assert list(goldens.differences(kept, json.loads(goldens.canonical(made)))) == []


# --- the check can fail ---------------------------------------------------------------------------


@pytest.fixture
def one_case(tmp_path, monkeypatch):
    """A folder with one golden, and what its case gives now."""
    now = {"money": 5, "rows": [{"slot": 1}, {"slot": 2}]}
    monkeypatch.setattr(goldens, "FOLDER", tmp_path)
    monkeypatch.setattr(goldens, "CASES", {"case": lambda folder: now})
    assert goldens.write(["case"]) == 0
    return now


def test_an_equal_golden_passes(one_case, capsys):
    assert goldens.check(["case"]) == 0
    assert "1 of 1 goldens equal" in capsys.readouterr().out


def test_each_difference_is_named(one_case, capsys):
    one_case["money"] = 6
    del one_case["rows"][1]["slot"]
    one_case["rows"].append({"slot": 3})

    assert goldens.check(["case"]) == 1
    said = capsys.readouterr().out
    assert "money: was 5, is 6" in said
    assert "rows: had 2 entries, has 3" in said
    assert "rows[1].slot: was 2, is missing" in said


@pytest.mark.parametrize(
    ("kept", "now", "equal"),
    [
        (0.1, 0.1 + 1e-15, True),
        (2.80021368809288e-06, 2.8002136880928644e-06, True),
        (123_456.789_012, 123_456.789_013, False),
        (3e-11, 4e-11, False),
        (0.1, 0.1 + 1e-6, False),
        (0.0, 1e-6, False),
        (5, 5.0, False),
        (5_000_000_000, 5_000_000_001, False),
    ],
)
def test_fractions_differ_where_no_processor_rounds_so(kept, now, equal):
    assert (list(goldens.differences({"a": kept}, {"a": now})) == []) is equal


def test_a_golden_that_was_edited_by_hand_is_found(one_case, capsys):
    kept = goldens.FOLDER / "case.json"
    kept.write_text(kept.read_text() + " ")

    assert goldens.check(["case"]) == 1
    assert "edited by hand" in capsys.readouterr().out


def test_a_number_that_becomes_text_is_a_difference():
    assert list(goldens.differences({"a": 1}, {"a": "1"})) == ['a: was 1, is "1"']
    assert list(goldens.differences({"a": 1}, {"a": True})) == ["a: was 1, is true"]


def test_a_demos_log_is_cut_at_the_report_after_its_last_job(tmp_path):
    def entry(seq, kind, **event):
        return {"seq": seq, "headers": {"ce-type": f"spotline.v1.{kind}"}, "event": event}

    entries = [
        entry(1, "job.closed"),
        entry(2, "capacity.report", slot="4", settled=True),
        entry(3, "job.closed"),
        entry(4, "capacity.report", slot="5"),
        entry(5, "capacity.report", slot="5", settled=True),
        entry(6, "forecast.issued"),
    ]
    (tmp_path / "entries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in entries))
    (tmp_path / "manifest.json").write_text(json.dumps({"last_seq": 6}))

    assert goldens.cut(tmp_path) == 5
    assert goldens.loaded(tmp_path / "manifest.json") == {"last_seq": 5}
    assert len((tmp_path / "entries.jsonl").read_text().splitlines()) == 5


def test_a_command_that_fails_is_no_golden(tmp_path):
    with pytest.raises(goldens.CommandFailed, match="exit 2"):
        goldens.spotline(("market", "describe", "--no-such-option"), cwd=tmp_path)
