"""Every role, nobody and another tenant at every action of the table: let in or not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import grpc
import pytest
import pytest_asyncio

from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.page.acting import GrpcActing
from spotline.adapters.page.asked_identity import AskedIdentity
from spotline.adapters.page.pages import PAGES
from spotline.application.admission import job_id_for
from spotline.application.identity.audit import BEGUN
from spotline.application.operations.messages import Pause
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.access import (
    COUNTED,
    GRPC_ACTIONS,
    HTTP_ACTIONS,
    PAGE_ACTIONS,
    VIEW_ACTIONS,
    Action,
    Caller,
    Does,
    Reach,
    Role,
)
from spotline.contracts.errors import Unauthenticated
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason
from spotline.domain.limits.freezes import FreezeScope
from tests.fakes.access_doors import (
    JOB,
    PIPELINE,
    RIVALS_JOB,
    UNKNOWN_ID,
    Answered,
    all_doors,
    request_of,
)
from tests.fakes.allocator import job, market_opened
from tests.fakes.identities import CALLERS, OTHER, OWN

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

API = "/spotline.api.v1."
NOBODY, UNKNOWN = None, "an unknown token"
TOKENS = (NOBODY, UNKNOWN, *CALLERS)

# What each request of a tenant's things is about: the job or the pipeline of `OWN`.
BY_ID = {"job_id": JOB.job_id}
OF_OWN = {
    "JobService/Get": BY_ID,
    "JobService/List": {"tenant": OWN},
    "JobService/Submit": {"job": to_message(JOB)},
    "JobService/Cancel": BY_ID,
    "JobService/ReportProgress": {**BY_ID, "tenant": OWN},
    "JobService/Watch": BY_ID,
    "JobService/UpdateJob": BY_ID,
    "JobService/ReportExit": {**BY_ID, "tenant": OWN, "exit_code": 1, "generation": 1},
    "JobService/ReadOutput": BY_ID,
    "JobService/ReadEvents": BY_ID,
    "JobService/ExplainDecision": BY_ID,
    "AllocatorService/Plan": {"jobs": [to_message(JOB)]},
    "AllocatorService/ComparePolicies": {"job": to_message(JOB)},
    "AnalyticsService/Query": {"scope": 2, "key": OWN},
    "AnalyticsService/ListKeys": {"tenant": OWN},
    "ConfigurationService/Complete": {"draft": {"tenant": OWN}},
    "PlacementService/Place": {"pipeline": to_message(PIPELINE)},
    "PlacementService/Release": {"tenant": OWN, "job_id": PIPELINE.job_id},
    "PlacementService/ListPlacements": {"tenant": OWN},
    "PlacementService/Explain": {"pipeline": to_message(PIPELINE)},
}
# What is no join token lets nobody join, whatever else he shows.
OTHERS = {
    "AgentService/Join": {
        "join_token": "join.none.none",
        "instance_id": "i-9",
        "nonce": "another nonce of thirty-two chars",
        "host": "10.0.0.9",
        "release": "1",
    }
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors(tmp_path_factory):
    patched = pytest.MonkeyPatch()
    # Nothing is planned here: the planners need not be compiled.
    patched.setattr(RpcServer, "prepare", lambda self: None)
    async with all_doors(tmp_path_factory.mktemp("doors")) as running:
        yield running
    patched.undo()


def asked(method: str) -> object:
    stated = {**OF_OWN, **OTHERS}.get(method.removeprefix(API), {})
    return request_of(method)(**stated)


def may(action: Action, caller: Caller | None) -> bool:
    """What the table says of a request about what is `OWN`'s."""
    if caller is None or caller.role not in action.roles:
        return False
    if action.reach is Reach.WHOLE:
        return not caller.tenant
    return action.reach is not Reach.TENANT or caller.sees(OWN)


def rows() -> list:
    # What ends a job or a pipeline comes last: the rows before it are about one that goes on.
    ending = ("Cancel", "ReportExit", "Release")
    return sorted(GRPC_ACTIONS, key=lambda name: (name.endswith(ending), name))


