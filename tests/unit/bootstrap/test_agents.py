"""Where agents dial in: what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.allocator.settings import AllocatorSettings
from services.cloud_actuator.settings import CloudActuatorSettings
from spotline.bootstrap.agents import AgentsAt
from spotline.contracts.errors import ConfigError


@pytest.mark.parametrize("address", ["7443", ":7443", "host:", "host:http", "host:70000"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigError, match="agents address must be HOST:PORT, was"):
        AgentsAt(address=address, folder=Path("agents"))


@pytest.mark.parametrize("address", ["127.0.0.1:7443", "localhost:7443", "[::1]:7443"])
def test_loopback_need_not_be_advertised(address, tmp_path):
    enrolment = AgentsAt(address=address, folder=tmp_path).enrolment()

    data = enrolment.user_data(instance_id="i", job_id="j", tenant="t")
    assert data["SPOTLINE_CONTROL"] == address


@pytest.mark.parametrize("address", ["0.0.0.0:7443", "gpu-head:7443", "10.0.0.7:7443"])
def test_any_other_address_must_be_advertised(address, tmp_path):
    with pytest.raises(ConfigError, match="state as which HOST:PORT instances reach it"):
        AgentsAt(address=address, folder=tmp_path)

    stated = AgentsAt(address=address, folder=tmp_path, advertise="gpu-head:443")
    data = stated.enrolment("0.0.0.0:7443").user_data(instance_id="i", job_id="j", tenant="t")
    assert data["SPOTLINE_CONTROL"] == "gpu-head:443"


def test_services_read_where_agents_dial_in(monkeypatch, tmp_path):
    assert AllocatorSettings().agents() is None
    assert CloudActuatorSettings().agents() is None
    monkeypatch.setenv("SPOTLINE_AGENTS_ADVERTISE", "gpu-head:443")
    monkeypatch.setenv("SPOTLINE_AGENTS_FOLDER", str(tmp_path))

    assert AllocatorSettings().agents() is None
    assert CloudActuatorSettings().agents().advertise == "gpu-head:443"
    monkeypatch.setenv("SPOTLINE_AGENTS_ADDRESS", "0.0.0.0:7443")
    assert AllocatorSettings().agents().folder == tmp_path
