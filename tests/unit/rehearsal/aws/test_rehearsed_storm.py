"""Weather as it is by default, three calls of ten failing, and kills: nothing twice, nothing lost."""

import random
from contextlib import ExitStack
from dataclasses import replace

import pytest

from spotline.domain.units import S_PER_HOUR
from spotline.rehearsal.aws.bill import bill_of
from spotline.rehearsal.aws.service import AwsError, ConnectionLost
from spotline.rehearsal.aws.weather import ORDINARY
from tests.fakes.rehearsed_ec2 import (
    FAR,
    NEAR,
    fleet_params,
    ids_of,
    made_market,
    offering_id,
    rehearsed_ec2,
)

STORM = replace(ORDINARY, fail_share=0.3)
AGAIN = {"RequestLimitExceeded", "InternalError", "InvalidInstanceID.NotFound"}
MARKET = made_market(
    {
        offering_id(NEAR): [8, 3, 8, 0, 5, 8, 1, None, None, 6, 2, 8],
        offering_id(FAR): [4, 8, 0, 8, 8, 2, 8, 8, None, 0, 8, 4],
    },
    {offering_id(NEAR): [9.0, 8.1, 9.7, 9.9, 7.77]},
    slots=24,
)


class Caller:
    """A client that asks until it is answered, on a cloud that is killed now and then."""

    def __init__(self, folder, seed):
        self.dice = random.Random(seed)
        self._folder, self._seed = folder, seed
        self._stack = ExitStack()
        self.rig = self._open()
        self.template = None

    def _open(self):
        return self._stack.enter_context(
            rehearsed_ec2(self._folder, MARKET, STORM, seed=self._seed)
        )

    def kill(self):
        self._stack.close()
        self.rig = self._open()

    def close(self):
        self._stack.close()

    def until_answered(self, operation, **params):
        while True:
            if self.dice.random() < 0.1:
                self.kill()
            try:
                return self.rig.call(operation, **params)
            except ConnectionLost:
                self.rig.pass_s(1)
            except AwsError as error:
                if error.code not in AGAIN:
                    raise
                self.rig.pass_s(1)


@pytest.fixture
def caller(tmp_path):
    made = Caller(tmp_path, seed=11)
    yield made
    made.close()


def test_a_caller_holds_what_it_was_answered_and_pays_for_nothing_else(caller):
    caller.rig.faults.share = 0.0
    params = {zone: fleet_params(caller.rig, 1, zone=zone) for zone in (NEAR, FAR)}
    held: list[str] = []
    for number in range(60):
        asked = dict(params[caller.dice.choice((NEAR, FAR))])
        asked["TargetCapacitySpecification"] = {
            "TotalTargetCapacity": caller.dice.randint(1, 4),
            "DefaultTargetCapacityType": caller.dice.choice(("spot", "on-demand")),
        }
        held += ids_of(caller.until_answered("CreateFleet", ClientToken=f"t{number}", **asked))
        if held and caller.dice.random() < 0.5:
            caller.rig.pass_s(6)
            ended = caller.dice.choice(held)
            if caller.rig.instance(ended).state != "terminated":
                caller.until_answered("TerminateInstances", InstanceIds=[ended])
        caller.rig.pass_s(caller.dice.choice((1, 60, 300)))
    world = caller.rig.world
    alive = [one.instance_id for one in world.state.here.values() if one.alive]
    for first in range(0, len(alive), 3):
        caller.until_answered("TerminateInstances", InstanceIds=alive[first : first + 3])
    caller.rig.pass_s(120)
    world = caller.rig.world
    bill = bill_of(caller.rig.state)

    assert sorted(world.state.instances) == sorted(held)
    assert len(set(held)) == len(held)
    assert {one.state for one in world.state.instances.values()} == {"terminated"}
    assert not any(line.open for line in bill)
    assert {one.reason for one in world.state.instances.values()} == {
        "Client.UserInitiatedShutdown",
        "Server.SpotInstanceTermination",
    }
    for line in bill:
        free = line.taken and line.ended_ns - line.running_ns < S_PER_HOUR * 10**9
        assert (line.micro_usd == 0) == free
