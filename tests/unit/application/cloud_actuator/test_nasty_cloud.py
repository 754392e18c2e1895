"""Ledger, log and cloud agree, whatever a cloud hides, loses, doubles or refuses."""

import random

import pytest

from spotline.application.cloud_actuator import launching, lives
from spotline.domain.ledger import instance_life
from spotline.domain.ledger.instance_life import LifeInput, LifeState
from tests.fakes.nasty_cloud import Nastiness
from tests.fakes.nasty_rig import NastyRig, random_story

SEEDS = range(30)


async def play(seed, *, mortal=False, nasty=None):
    rig = NastyRig(seed, nasty)
    await rig.start()
    if mortal:
        dice = random.Random(seed)
        rig.kill.at = {rig.kill.passed + dice.randrange(150) for _ in range(6)}
    await random_story(rig, seed)
    return rig


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_any_story_ledger_cloud_and_answers_agree(seed):
    rig = await play(seed)

    assert rig.cloud.launches


@pytest.mark.parametrize("seed", SEEDS)
async def test_and_so_they_do_when_the_actuator_dies_on_the_way(seed):
    rig = await play(seed, mortal=True)

    assert rig.memory.epoch > 1


async def play_all(nasty=None):
    for seed in SEEDS:
        await play(seed, nasty=nasty)


def ended(_life, _now_ns, _graces):
    return LifeState.ENDED


PLANTED = {
    "lost at the first absence": (LifeState.RUNNING, LifeInput.MISSING),
    "pending is lost": (LifeState.PENDING, LifeInput.MISSING),
    "not found is never launched": (LifeState.UNKNOWN, LifeInput.NOT_FOUND),
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_the_stories_catch_a_planted_fault(planted, monkeypatch):
    rules = dict(instance_life._NEXT)
    rules[PLANTED[planted]] = ended
    monkeypatch.setattr(instance_life, "_NEXT", rules)

    with pytest.raises(AssertionError):
        await play_all()


async def test_the_stories_catch_an_end_that_is_asked_for_once(monkeypatch):
    def once(life, _now_ns, _graces):
        return life.state is LifeState.STOPPING and life.asked_ns is None

    monkeypatch.setattr(lives, "needs_stop", once)

    with pytest.raises(AssertionError):
        await play_all()


async def test_the_stories_catch_an_offering_that_is_asked_again_too_soon(monkeypatch):
    monkeypatch.setattr(launching, "cooling", lambda *_, **__: None)

    with pytest.raises(AssertionError, match="asked again after"):
        await play_all(Nastiness(refused=0.7))
