"""The read model over real HTTP: what each path answers, what is refused and in which words."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from spotline.adapters.web.guarding import ABORT, Guard, WebLimits
from spotline.contracts.errors import ConfigError
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobAdvanced, JobSubmitted
from spotline.domain.jobs.lot import JobHolding, Lot
from tests.fakes.allocator import EAST, START_NS, job, market_opened, slot_opened
from tests.fakes.identities import KnownTokens
from tests.fakes.web import EventReader, running_web

JOBS = [job(f"r{number}", tenant="vision" if number % 2 else "speech") for number in range(5)]


def submitted(asked):
    return JobSubmitted(job=asked, ts_event_ns=START_NS)


def market(web):
    web.host.feed(market_opened(), slot_opened(0))


def advanced(asked, progress_ppm=100_000, cost=1_000_000):
    return JobAdvanced(
        job_id=asked.job_id,
        tenant=asked.tenant,
        slot=0,
        lots=(),
        progress_ppm=progress_ppm,
        slot_cost_micro_usd=cost,
        cost_micro_usd=cost,
    )


async def ask(web, path, **options):
    return await asyncio.to_thread(web.ask, path, **options)


# --- answers ------------------------------------------------------------------------------------


async def test_a_page_of_jobs_has_clock_fleet_and_the_view_of_each():
    async with running_web() as web:
        market(web)
        web.host.feed(*map(submitted, JOBS))
        answer = await ask(web, "/v1/jobs?page_size=2")

        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["clock"]["market"] == "2026-03-01T00:00:00Z"
        assert answer.json["clock"]["slot_s"] == 600
        assert answer.json["fleet"]["open_jobs"] == 5
        first = answer.json["jobs"][0]
        assert first["view"]["phase"] == "waiting"
        assert first["view"]["waiting_for"] == "slot"
        assert first["submitted"] == "2026-03-01T00:00:00Z"

        seen = [shown["job"]["job_id"] for shown in answer.json["jobs"]]
        while token := answer.json["next_page_token"]:
            answer = await ask(web, f"/v1/jobs?page_size=2&page_token={token}")
            seen += [shown["job"]["job_id"] for shown in answer.json["jobs"]]
        assert seen == sorted(asked.job_id for asked in JOBS)


async def test_jobs_are_chosen_by_tenant_phase_and_flag():
    async with running_web() as web:
        market(web)
        web.host.feed(*map(submitted, JOBS))

        async def count(query):
            return len((await ask(web, f"/v1/jobs?{query}")).json["jobs"])

        assert await count("tenant=speech") == 3
        assert await count("phase=waiting") == 5
        assert await count("phase=running") == 0
        assert await count("flag=stalled") == 0
        assert await count("tenant=speech&phase=waiting") == 3


async def test_a_job_is_found_by_the_beginning_of_its_id():
    async with running_web() as web:
        market(web)
        web.host.feed(submitted(JOBS[0]))
        whole = JOBS[0].job_id

        for asked in (whole, whole[:6]):
            assert (await ask(web, f"/v1/jobs/{asked}")).json["job"]["job"]["job_id"] == whole
        assert (await ask(web, "/v1/jobs/nothing-like-it")).status == 404


async def test_a_beginning_of_several_ids_is_refused_with_how_many():
    async with running_web() as web:
        market(web)
        alike = [replace(JOBS[0], job_id=f"aa{number}") for number in range(2)]
        web.host.feed(*map(submitted, alike))
        answer = await ask(web, "/v1/jobs/aa")

        assert answer.status == 400
        assert answer.json["problems"] == [
            {
                "field": "job_id",
                "expected": "an id, or a beginning of one that no other has",
                "found": "'aa', with which 2 begin",
            }
        ]
        assert (await ask(web, "/v1/jobs/aa1")).status == 200


async def test_what_happened_comes_a_page_at_a_time_and_an_entry_as_a_whole():
    async with running_web() as web:
        market(web)
        web.host.feed(submitted(JOBS[0]))
        holding = CapacityReported(slot=0, revision=0, offset_s=0, settled=True, holdings=())
        web.host.feed(holding)
        path = f"/v1/jobs/{JOBS[0].job_id}/events"
        answer = await ask(web, path)

        (event,) = answer.json["events"]
        assert event["kind"] == "job.submitted"
        assert event["ts_event"] == "2026-03-01T00:00:00Z"
        assert event["text"].startswith("submitted: 8 instance_hours")
        assert answer.json["next_after_seq"] is None
        assert (await ask(web, f"{path}?after_seq={event['seq']}")).json["events"] == []


async def test_market_and_fleet():
    async with running_web() as web:
        market(web)
        web.host.feed(submitted(JOBS[0]))
        lots = (Lot(offering_id=EAST, spot=2, on_demand=1),)
        holding = JobHolding(job_id=JOBS[0].job_id, lots=lots, instance_ids=("a", "b", "c"))
        web.host.feed(
            CapacityReported(slot=0, revision=0, offset_s=0, settled=True, holdings=(holding,))
        )

        said = (await ask(web, "/v1/market")).json
        assert said["state"] == "open"
        assert said["next_slot_start"] == "2026-03-01T00:10:00Z"
        assert said["ends"] is None
        assert len(said["offerings"]) == len(said["quotes"]) == 2
        assert said["quotes"][0]["quote"]["spot_price_micro_usd"] == 3_000_000

        fleet = (await ask(web, "/v1/fleet")).json["fleet"]
        assert (fleet["spot"], fleet["on_demand"]) == (2, 1)
        assert fleet["micro_usd_per_hour"] == 16_000_000


async def test_before_a_market_is_known_there_is_no_clock():
    async with running_web() as web:
        answer = await ask(web, "/v1/market")

        assert answer.json["clock"] is None
        assert answer.json["state"] == "not_open"
        assert (await ask(web, "/v1/jobs")).json["jobs"] == []


async def test_health_says_whether_answers_are_up_to_date():
    async with running_web() as web:
        assert (await ask(web, "/healthz")).json == {"service": {"healthy": True, "phase": "live"}}
        web.host.healthy = False
        assert (await ask(web, "/healthz")).status == 503


async def test_head_says_what_get_would_and_sends_nothing():
    async with running_web() as web:
        market(web)
        answer = await ask(web, "/v1/market", method="HEAD")

        assert answer.status == 200
        assert int(answer.headers["content-length"]) > 0
        assert answer.body == b""
        assert (await ask(web, "/v1/watch", method="HEAD")).status == 200


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "field", "expected", "found"),
    [
        ("/v1/jobs?phase=asleep", 400, "phase", "one of waiting, running", "'asleep'"),
        ("/v1/jobs?flag=", 400, "flag", "one of at_risk, stalled", "''"),
        ("/v1/jobs?page_size=-1", 400, "page_size", "a whole number 0..1000", "'-1'"),
        ("/v1/jobs?page_size=1001", 400, "page_size", "a whole number 0..1000", "'1001'"),
        ("/v1/jobs?page_size=%D9%A1", 400, "page_size", "a whole number 0..1000", "'\u0661'"),
        ("/v1/jobs?page_token=x", 400, "page_token", "the next_page_token of an earlier", "'x'"),
        ("/v1/jobs?phse=running", 400, "phse", "one of tenant, phase, flag", "'phse'"),
        ("/v1/jobs?phase=running&phase=late", 400, "phase", "one value", "'several'"),
        ("/v1/jobs?tenant=%00", 400, "tenant", "at most 200 characters", "'\\x00'"),
        ("/v1/jobs?tenant=%ff", 400, "", "at most 32 fields of UTF-8", ""),
        ("/v1/market?x=1", 400, "x", "no fields", "'x'"),
        ("/v1/watch?after=soon", 400, "after", "the id of an event", "'soon'"),
        ("/v1/watch?after=99", 400, "after", "a place up to", "99"),
        ("/v1/jobs/zz", 404, "job_id", "a job's id", "zz"),
        ("/v1/jobs/zz/events", 404, "job_id", "a job's id", "zz"),
    ],
)
async def test_a_refusal_says_field_expected_and_found(path, status, field, expected, found):
    async with running_web() as web:
        market(web)
        answer = await ask(web, path)

        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == status
        (problem,) = answer.json["problems"]
        assert problem["field"] == field
        assert problem["expected"].startswith(expected)
        assert found in problem["found"]


async def test_everything_that_is_wrong_is_told_at_once():
    async with running_web() as web:
        answer = await ask(web, "/v1/jobs?phase=x&flag=y&page_size=z")

        assert [problem["field"] for problem in answer.json["problems"]] == [
            "phase",
            "flag",
            "page_size",
        ]
        assert answer.json["reason"] == "FIELD_INVALID"
        assert answer.json["detail"].startswith("phase: expected one of waiting,")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_nothing_can_be_written(method):
    async with running_web() as web:
        answer = await ask(web, "/v1/jobs", method=method)

        assert answer.status == 405
        assert answer.headers["allow"] == "GET, HEAD"
        assert answer.json["detail"] == f"method: expected GET or HEAD, found {method!r}"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"path": "/v1/jobs", "body": b"{}"}, 413),
        ({"path": "/v1/jobs", "headers": {"Transfer-Encoding": "chunked"}}, 413),
        ({"path": f"/v1/jobs/{'x' * 600}"}, 414),
        ({"path": f"/v1/jobs?tenant={'x' * 3000}"}, 414),
        ({"path": "/v1/jobs", "headers": {"X-Much": "x" * 20_000}}, 431),
        ({"path": "/v1/jobs", "headers": {"Host": "evil.example:80"}}, 421),
        ({"path": "/v1/jobs", "headers": {"Host": "localhost"}}, 200),
        ({"path": "/v2/jobs"}, 404),
        ({"path": "/v1/jobs/"}, 404),
    ],
)
async def test_requests_are_bounded_and_for_this_server(options, status):
    async with running_web() as web:
        market(web)
        assert (await ask(web, options.pop("path"), **options)).status == status


async def test_every_answer_has_the_security_headers_and_no_cors():
    async with running_web() as web:
        for path in ("/v1/jobs", "/v1/nothing", "/healthz"):
            told = (await ask(web, path, headers={"Origin": "https://evil.example"})).headers
            assert told["x-content-type-options"] == "nosniff"
            assert told["content-security-policy"].startswith("default-src 'none'")
            assert told["cache-control"] == "no-store"
            assert not [name for name in told if name.startswith("access-control")]
            assert "server" not in told


async def test_an_address_that_is_taken_or_malformed_cannot_be_served():
    async with running_web() as web:
        for address in (web.address, "nowhere", "127.0.0.1:99999"):
            web.server._address = address
            with pytest.raises(ConfigError, match=r"HOST:PORT|another read_model"):
                await type(web.server)(None, address=address).start()


# --- connections --------------------------------------------------------------------------------


def _said(port, sent):
    """What a server says to bytes, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        said = b""
        while part := connection.recv(65_536):
            said += part
        return said


