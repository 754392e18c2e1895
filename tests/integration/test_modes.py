"""A system that only observes, from submission to report; and how an account is promoted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.application.allocator.messages import ProgressReport
from spotline.application.operations.messages import ModeWanted
from spotline.bootstrap.clouds import CLOUDS, cloud_of, run_mode
from spotline.bootstrap.system import RunningSystem
from spotline.cli.main import app
from spotline.contracts.errors import ConfigError
from spotline.contracts.reasons import Reason
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.modes import Mode
from tests.fakes.allocator import FakeJobsHost, market_opened, slot_opened
from tests.fakes.whole_system import JOBS, events_in, log_in, options, until_slot, verified
from tests.integration.test_grpc_services import serving

pytestmark = pytest.mark.integration

ACCOUNT = "aws/"


SECTION = """
clouds:
  aws:
    accounts: [{name: main, account_id: "123456789012"}]
    offerings:
    - {account: main, region: us-east-1, zone: use1-az1, instance_type: p3.2xlarge, launch_template_id: lt-0}
"""


@pytest.fixture
def untouched(monkeypatch) -> None:
    """AWS, which fails the test as soon as anybody opens it or asks it for prices."""

    def opened(*_):
        raise AssertionError("the cloud was opened")

    monkeypatch.setitem(CLOUDS, "aws", replace(CLOUDS["aws"], open=opened, live=opened))


def on_aws(store, stated: str = ""):
    mode = run_mode("aws", stated)
    file = store.with_name("spotline.yaml")
    file.write_text(SECTION)
    cloud = cloud_of({}, "aws", mode, read_config(file, {}))
    return replace(options(store), cloud=cloud, mode=mode)


async def ran(*arguments: str):
    """A command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments])


async def test_a_real_cloud_is_observed_until_somebody_says_otherwise(untouched, tmp_path) -> None:
    store = tmp_path / "store"
    async with until_slot(store, 3, JOBS, given=on_aws(store)) as system:
        views = await modes_in_json(system, JOBS[0].job_id)
        unmarked = await texts_without_mark(system, JOBS[0].job_id)
        promoted = await ran(
            *("promote", ACCOUNT, "--to", "live", "--reason", "why not"),
            *("--address", system.allocator_address),
        )

    log = await log_in(store)
    events = events_in(log)
    reports = [one for one in events if isinstance(one, CapacityReported)]
    held = [name for one in reports for holding in one.holdings for name in holding.instance_ids]
    assert held
    assert all(name.startswith("paper-") for name in held)
    assert any(isinstance(one, CostAccrued) for one in events)
    assert not any(isinstance(one, PolicyWeightsUpdated | AccountModeSet) for one in events)
    for begun in (one for one in events if isinstance(one, MarketOpened | SlotOpened)):
        assert begun.mode is Mode.OBSERVE
    verified(log, store)
    assert {name: mode for name, mode in views.items() if mode != "observe"} == {}
    assert unmarked == {}
    # The market's own account is named by the refusal, whichever it is.
    assert promoted.exit_code != 0

    for stated in ("live", "shadow"):
        with pytest.raises(ConfigError, match="mode: expected observe, in which the store began"):
            async with until_slot(store, 4, given=on_aws(store, stated)):
                pass


def views_of(system: RunningSystem, job_id: str) -> dict[str, tuple[str, ...]]:
    """Each command that shows something of a running system."""
    allocator = ("--address", system.allocator_address)
    tenant = ("--tenant", JOBS[0].tenant)
    return {
        "status": ("status", *allocator),
        "status of a job": ("status", job_id, *allocator),
        "system": ("status", "--system", *allocator),
        "limits": ("limits", "show", *allocator),
        "promote": ("promote", "--list", *allocator),
        "market": ("market", "status", *allocator),
        "explain": ("explain", job_id, "--slot", "1", *allocator),
        "stats": ("stats", *tenant, "--address", system.analytics_address),
    }


