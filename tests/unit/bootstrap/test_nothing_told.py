"""What holds a secret shows it nowhere: not as text, not in an error, not in a traceback."""

from __future__ import annotations

import io
import traceback
from pathlib import Path

import pytest
import structlog

from services.allocator.settings import AllocatorSettings
from services.cloud_actuator.settings import CloudActuatorSettings
from spotline.adapters.analytics.worker import AnalyticsSettings
from spotline.adapters.files.job_file import read_job_file
from spotline.adapters.identity.endpoints import ClientIdentity, read_token_file
from spotline.adapters.identity.issuers import read_issuers
from spotline.agent.ranks import RankPlace
from spotline.application.allocator.agent_messages import JoinAsked
from spotline.bootstrap.parts import BusAddress
from spotline.bootstrap.system import RunningSystem, SystemOptions
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.run import Run
from spotline.domain.market.generate import generate
from spotline.runtime.log import configure_logging

SECRET = "planted-1f9c-e5d2"
NATS = f"nats://spotline:{SECRET}@127.0.0.1:1"
LEDGER = f"postgresql://spotline:{SECRET}@127.0.0.1:1/ledger"

JOB = """
name: a job
tenant: research
work: {amount: 4, unit: instance_hours}
deadline: {hard: 2030-03-01T10:00:00Z}
value_usd: 100
instances: {min: 1, max: 2}
throughput: {"*": {alpha_per_hour: 1.0}}
run:
  command: python train.py
  secrets: SECRETS
"""
ISSUER = """
issuers:
  - issuer: https://login.example.com/
    audience: spotline
    algorithms: [RS256]
    jwks_url: URL
    groups: {all: {role: operator}}
"""


@pytest.mark.parametrize(
    "held",
    [
        BusAddress(nats_url=NATS),
        RunningSystem(bus=BusAddress(nats_url=NATS), ledger_url=LEDGER),
        SystemOptions(
            market=generate("mixed", seed=1, slots=2, slot_s=1800, start_ns=0),
            store=Path("store"),
            nats_url=NATS,
        ),
        AnalyticsSettings(nats_url=NATS),
        ClientIdentity(token=SECRET),
        JoinAsked(join_token=SECRET, instance_id="i-1", nonce=SECRET * 3),
        RankPlace(
            instance_id="i-1",
            work_dir=Path(),
            run_dir=Path(),
            notice_file=Path("notice"),
            own_environment={"A": SECRET},
            secrets={"B": SECRET},
        ),
    ],
    ids=lambda held: type(held).__name__,
)
def test_no_text_of_a_value_shows_what_is_secret_in_it(held):
    assert SECRET not in repr(held)


def told(error: BaseException) -> str:
    """All that a traceback of an error shows, with what it came from."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("settings", [AllocatorSettings, CloudActuatorSettings])
def test_no_settings_show_the_password_of_a_url(settings, monkeypatch):
    for name, value in (("NATS_URL", NATS), ("LEDGER_URL", LEDGER), ("CLOUD", "simulated")):
        monkeypatch.setenv(f"SPOTLINE_{name}", value)
    monkeypatch.setenv("SPOTLINE_OTLP_ENDPOINT", f"http://u:{SECRET}@127.0.0.1:1")
    monkeypatch.setenv("SPOTLINE_MARKET", "generated")

    whole = settings()
    monkeypatch.setenv("SPOTLINE_HEALTH_PORT", SECRET)
    with pytest.raises(ValueError, match="health_port") as caught:
        settings()

    assert SECRET not in repr(whole)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    "stated", [f"[TOKEN={SECRET}]", f"TOKEN={SECRET}", f"[{SECRET}]", f"{{TOKEN: {SECRET}}}"]
)
def test_a_secret_in_the_place_of_its_name_is_not_said_again(stated, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("SECRETS", stated))

    with pytest.raises(SpotlineError, match=r"run\.secrets") as caught:
        read_job_file(file, now_ns=0)

    assert SECRET not in told(caught.value)


def test_nor_where_a_message_has_it():
    with pytest.raises(ValueError, match=r"run\.secrets must be names of variables") as caught:
        Run(command=("python", "train.py"), secrets=("A", f"TOKEN={SECRET}"))

    assert "index 1" in str(caught.value)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize(
    "url", [f"http://u:{SECRET}@login.example.com/", f"https://u:{SECRET}@login.example.com/keys"]
)
def test_the_url_of_an_issuers_keys_holds_no_password(url, tmp_path):
    file = tmp_path / "identity.yaml"
    file.write_text(ISSUER.replace("URL", url) + f"    client_secret: {SECRET}\n")

    with pytest.raises(SpotlineError, match=r"issuers\[0\]\.jwks_url") as caught:
        read_issuers(file)

    assert "client_secret" in str(caught.value)
    assert SECRET not in told(caught.value)


@pytest.mark.parametrize("token", [f"spl_1_{SECRET}", f"eyJhbGciOiJub25lIn0.{SECRET}."])
def test_a_token_in_the_place_of_its_file_is_not_said_again(token):
    with pytest.raises(SpotlineError, match="expected the file of a token") as caught:
        read_token_file(Path(token), "--token-file")

    assert SECRET not in told(caught.value)


def test_a_log_for_people_shows_no_variables_of_frames(monkeypatch):
    def fails(password: str) -> None:
        raise RuntimeError(f"no answer after {len(password)} characters")

    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    before = structlog.get_config()
    try:
        configure_logging("info", json_lines=False)
        log = structlog.get_logger("a test")
        try:
            fails(SECRET)
        except RuntimeError:
            log.exception("failed")
    finally:
        structlog.configure(**before)

    assert "no answer after" in written.getvalue()
    assert SECRET not in written.getvalue()