async def test_a_request_that_does_not_end_is_hung_up_on():
    limits = WebLimits(request_s=0.05)
    async with running_web(limits=limits) as web:
        for begun in (b"", b"GET /v1/jobs HT", b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"):
            assert await asyncio.to_thread(_said_or_reset, web.port, begun) == b""


def _said_or_reset(port, sent):
    try:
        return _said(port, sent)
    except ConnectionResetError:
        return b""


async def test_a_reader_that_takes_nothing_is_hung_up_on():
    hung_up = asyncio.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        await asyncio.Event().wait()

    async def receive():
        await hung_up.wait()
        return {"type": "http.disconnect"}

    scope = {
        **{"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b""},
        **{"headers": [(b"host", b"localhost")], "state": {ABORT: hung_up.set}},
    }
    await Guard(app, WebLimits(send_s=0.01))(scope, receive, send)

    assert hung_up.is_set()


async def test_what_is_more_than_the_server_takes_is_refused():
    async with running_web(limits=WebLimits(most_watches=1)) as web:
        market(web)
        reader = await asyncio.to_thread(EventReader, web.port, "/v1/watch?after=0")
        await asyncio.to_thread(reader.next)
        answer = await ask(web, "/v1/watch")
        await asyncio.to_thread(reader.close)

        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.json["reason"] == "TOO_MANY_REQUESTS"


async def test_one_tenant_leaves_places_to_follow_for_others():
    limits = WebLimits(most_watches=3, most_watches_a_tenant=1)

    def follow(web, token):
        headers = {"Authorization": f"Bearer {token}"}
        return EventReader(web.port, "/v1/watch?after=0", headers)

    async with running_web(limits=limits, authenticator=KnownTokens()) as web:
        market(web)
        first = await asyncio.to_thread(follow, web, "owner")
        await asyncio.to_thread(first.next)
        second, other = await asyncio.gather(
            asyncio.to_thread(follow, web, "tenant-viewer"),
            asyncio.to_thread(follow, web, "rival"),
        )
        answered = second.response.status, other.response.status
        for reader in (first, second, other):
            await asyncio.to_thread(reader.close)

        assert answered == (429, 200)


async def test_requests_beyond_the_bound_are_told_to_come_again():
    async with running_web(limits=WebLimits(most_requests=1)) as web:
        market(web)
        reader = await asyncio.to_thread(EventReader, web.port, "/v1/watch?after=0")
        await asyncio.to_thread(reader.next)
        answer = await ask(web, "/v1/jobs")
        await asyncio.to_thread(reader.close)

        assert answer.status == 503
        assert answer.json["detail"] == "1 requests are being answered; try again"


async def test_the_market_goes_on_in_the_clock():
    async with running_web() as web:
        market(web)
        web.host.feed(slot_opened(1))

        clock = (await ask(web, "/v1/market")).json["clock"]
        assert (clock["slot"], clock["market"]) == (1, "2026-03-01T00:10:00Z")