# --- gRPC -----------------------------------------------------------------------------------------


async def test_every_action_on_a_tenants_things_is_asked_for_them():
    of_tenants = {name for name, row in GRPC_ACTIONS.items() if row.reach is Reach.TENANT}

    assert {API + name for name in OF_OWN} == of_tenants


@pytest.mark.parametrize("token", TOKENS, ids=str)
@pytest.mark.parametrize("method", rows(), ids=lambda name: name.removeprefix(API))
async def test_a_cell_of_the_table_over_grpc(doors, method, token):
    action, caller = GRPC_ACTIONS[method], CALLERS.get(token)

    before = len(doors.trail.acts)

    answered = await doors.call(method, asked(method), token)

    assert answered.let_in is may(action, caller), answered
    began = [act for act in doors.trail.acts[before:] if act.outcome == BEGUN]
    if action.does is Does.READ:
        assert began == []
    elif answered.let_in and method not in COUNTED:
        assert [(act.action, act.role) for act in began][:1] in (
            [(method, caller.role.value)],
            # An instance is known once its session was read.
            [(method, "")],
        )
        (ended,) = [act for act in doors.trail.acts[before:] if act.of_seq]
        assert (ended.subject, ended.role) == (caller.subject, caller.role.value)
        assert ended.outcome == answered.code.name
    if caller is None and method != f"{API}AgentService/Join":
        assert answered.code is grpc.StatusCode.UNAUTHENTICATED
    if action.reach is Reach.TENANT and token == "rival" and caller.role in action.roles:
        assert answered.reason in ("TENANT_DENIED", "UNKNOWN_JOB")