async def modes_in_json(system: RunningSystem, job_id: str) -> dict[str, str]:
    """The mode that each JSON output states."""
    found = {}
    for name, command in views_of(system, job_id).items():
        done = await ran(*command, "--json")
        found[name] = _mode_in(json.loads(done.stdout))
    lines = await ran("events", job_id, "--address", system.allocator_address, "--json")
    said = {json.loads(line)["mode"] for line in lines.stdout.splitlines()}
    found["events"] = said.pop() if len(said) == 1 else f"{said}"
    return found


async def texts_without_mark(system: RunningSystem, job_id: str) -> dict[str, str]:
    """The outputs for people that do not say that they are on paper."""
    found = {}
    for name, command in views_of(system, job_id).items():
        said = (await ran(*command)).output
        if "observe" not in said:
            found[name] = said
    return found


def _mode_in(answer) -> str:
    if isinstance(answer, list):
        return _mode_in(answer[0])
    said = answer.get("mode") or answer.get("clock", {}).get("mode", "")
    return said.lower().removeprefix("mode_") or f"none in {sorted(answer)}"


# --- promoting --------------------------------------------------------------------------------


@pytest.fixture
def live() -> FakeJobsHost:
    begun = AccountModeSet(account=ACCOUNT, mode=Mode.OBSERVE, by="spotline", reason="begins so")
    return FakeJobsHost(market_opened(), begun, slot_opened(0))


def recorded(host: FakeJobsHost) -> list[AccountModeSet]:
    """What was recorded of it since the account began."""
    said = [event for _, event in host.stored.values() if isinstance(event, AccountModeSet)]
    return [event for event in said if event.by != "spotline"]


async def test_an_account_is_promoted_by_name_and_with_a_reason(live) -> None:
    async with serving(live) as address:
        to_live = ("promote", ACCOUNT, "--to", "live", "--address", address)
        without = await ran(*to_live)
        assert (without.exit_code, "--reason" in without.output) == (2, True)
        frozen = live.state.operations.freezes.by_id["mode:aws/"]
        assert "spotline promote aws/ --to live" in frozen.continue_with
        lifted = await ran("resume", "--freeze", "mode:aws/", "--address", address)
        assert lifted.exit_code != 0
        assert "spotline promote aws/" in lifted.output

        done = await ran(*to_live, "--reason", "a good week")

        assert done.exit_code == 0, done.output
        (event,) = recorded(live)
        assert (event.account, event.mode, event.reason) == (ACCOUNT, Mode.LIVE, "a good week")
        assert event.slot == 0
        assert not live.state.operations.freezes.by_id
        listed = json.loads((await ran("promote", "--list", "--json", "--address", address)).output)
        assert listed["mode"] == "live"
        assert [(each["account"], each["mode"]) for each in listed["accounts"]] == [
            ("aws/", "live")
        ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"account": "aws/9"}, "account must be one of the market's"),
        ({"reason": " "}, "reason must say why, was empty"),
        ({"reason": "x" * 401}, "reason must be at most 400 characters, were 401"),
        ({"request_id": ""}, "request_id must not be empty"),
    ],
)
async def test_a_promotion_that_says_too_little_is_refused_with_its_field(
    live, changed, said
) -> None:
    wanted = ModeWanted(request_id="r", account=ACCOUNT, mode=Mode.LIVE, reason="why")
    async with serving(live) as address, OperationsClient(address) as client:
        with pytest.raises(RpcFailed, match=said) as refused:
            await client.set_account_mode(replace(wanted, **changed))
    assert refused.value.field == next(iter(changed))
    assert recorded(live) == []


async def test_a_run_on_paper_is_not_promoted_and_hears_no_program() -> None:
    host = FakeJobsHost(replace(market_opened(), mode=Mode.SHADOW))
    wanted = ModeWanted(request_id="r", account=ACCOUNT, mode=Mode.LIVE, reason="why")
    async with serving(host) as address:
        async with OperationsClient(address) as client:
            with pytest.raises(RpcFailed, match="stays on paper") as refused:
                await client.set_account_mode(wanted)
        async with JobClient(address) as jobs:
            with pytest.raises(RpcFailed, match="no program runs here") as unheard:
                await jobs.report(ProgressReport(job_id="j", tenant="acme", done=1.0))
    assert refused.value.reason == unheard.value.reason == Reason.RUN_ON_PAPER.name
