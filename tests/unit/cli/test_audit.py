"""`spotline audit`: what it lists, and what it finds broken."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spotline.bootstrap.auditing import AuditAt, note_command, record_command
from spotline.cli.main import app
from tests.fakes.audit_acts import ACT


@pytest.fixture
def store(tmp_path):
    """A store with two chains: two commands, and a service's flood of denials."""
    with record_command(tmp_path, "auth token create", target="key=k1 name=ann"):
        pass
    note_command(tmp_path, "store restore")
    with AuditAt(store=tmp_path).trail("allocator") as trail:
        trail.write_now(ACT)
    return tmp_path


def spotline(*words):
    return CliRunner().invoke(app, ["audit", *(str(word) for word in words)])


def listed(store, *words):
    ran = spotline("--store", store, "--json", *words)
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def test_all_chains_are_listed_together_by_time(store):
    acts = listed(store)

    assert [(act["chain"], act["seq"]) for act in acts] == [
        ("allocator", 1),
        ("commands", 1),
        ("commands", 3),
    ]
    assert acts[0]["count"] == 4_980
    assert acts[1]["target"] == "key=k1 name=ann"


def test_it_is_narrowed_by_who_what_and_when(store):
    assert [act["action"] for act in listed(store, "--action", "restore")] == ["store restore"]
    assert [act["chain"] for act in listed(store, "--subject", "anonymous")] == ["allocator"]
    assert len(listed(store, "--since", "1h")) == 2
    assert len(listed(store, "--since", "2020-01-01T00:00:00Z")) == 3
    assert "--since: expected a duration" in spotline("--store", store, "--since", "soon").stderr


def test_people_read_a_table(store):
    ran = spotline("--store", store)

    assert ran.exit_code == 0
    assert "auth token create" in ran.stdout
    assert "4980 x JobService/Cancel" in ran.stdout.replace("\n", " ")


def test_a_whole_store_verifies_and_tells_its_heads(store, tmp_path):
    ran = spotline("verify", "--store", store)

    assert ran.exit_code == 0, ran.output
    assert "allocator: 1 records" in ran.stdout
    assert "commands: 3 records" in ran.stdout


def test_a_changed_record_is_named(store):
    path = store / "audit" / "commands.jsonl"
    path.write_text(path.read_text().replace("name=ann", "name=eve", 1))

    ran = spotline("verify", "--store", store)

    assert ran.exit_code == 1
    assert "commands: broken: record 1 was changed" in ran.stdout
    assert "allocator: 1 records" in ran.stdout
    assert spotline("--store", store).exit_code == 2


def test_the_check_of_a_store_reads_its_audit_too(store):
    def found() -> list[tuple[str, str]]:
        ran = CliRunner().invoke(app, ["store", "check", "--store", str(store), "--json"])
        findings = json.loads(ran.stdout)["findings"]
        return [(each["state"], each["detail"]) for each in findings if each["part"] == "audit"]

    whole = found()
    path = store / "audit" / "allocator.jsonl"
    path.write_text(path.read_text().replace("10.0.0.7", "10.0.0.8"))
    broken = found()

    assert whole == [("well", "4 records in 2 chains")]
    assert [(state, detail.partition(":")[0]) for state, detail in broken] == [
        ("found", "allocator")
    ]


def test_a_tail_or_a_chain_that_is_gone_shows_by_what_was_kept(store):
    kept = store / "kept.json"
    kept.write_text(spotline("verify", "--store", store, "--json").stdout)
    path = store / "audit" / "commands.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    (store / "audit" / "allocator.jsonl").unlink()

    alone = spotline("verify", "--store", store)
    ran = spotline("verify", "--store", store, "--expect", kept, "--json")

    assert alone.exit_code == 0
    assert ran.exit_code == 1
    broken = {said["chain"]: said["broken"] for said in json.loads(ran.stdout)["chains"]}
    assert (broken["commands"]["record"], broken["commands"]["kind"]) == (2, "LOST")
    assert (broken["allocator"]["record"], broken["allocator"]["kind"]) == (1, "LOST")


def test_what_is_no_store_or_no_list_of_heads_is_said(tmp_path):
    assert "expected the folder of a store" in spotline("--store", tmp_path / "none").stderr
    other = tmp_path / "other.json"
    other.write_text("[]")
    ran = spotline("verify", "--store", tmp_path, "--expect", other)
    assert ran.exit_code == 2
    assert "audit verify --json" in ran.stderr
