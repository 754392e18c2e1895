"""`spotline pause` and `resume`, from the command line through gRPC to what is recorded."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.application.operations.messages import Pause, Resume
from spotline.cli.main import app
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from tests.fakes.allocator import EAST, FakeJobsHost, market_opened, slot_opened
from tests.integration.test_grpc_services import serving

pytestmark = pytest.mark.integration


@pytest.fixture
def host() -> FakeJobsHost:
    return FakeJobsHost(market_opened(), slot_opened(0))


def recorded(host: FakeJobsHost, kind: type) -> list:
    return [event for _, event in host.stored.values() if isinstance(event, kind)]


async def ran(address: str, *arguments: str):
    """A command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--address", address])


@pytest.mark.parametrize(
    ("option", "scope", "key"),
    [
        (("--tenant", "acme"), FreezeScope.TENANT, "acme"),
        (("--offering", EAST), FreezeScope.OFFERING, EAST),
        (("--account", "aws/"), FreezeScope.ACCOUNT, "aws/"),
        (("--all",), FreezeScope.SYSTEM, ""),
    ],
)
async def test_a_scope_is_paused_and_goes_on_with_the_command_it_names(host, option, scope, key):
    async with serving(host) as address:
        paused = await ran(address, "pause", *option, "--why", "a test")
        assert paused.exit_code == 0, paused.output
        (frozen,) = recorded(host, BuyingFrozen)
        assert (frozen.freeze.scope, frozen.freeze.key) == (scope, key)
        assert (frozen.freeze.reason, frozen.freeze.detail) == (FreezeReason.PAUSED, "a test")
        assert frozen.freeze.continue_with in paused.output

        again = await ran(address, "pause", *option)
        assert again.exit_code == 0
        assert len(recorded(host, BuyingFrozen)) == 1

        command = frozen.freeze.continue_with.split()[1:]
        resumed = await ran(address, *command)
        assert resumed.exit_code == 0, resumed.output
        (ended,) = recorded(host, BuyingUnfrozen)
        assert ended.freeze_id == frozen.freeze.freeze_id
        assert not host.state.operations.freezes.by_id


async def test_what_is_unknown_or_said_twice_is_refused_with_what_is_known(host):
    async with serving(host) as address:
        missing = await ran(address, "pause", "--offering", "nowhere")
        assert missing.exit_code == 2
        assert EAST in missing.output
        assert (await ran(address, "pause", "--job", "nobody" * 6)).exit_code != 0
        two = await ran(address, "pause", "--all", "--tenant", "acme")
        assert (two.exit_code, "found 2" in two.output) == (2, True)
        none = await ran(address, "resume", "--all", "--json")
        assert none.exit_code == 1
        assert "in force are: none" in json.loads(none.output)["error"]
    assert not recorded(host, BuyingFrozen)


async def test_any_stop_can_be_ended_by_its_id(host):
    host.record(
        BuyingFrozen(
            freeze=Freeze(
                freeze_id="breaker",
                scope=FreezeScope.SYSTEM,
                key="",
                reason=FreezeReason.BREAKER,
                detail="too many",
            )
        )
    )
    async with serving(host) as address:
        assert (await ran(address, "resume", "--freeze", "breaker")).exit_code == 0
    assert [event.freeze_id for event in recorded(host, BuyingUnfrozen)] == ["breaker"]


async def test_the_same_request_has_one_effect_and_an_empty_id_is_refused(host):
    async with serving(host) as address, OperationsClient(address) as client:
        pause = Pause(request_id="r", scope=FreezeScope.TENANT, key="acme")
        assert await client.pause(pause) == await client.pause(pause)
        assert len(recorded(host, BuyingFrozen)) == 1
        await client.resume(Resume(request_id="s", freeze_id="pause:tenant:acme"))
        for wrong in (
            client.pause(Pause(request_id="", scope=FreezeScope.SYSTEM)),
            client.resume(Resume(request_id="t")),
            client.resume(Resume(request_id="u", freeze_id="pause:tenant:acme")),
        ):
            with pytest.raises(RpcFailed):
                await wrong