async def test_who_is_turned_away_is_in_the_audit(tmp_path_factory):
    async with all_doors(tmp_path_factory.mktemp("denied")) as doors:
        pause, cancel = f"{API}OperationsService/Pause", f"{API}JobService/Cancel"
        await doors.call(pause, asked(pause), UNKNOWN)
        await doors.call(pause, asked(pause), "owner")
        await doors.call(cancel, asked(cancel), "rival")
        await asyncio.to_thread(doors.get, "/v1/system", "owner")
        acts = doors.trail.acts

    assert [(act.action, act.subject, act.outcome, act.reason) for act in acts] == [
        (pause, "anonymous", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        (pause, "ann", "PERMISSION_DENIED", "ROLE_DENIED"),
        (cancel, "rob", "NOT_FOUND", "UNKNOWN_JOB"),
        ("GET /v1/system", "ann", "403", "ROLE_DENIED"),
    ]
    assert acts[2].target == f"job_id={JOB.job_id}"
    assert all("127.0.0.1" in act.peer for act in acts)


@pytest.mark.parametrize(
    ("token", "method", "let_in"),
    [
        ("owner", "JobService/Submit", True),
        ("viewer", "JobService/Submit", False),
        ("operator", "JobService/Submit", False),
        ("operator", "JobService/Cancel", True),
        ("owner", "OperationsService/Pause", False),
        ("service", "OperationsService/Pause", False),
        ("operator", "OperationsService/Pause", True),
        ("owner", "AllocatorService/Allocate", False),
        ("service", "AllocatorService/Allocate", True),
        ("tenant-viewer", "OperationsService/ListParked", False),
        ("viewer", "OperationsService/ListParked", True),
        ("instance", "JobService/Get", False),
        ("instance", "AgentService/ReportHeartbeat", True),
        ("service", "AgentService/ReportHeartbeat", False),
        (NOBODY, "JobService/GetMarket", False),
        ("instance", "IdentityService/WhoAmI", True),
    ],
)
async def test_cells_that_are_written_out(doors, token, method, let_in):
    answered = await doors.call(API + method, asked(API + method), token)

    assert answered.let_in is let_in


@pytest.mark.parametrize("token", ["owner", "tenant-viewer"])
@pytest.mark.parametrize(
    "method",
    [
        name
        for name in rows()
        if name.removeprefix(API) in OF_OWN and "job_id" in OF_OWN[name.removeprefix(API)]
    ],
    ids=lambda name: name.removeprefix(API),
)
async def test_another_tenants_job_is_refused_as_one_that_never_was(doors, method, token):
    def about(job_id: str) -> object:
        stated = {key: value for key, value in OF_OWN[method.removeprefix(API)].items()}
        return request_of(method)(**{**stated, "job_id": job_id})

    theirs = await doors.call(method, about(RIVALS_JOB.job_id), token)
    none = await doors.call(method, about(UNKNOWN_ID), token)

    assert not theirs.let_in
    assert (theirs.code, theirs.reason) == (none.code, none.reason)
    assert theirs.message.replace(RIVALS_JOB.job_id, "ID") == none.message.replace(UNKNOWN_ID, "ID")


async def test_a_list_shows_a_tenant_its_own_and_a_service_everybodys(doors):
    async def listed(token: str) -> set[str]:
        request = request_of(f"{API}JobService/List")()
        found = await doors.call(f"{API}JobService/List", request, token)
        return {status.job.tenant for status in found.response.statuses}

    assert await listed("owner") == await listed("tenant-viewer") == {OWN}
    assert await listed("rival") == {OTHER}
    assert await listed("service") == await listed("viewer") == {OWN, OTHER}


def about(job_id: str) -> object:
    return request_of(f"{API}JobService/Get")(job_id=job_id)


async def test_a_tenant_that_is_left_out_is_the_tokens(doors):
    method = f"{API}JobService/Submit"
    said = to_message(job("left-out"))
    said.ClearField("tenant")
    said.ClearField("job_id")

    taken = await doors.call(method, request_of(method)(job=said), "rival")
    shown = await doors.call(f"{API}JobService/Get", about(taken.response.job_id), "rival")

    assert taken.response.job_id == job_id_for(OTHER, "left-out")
    assert shown.response.status.job.tenant == OTHER


async def test_statistics_are_of_the_tokens_tenant(doors):
    query, keys = f"{API}AnalyticsService/Query", f"{API}AnalyticsService/ListKeys"

    for stated in ({"scope": 2}, {"scope": 3, "key": "sdp"}, {"scope": 1, "key": "an offering"}):
        assert (await doors.call(query, request_of(query)(**stated), "owner")).let_in
    await doors.call(keys, request_of(keys)(), "owner")
    everybodys = await doors.call(query, request_of(query)(scope=2, key="*"), "owner")

    of_tenant, of_policy, of_offering, listed = doors.statistics.asked[-4:]
    assert (of_tenant.key, of_policy.tenant, listed.tenant) == (OWN, OWN, OWN)
    assert of_offering.tenant == ""
    assert everybodys.reason == "TENANT_DENIED"


async def test_reflection_asks_for_any_caller_and_health_for_none(doors):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    ca = grpc.ssl_channel_credentials(doors.identities.authority.ca_pem.encode())
    address = doors.addresses["spotline.api.v1.JobService"]
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.secure_channel(address, ca) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(stub.ServerReflectionInfo(iter((listing,)))))
        shown = await anext(
            aiter(
                stub.ServerReflectionInfo(
                    iter((listing,)), metadata=(("authorization", "Bearer viewer"),)
                )
            )
        )

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(shown.list_services_response.service) > 2


async def test_a_session_of_an_instance_is_for_no_other_door():
    actions = [row for row in GRPC_ACTIONS.values() if Role.INSTANCE in row.roles]

    assert {row.name.split("/")[1].rpartition(".")[2] for row in actions} == {
        "AgentService",
        "IdentityService",
    }


# --- HTTP -----------------------------------------------------------------------------------------


def shows_own(action: Action, caller: Caller) -> bool:
    """Whether a page names nobody's things, and shows each caller his own."""
    unnamed = action.reach is Reach.TENANT and "{job_id}" not in action.name
    return unnamed and caller.role in action.roles


def http_rows() -> list:
    # A page that this build does not have is not served.
    served = {f"GET {page.path}" for page in PAGES} | {"GET /account", "GET /page/changes"}
    return sorted(VIEW_ACTIONS) + sorted(name for name in PAGE_ACTIONS if name in served)


