"""A whole system whose doors ask who calls: its services, its person, and everybody else."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.adapters.identity.endpoints import ClientIdentity, client_identity, endpoint_file
from spotline.adapters.identity.folder import IdentityFolder
from spotline.adapters.web.guarding import FORM
from spotline.application.identity.grants import RoleGrant
from spotline.bootstrap.auditing import audited_acts, verified_chains
from spotline.bootstrap.identity import IdentityAt
from spotline.bootstrap.system import FREE_ADDRESS, RunningSystem, running_system
from spotline.cli.main import app
from spotline.contracts.access import Role
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.runtime.timers import Timer
from tests.eventually import PATIENCE_S
from tests.fakes.whole_system import JOBS, options

pytestmark = pytest.mark.integration
_LAST_SLOT = 2
JOB_FILE = """
name: without its tenant
work: {amount: 4, unit: instance_hours}
deadline: {hard: 2026-03-01T10:00:00Z}
value_usd: 100
instances: {min: 1, max: 2}
throughput: {"*": {alpha_per_hour: 1.0}}
"""


@dataclass(slots=True)
class Held:
    """A system with identity, whose market goes on when it is told to, until its third slot."""

    system: RunningSystem
    folder: IdentityFolder
    go: asyncio.Event
    reached: asyncio.Event

    def key(self, role: Role, tenant: str = "") -> ClientIdentity:
        """The identity of a client with a new key."""
        token = self.folder.keys.create("a test", RoleGrant(role=role, tenant=tenant))
        return ClientIdentity(token=token, ca_pem=self.folder.ca_file.read_bytes())


@asynccontextmanager
async def held(store: Path, *, mtls: bool = False) -> AsyncIterator[Held]:
    go, reached = asyncio.Event(), asyncio.Event()

    async def gate(timer: Timer) -> None:
        await go.wait()
        if int(timer.timer_id.removeprefix("slot:")) > _LAST_SLOT:
            await asyncio.Event().wait()

    def on_applied(event: Event, envelope: object, seq: int) -> None:
        if isinstance(event, CapacityReported) and event.slot == _LAST_SLOT and event.settled:
            reached.set()

    asked = replace(
        options(store), identity=IdentityAt(store=store, mtls=mtls), http_address=FREE_ADDRESS
    )
    async with running_system(asked, gate=gate, listeners={"market_ingest": on_applied}) as system:
        yield Held(system, IdentityFolder(store), go, reached)


async def refused(client: JobClient) -> RpcFailed:
    async with client:
        with pytest.raises(RpcFailed) as caught:
            await client.list_all()
    return caught.value


async def to_the_end(watch: AsyncIterator[object]) -> None:
    async for _ in watch:
        pass


async def test_services_know_each_other_and_commands_find_what_it_takes(tmp_path):
    async with held(tmp_path / "store") as running:
        system = running.system
        async with JobClient(system.allocator_address) as client:
            for job in JOBS:
                await submit_until_taken(client, job)
            running.go.set()
            await asyncio.wait_for(running.reached.wait(), PATIENCE_S)
            statuses = await client.list_all()
        async with OperationsClient(system.allocator_address) as client:
            told = await client.status()
        async with IdentityClient(system.allocator_address) as client:
            who = await client.who_am_i()
        published = endpoint_file(system.allocator_address)
        mode = published.stat().st_mode & 0o777

    # The selector decided by the allocator: both are services of the installation.
    assert all(status.policy_id for status in statuses)
    assert {service.service for service in told.services} > {"selector", "allocator"}
    assert who.role is Role.SERVICE
    submitted = [
        each.act
        for each in audited_acts(tmp_path / "store")
        if each.act.action.endswith("JobService/Submit") and each.act.outcome == "OK"
    ]
    assert [act.target for act in submitted] == [
        f"job_id={job.job_id}, client_request_id={job.client_request_id}" for job in JOBS
    ]
    assert {act.credential_id for act in submitted} == {who.credential_id}
    assert all(report.broken is None for report in verified_chains(tmp_path / "store", {}))
    assert mode == 0o600
    assert not published.exists()


async def test_another_user_of_the_machine_gets_nothing(tmp_path, monkeypatch):
    async with held(tmp_path / "store") as running:
        address = running.system.allocator_address
        known = client_identity(address)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))

        in_the_clear = await refused(JobClient(address))
        without_token = await refused(
            JobClient(address, identity=ClientIdentity(ca_pem=known.ca_pem))
        )
        with_none_of_ours = await refused(
            JobClient(address, identity=ClientIdentity(ca_pem=known.ca_pem, token="spl_a_b"))
        )

    assert in_the_clear.code == "UNAVAILABLE"
    assert "asks for TLS" in str(in_the_clear)
    assert without_token.code == with_none_of_ours.code == "UNAUTHENTICATED"
    assert without_token.reason == "UNAUTHENTICATED"


async def test_what_was_revoked_ends_a_watch_that_is_open(tmp_path):
    async with held(tmp_path / "store") as running:
        system, owner = running.system, running.key(Role.OWNER, JOBS[0].tenant)
        async with JobClient(system.allocator_address, identity=owner) as client:
            await submit_until_taken(client, JOBS[0])
            watch = aiter(client.watch(JOBS[0].job_id))
            first = await anext(watch)
            running.folder.keys.revoke(owner.token.split("_")[1])
            running.go.set()
            with pytest.raises(RpcFailed) as ended:
                await asyncio.wait_for(to_the_end(watch), PATIENCE_S)
            with pytest.raises(RpcFailed) as again:
                await client.list_all()

    assert first.status.job.job_id == JOBS[0].job_id
    assert ended.value.code == again.value.code == "UNAUTHENTICATED"
    assert "revoked" in str(again.value)
    assert owner.token not in f"{ended.value}{again.value}"


async def test_the_read_model_is_served_over_tls_to_who_may(tmp_path):
    async with held(tmp_path / "store") as running:
        address, ca = running.system.http_address, running.folder.ca_file.read_text()
        owner = running.key(Role.OWNER, "tenant-0").token

        def get(token: str, ca_pem: str) -> int:
            host, _, port = address.rpartition(":")
            context = ssl.create_default_context(cadata=ca_pem)
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
            connection.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {token}"})
            try:
                return connection.getresponse().status
            finally:
                connection.close()

        answers = [await asyncio.to_thread(get, token, ca) for token in (owner, "spl_a_b")]
        other = IdentityFolder(tmp_path / "another store")
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(get, owner, other.ca_file.read_text())

    assert answers == [200, 401]


async def test_the_person_who_runs_it_is_given_a_link_that_signs_in_once(tmp_path):
    async with held(tmp_path / "store") as running:
        system, ca = running.system, running.folder.ca_file.read_text()
        host, _, port = system.http_address.rpartition(":")
        context = ssl.create_default_context(cadata=ca)

        def ask(method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
            try:
                connection.request(method, path, body=body, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read().decode(), answer.getheader("set-cookie", "")
            finally:
                connection.close()

        def follow() -> tuple[int, str, str]:
            _, form, _ = ask("GET", system.sign_in_path)
            fields = re.findall(r'name="(csrf|code)" value="([^"]+)"', form)
            return ask(
                "POST",
                "/sign-in",
                urlencode({**dict(fields), "next": "/system"}),
                **{"Content-Type": FORM, "Sec-Fetch-Site": "same-origin"},
            )

        first = await asyncio.to_thread(follow)
        cookie = first[2].partition(";")[0]
        account = await asyncio.to_thread(ask, "GET", "/account", "", Cookie=cookie)
        again = await asyncio.to_thread(follow)

    assert (first[0], account[0], again[0]) == (303, 200, 401)
    # The role of the owner's key: it hands in jobs of any tenant.
    assert "<dd>service " in account[1]


async def test_with_mtls_callers_show_a_certificate_too(tmp_path):
    async with held(tmp_path / "store", mtls=True) as running:
        system, folder = running.system, running.folder
        # This person's commands have one, and so have the services.
        async with JobClient(system.allocator_address) as client:
            await submit_until_taken(client, JOBS[0])
            running.go.set()
            await asyncio.wait_for(running.reached.wait(), PATIENCE_S)
            (status,) = await client.list_all()
        bare = folder.service_identity("selector")
        without = await refused(JobClient(system.allocator_address, identity=bare))

    assert status.policy_id
    assert without.code == "UNAVAILABLE"
    assert "certificate" in str(without)


async def test_keys_are_rotated_while_it_runs(tmp_path):
    async with held(tmp_path / "store") as running:
        system = running.system
        before = client_identity(system.allocator_address)
        # The old ones end at once; certificates that are shown already stay trusted.
        await asyncio.to_thread(running.folder.rotate, overlap=timedelta(0))
        old = await refused(JobClient(system.allocator_address, identity=before))
        async with JobClient(system.allocator_address) as client:
            await submit_until_taken(client, JOBS[0])
            running.go.set()
            await asyncio.wait_for(running.reached.wait(), PATIENCE_S)
            (status,) = await client.list_all()

    # The selector's calls show its new key, on the connection that it had.
    assert status.policy_id
    assert old.code == "UNAUTHENTICATED"
    assert "expired" in str(old)


async def test_a_file_may_leave_out_the_tokens_tenant(tmp_path, monkeypatch):
    file = tmp_path / "job.yaml"
    file.write_text(JOB_FILE)

    def submitted(address: str) -> tuple[int, str]:
        ran = CliRunner().invoke(app, ["submit", str(file), "--address", address, "--json"])
        return ran.exit_code, ran.output

    async with held(tmp_path / "store") as running:
        address = running.system.allocator_address
        async with JobClient(address) as client:
            # Until its market is open.
            await submit_until_taken(client, JOBS[0])
        bound_to_none = await asyncio.to_thread(submitted, address)
        owner = running.key(Role.OWNER, "research").token
        monkeypatch.setenv("SPOTLINE_TOKEN", owner)
        code, said = await asyncio.to_thread(submitted, address)
        file.write_text(f"tenant: rival\n{JOB_FILE}")
        of_another = await asyncio.to_thread(submitted, address)
        monkeypatch.delenv("SPOTLINE_TOKEN")
        async with JobClient(address) as client:
            jobs = [status.job for status in await client.list_all()]

    assert bound_to_none[0] == 2
    assert "tenant: expected this field, as no token says whose job it is" in bound_to_none[1]
    assert code == 0, said
    assert {job.tenant for job in jobs} == {JOBS[0].tenant, "research"}
    assert of_another[0] == 1
    assert "which the token is of" in of_another[1]
    assert owner not in said + of_another[1]
