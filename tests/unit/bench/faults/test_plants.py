"""Every planted bug is caught, and the oracles are not led by what they judge."""

import ast
import inspect
from functools import cache

import pytest

from spotline.bench.faults import accounts, limit_oracles, loss_oracles, oracles
from spotline.bench.faults.families.registry import FAMILIES
from spotline.bench.faults.plants.registry import PLANTS
from spotline.bench.faults.run import run_plant

# What results are read by; nothing that makes them.
READ_BY = (
    "spotline.bench.faults.",
    "spotline.contracts.",
    "spotline.domain.events.",
    "spotline.domain.limits.freezes",
    "spotline.domain.units",
)


# By seed: the undisturbed run of a scenario is made once for all that it is compared with.
BY_SEED = sorted(
    ((name, plant) for name in PLANTS for plant in PLANTS[name]), key=lambda each: each[1].seed
)
plant_run = cache(run_plant)


def planted(name, plant):
    """A case; in every run the first of its family, all of them in `make test-plants`."""
    marks = () if plant is PLANTS[name][0] else (pytest.mark.slow,)
    return pytest.param(name, plant, id=f"{name}.{plant.name}", marks=marks)


@pytest.mark.plants
@pytest.mark.parametrize(("name", "plant"), [planted(name, plant) for name, plant in BY_SEED])
def test_a_planted_bug_is_caught(name, plant):
    run = plant_run(name, plant)

    assert run.caught_at >= 0, f"{plant.what}, and no oracle says so"


@pytest.mark.slow
@pytest.mark.plants
def test_a_hard_deadline_that_is_given_up_is_missed_by_its_own_oracle():
    (plant,) = [each for each in PLANTS["runaway"] if each.name.startswith("a_minute_never_ends")]

    assert plant_run("runaway", plant).oracle == "deadlines_are_kept"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_three_planted_bugs(name):
    assert len(PLANTS[name]) >= 3


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_planted_bug_replaces_is_there(name):
    for plant in PLANTS[name]:
        for replacement in plant.replacements():
            assert replacement.name in vars(replacement.where), plant.name


@pytest.mark.parametrize("module", [oracles, limit_oracles, loss_oracles, accounts])
def test_oracles_import_nothing_of_what_they_judge(module):
    tree = ast.parse(inspect.getsource(module))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [name for name in imported if name.startswith("spotline")]

    assert ours
    assert [name for name in ours if not name.startswith(READ_BY)] == []


def test_a_plant_is_taken_out_again():
    plant = PLANTS["kill"][0]
    replacement = plant.replacements()[0]
    before = vars(replacement.where)[replacement.name]

    with plant.planted():
        assert vars(replacement.where)[replacement.name] is not before

    assert vars(replacement.where)[replacement.name] is before
