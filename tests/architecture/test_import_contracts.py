"""The import contracts hold, and each of them can fail."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    contract: str
    path: str
    line: str
    evidence: str


VIOLATIONS = {
    "domain_imports_the_clock": Violation(
        contract="pure-core",
        path="src/spotline/domain/units.py",
        line="import time\n",
        evidence="spotline.domain.units -> time",
    ),
    "handler_rolls_dice_inside_a_function": Violation(
        contract="pure-core",
        path="src/spotline/application/spec.py",
        line="\n\ndef _draw():\n    import random\n\n    return random.random()\n",
        evidence="spotline.application.spec -> random",
    ),
    "domain_imports_upwards": Violation(
        contract="layers",
        path="src/spotline/domain/units.py",
        line="import spotline.application.spec\n",
        evidence="spotline.domain.units -> spotline.application.spec",
    ),
    "new_layer_is_not_declared": Violation(
        contract="layers",
        path="src/spotline/analytics/__init__.py",
        line="",
        evidence="spotline.analytics",
    ),
    "service_imports_its_sibling": Violation(
        contract="services",
        path="services/forecaster/__init__.py",
        line="import services.selector\n",
        evidence="services.forecaster -> services.selector",
    ),
    "new_service_is_not_declared": Violation(
        contract="services",
        path="services/accountant/__init__.py",
        line="",
        evidence="services.accountant",
    ),
    "spotline_imports_a_service": Violation(
        contract="services-on-top",
        path="src/spotline/cli/__init__.py",
        line="import services.selector\n",
        evidence="spotline.cli -> services.selector",
    ),
    "handler_imports_its_sibling": Violation(
        contract="handlers",
        path="src/spotline/application/forecaster/handler.py",
        line="import spotline.application.selector.handler\n",
        evidence="spotline.application.forecaster.handler -> spotline.application.selector.handler",
    ),
    "decision_looks_at_statistics_indirectly": Violation(
        contract="statistics",
        path="src/spotline/domain/market/law.py",
        line="\n\ndef _peek():\n    import spotline.domain.statistics.windows  # noqa: F401\n",
        evidence="spotline.domain.statistics",
    ),
    "generated_code_outside_its_fence": Violation(
        contract="generated",
        path="src/spotline/adapters/nats/__init__.py",
        line="import spotline.api.v1\n",
        evidence="spotline.adapters.nats -> spotline.api.v1",
    ),
    "cloud_imports_another_cloud": Violation(
        contract="clouds",
        path="src/spotline/adapters/clouds/aws/__init__.py",
        line="import spotline.adapters.clouds.simulated\n",
        evidence="spotline.adapters.clouds.aws -> spotline.adapters.clouds.simulated",
    ),
    "service_knows_the_simulated_cloud": Violation(
        contract="composer",
        path="services/cloud_actuator/settings.py",
        line="import spotline.adapters.clouds.simulated.faults\n",
        evidence="services.cloud_actuator.settings -> spotline.adapters.clouds.simulated.faults",
    ),
    "replay_reaches_the_broker_indirectly": Violation(
        contract="replay",
        path="src/spotline/replay/__init__.py",
        line="import spotline.adapters.nats\n",
        evidence="spotline.replay -> spotline.adapters.nats",
    ),
    "agent_imports_what_services_need": Violation(
        contract="agent",
        path="src/spotline/agent/ports.py",
        line="\n\ndef _peek():\n    import spotline.adapters.grpc.kit.calling  # noqa: F401\n",
        evidence="spotline.agent.ports -> spotline.adapters.grpc.kit.calling",
    ),
    "rehearsal_knows_what_it_tests": Violation(
        contract="rehearsal",
        path="src/spotline/rehearsal/aws/__init__.py",
        line="import spotline.adapters.clouds.aws.settings\n",
        evidence="spotline.rehearsal.aws -> spotline.adapters.clouds.aws.settings",
    ),
    "packages_of_the_domain_form_a_cycle": Violation(
        contract="acyclic",
        path="src/spotline/domain/jobs/__init__.py",
        line="import spotline.domain.policies\n",
        evidence="spotline.domain",
    ),
}


def test_every_contract_is_seen_to_break(repository):
    configuration = tomllib.loads((repository / "pyproject.toml").read_text())

    declared = {contract["id"] for contract in configuration["tool"]["importlinter"]["contracts"]}

    assert declared == {violation.contract for violation in VIOLATIONS.values()}


def test_contracts_hold_on_the_tree_as_it_is(lint_imports):
    result = lint_imports()

    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize("name", VIOLATIONS)
def test_planted_violation_is_caught(tree, lint_imports, name):
    violation = VIOLATIONS[name]
    tree.append(violation.path, violation.line)

    result = lint_imports(violation.contract)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 broken" in result.stdout
    # Long names are wrapped in the report.
    assert violation.evidence in " ".join(result.stdout.split())
