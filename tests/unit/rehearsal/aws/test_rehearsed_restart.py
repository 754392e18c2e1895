"""A rehearsal that is killed goes on from its state log: instances, tokens, notices, time."""

import json

import pytest

from spotline.rehearsal.aws.opening import LOG, MARKET, Making, opened
from spotline.rehearsal.aws.state import State
from spotline.rehearsal.aws.state_log import BrokenLog, records_of
from spotline.rehearsal.aws.world import INTERRUPTION
from tests.fakes.rehearsed_ec2 import SLOT_S, ids_of, made_market, offering_id, rehearsed_ec2

FALLS = made_market({offering_id(): [8, 8, 0]})


def test_instances_and_tokens_are_there_again(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS) as rig:
        answer = rig.fleet(3, ClientToken="once")
        rig.call("CreateTags", Resources=ids_of(answer)[:1], Tags=[{"Key": "a", "Value": "1"}])
        rig.pass_s(400)
        rig.call("TerminateInstances", InstanceIds=ids_of(answer)[1:2])
        before = rig.world.state
    with rehearsed_ec2(tmp_path) as rig:
        assert rig.world.state.instances == before.instances
        assert rig.fleet(3, ClientToken="once") == answer
        assert len(rig.world.state.instances) == 3
        assert rig.world.now_ns() == before.at_ns


def test_what_falls_due_meanwhile_happens_at_its_time(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS) as rig:
        (held,) = rig.launched(1)
        rig.pass_s(2 * SLOT_S - 100)
    with rehearsed_ec2(tmp_path) as rig:
        rig.pass_s(2 * SLOT_S)

        assert rig.at_s(rig.instance(held).ended_ns) == 2 * SLOT_S


def test_a_warning_that_is_to_come_comes_after_a_restart(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS) as rig:
        (held,) = rig.launched(1)
        at_ns = rig.world.now_ns()
        later_ns = at_ns + 50 * 10**9
        rig.world.record(
            "noticed", at_ns, instance_id=held, taken_ns=at_ns + 120 * 10**9,
            told_ns=[later_ns], in_metadata=True,
        )  # fmt: skip
    with rehearsed_ec2(tmp_path) as rig:
        rig.pass_s(60)

        assert [e.at_ns for e in rig.events if e.detail_type == INTERRUPTION] == [later_ns]


def test_a_line_that_a_kill_tore_never_was(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS) as rig:
        rig.fleet(1, ClientToken="kept")
        whole = len(rig.world.state.instances)
        log = rig.state / LOG
        size = log.stat().st_size
        rig.fleet(2, ClientToken="torn")
        text = log.read_bytes()
        cut = size + (len(text) - size) // 2
    log.write_bytes(text[:cut])
    with rehearsed_ec2(tmp_path) as rig:
        assert len(rig.world.state.instances) == whole
        assert len(ids_of(rig.fleet(2, ClientToken="torn"))) == 2
    assert all(record["kind"] for record in records_of(log))


def test_it_goes_on_as_it_was_made(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS, seed=9):
        pass
    with opened(tmp_path / "state", Making(seed=1)) as (world, making):
        assert (world.seed, making.seed, making.market_s_per_s) == (9, 9, 0)


def test_a_folder_without_a_world_needs_a_market(tmp_path):
    with pytest.raises(ValueError, match="--market must be given"), opened(tmp_path, Making()):
        pass


def test_another_market_is_no_way_to_go_on(tmp_path):
    with rehearsed_ec2(tmp_path, FALLS) as rig:
        state = rig.state
    with (state / MARKET).open("ab") as file:
        file.write((state / MARKET).read_bytes())
    with pytest.raises(BrokenLog, match="start of a world"), opened(state, Making()):
        pass


def test_a_line_that_is_no_record_is_named(tmp_path):
    path = tmp_path / LOG
    path.write_text('{"kind": "started", "at_ns": 0}\nnonsense\n')
    with pytest.raises(BrokenLog, match="line 2"):
        list(records_of(path))
    path.write_text('{"at_ns": 0}\n')
    with pytest.raises(BrokenLog, match="line 1"):
        list(records_of(path))


def test_an_unknown_record_is_refused():
    with pytest.raises(ValueError, match="kind must be one of"):
        State().apply(json.loads('{"kind": "vanished", "at_ns": 0}'))