@pytest.mark.parametrize("token", TOKENS, ids=str)
@pytest.mark.parametrize("name", http_rows())
async def test_a_cell_of_the_table_over_http(doors, name, token):
    action, caller = HTTP_ACTIONS[name], CALLERS.get(token)
    path = name.removeprefix("GET ").replace("{job_id}", JOB.job_id).replace("{slot}", "0")
    path = path.replace("{offering_id:path}", market_opened().offerings[0].offering_id)
    if path in ("/v1/jobs", "/v1/fleet", "/v1/watch"):
        path += f"?tenant={OWN}"

    status, body = await asyncio.to_thread(doors.get, path, token)

    if caller is None:
        assert status == 401
    elif may(action, caller) or (name in PAGE_ACTIONS and shows_own(action, caller)):
        assert status == 200, body
    else:
        by_id = caller.role in action.roles and JOB.job_id in path
        assert status == (404 if by_id else 403)


async def test_over_http_another_tenants_job_is_as_one_that_never_was(doors):
    for rest in ("", "/events"):
        theirs = await asyncio.to_thread(doors.get, f"/v1/jobs/{RIVALS_JOB.job_id}{rest}", "owner")
        none = await asyncio.to_thread(doors.get, f"/v1/jobs/{UNKNOWN_ID}{rest}", "owner")
        begun = await asyncio.to_thread(
            doors.get, f"/v1/jobs/{RIVALS_JOB.job_id[:6]}{rest}", "owner"
        )

        assert (theirs[0], none[0], begun[0]) == (404, 404, 404)
        assert theirs[1].replace(RIVALS_JOB.job_id, "ID") == none[1].replace(UNKNOWN_ID, "ID")


async def test_over_http_a_list_shows_a_tenant_its_own(doors):
    _, own = await asyncio.to_thread(doors.get, "/v1/jobs", "owner")
    _, everybodys = await asyncio.to_thread(doors.get, "/v1/jobs", "service")

    assert [status["job"]["tenant"] for status in json.loads(own)["jobs"]] == [OWN]
    assert len(json.loads(everybodys)["jobs"]) == 2
    assert (await asyncio.to_thread(doors.get, "/healthz", None))[0] == 200


async def test_an_answer_that_lets_in_is_told_from_one_that_does_not():
    """The matrix can fail: what it looks at tells the two apart."""
    assert Answered(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID").let_in
    assert not Answered(grpc.StatusCode.PERMISSION_DENIED, "ROLE_DENIED").let_in
    assert not Answered(grpc.StatusCode.NOT_FOUND, "UNKNOWN_JOB").let_in


# --- pages ----------------------------------------------------------------------------------------


async def test_a_page_acts_in_the_name_of_who_asks_and_never_in_its_own(doors):
    address = doors.addresses["spotline.api.v1.OperationsService"]
    # The server that serves the page has a token, too; it must not speak for a caller.
    acting = GrpcActing(address, doors.identities.client("operator"))
    before = len(doors.trail.acts)
    pause = Pause(request_id="by-a-page", scope=FreezeScope.TENANT, key=OWN)

    async with acting.of_caller("operator") as acts:
        paused = await acts.operations.pause(pause)
    for token, reason in (("viewer", Reason.ROLE_DENIED), ("none", Reason.UNAUTHENTICATED)):
        with pytest.raises(ViewRefused) as refused:
            async with acting.of_caller(token) as acts:
                await acts.operations.pause(replace(pause, request_id=f"by-{token}"))
        assert refused.value.reason is reason

    assert paused.freeze.key == OWN
    written = {(act.subject, act.role) for act in doors.trail.acts[before:] if act.outcome == BEGUN}
    assert written == {("olga", "operator")}


async def test_pages_elsewhere_ask_the_system_who_a_caller_is(doors):
    address = doors.addresses["spotline.api.v1.IdentityService"]
    asked = AskedIdentity(address, doors.identities.client("operator"))

    assert (await asked.caller("owner")).tenant == OWN
    with pytest.raises(Unauthenticated):
        await asked.caller("none")
