"""The check on the compose files can fail."""

from __future__ import annotations

import copy

import pytest

from services.allocator.settings import AllocatorSettings
from services.notifier.settings import NotifierSettings
from services.selector.settings import SelectorSettings
from tests.fakes.composition import Composition
from tests.fakes.strict_yaml import read_yaml
from tools.check_compose import merged, problems

BY_OPTIONS = {
    "allocator": AllocatorSettings,
    "notifier": NotifierSettings,
    "selector": SelectorSettings,
}


@pytest.fixture
def compose(repository) -> dict:
    return read_yaml(repository / "docker-compose.yml")


def unrelated_to_settings(found: list[str]) -> list[str]:
    return [problem for problem in found if "is no setting of the service" not in problem]


def test_compose_file_has_a_sound_structure(compose):
    assert unrelated_to_settings(list(problems(compose))) == []


@pytest.mark.parametrize(
    ("service", "change", "complaint"),
    [
        ("selector", {"memory": "1g"}, "unknown key 'memory'"),
        ("selector", {"mem_limit": "much"}, "mem_limit must be a size"),
        ("selector", {"healthcheck": {}}, "has no health check"),
        ("selector", {"healthcheck": {"test": ["NONE"], "interval": 10}}, "interval must be"),
        ("selector", {"depends_on": {"broker": {"condition": "service_healthy"}}}, "'broker'"),
        ("selector", {"volumes": ["elsewhere:/data"]}, "undeclared volume 'elsewhere'"),
        ("selector", {"build": {"context": ".", "dockerfile": "Nowhere"}}, "no Nowhere"),
        (
            "selector",
            {"build": {"dockerfile": "services/Dockerfile", "args": {"SERVICE": "placer"}}},
            "built with SERVICE 'placer', expected 'selector'",
        ),
        ("nats", {"healthcheck": {}}, "has no health check"),
        ("selector", {"image": "python"}, "exactly one of image and build"),
        ("selector", {"environment": {"SPOTLINE_HEALTH_PORT": 8080}}, "must be a string"),
        ("nats", {"volumes": ["./deploy/nats/gone.conf:/etc/x"]}, "gone.conf, which does not"),
        ("cloud_actuator", {"environment": {"SPOTLINE_CLUOD": "x"}}, "CLUOD is no setting"),
    ],
)
def test_planted_mistake_is_named(compose, service, change, complaint):
    broken = copy.deepcopy(compose)
    broken["services"][service] |= change

    found = list(problems(broken))

    assert any(complaint in problem and problem.startswith(service) for problem in found), found


def test_overlay_adds_to_the_base():
    base = {"services": {"a": {"environment": {"X": "1"}, "volumes": ["v:/v"]}}}
    overlay = {"services": {"a": {"environment": {"Y": "2"}, "volumes": ["w:/w"]}, "b": {}}}

    both = merged(base, overlay)

    assert both["services"]["a"] == {
        "environment": {"X": "1", "Y": "2"},
        "volumes": ["v:/v", "w:/w"],
    }
    assert "b" in both["services"]
    assert base["services"]["a"]["environment"] == {"X": "1"}


def test_who_goes_by_the_selectors_options_is_told_the_same(repository, monkeypatch):
    found = {}
    for service, settings in BY_OPTIONS.items():
        with monkeypatch.context() as stated:
            for name, value in Composition(repository, {}).environment(service).items():
                stated.setenv(name, value)
            found[service] = settings().selector

    assert found["allocator"] == found["notifier"] == found["selector"]


def test_every_service_has_its_container(compose, repository):
    built = {name for name, service in compose["services"].items() if "build" in service}

    assert built == {path.parent.name for path in (repository / "services").glob("*/__main__.py")}
