"""`spotline pipelines` and `place` against a real gRPC server, and against a placer on NATS."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.files.geography.geography_file import parse_geography
from spotline.adapters.files.pipeline_file import read_pipeline
from spotline.adapters.grpc.placer.server import PlacerServer
from spotline.adapters.grpc.placer.servicer import pipeline_decided
from spotline.adapters.identity.folder import IdentityFolder
from spotline.adapters.identity.shown import ServerIdentity
from spotline.application.identity.grants import RoleGrant
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.placer.messages import pipeline_id_for
from spotline.application.placer.options import PlacerOptions
from spotline.application.spec import Timer
from spotline.bootstrap.followers import serve_market_ingest
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.servers import serve_placer
from spotline.cli import pipelines as commands
from spotline.cli import place
from spotline.contracts.access import Role
from spotline.domain.market.generate import generate
from spotline.domain.units import utc_iso
from spotline.runtime.applied import AppliedFeed
from tests.fakes.placer import START_NS, FakePlacerHost, at, both_ways, region

pytestmark = pytest.mark.integration

APP = typer.Typer()
commands.register(APP)
place.register(APP)

# 100 iterations of 8 s on its 8 GPUs.
FILE = """
tenant: research
request_id: {name}
model: "gpt [13b]"
iterations: 100
microbatches: 9
compute_s: 4.0
activation_bytes: 1000000
min_gpus: 8
max_gpus: 8
"""
TWO = (region("a", 4, 0.1), region("b", 4, 0.2), *both_ways("a", "b"))


def id_of(name: str = "one") -> str:
    return pipeline_id_for("research", name)


@pytest.fixture
def job_file(tmp_path: Path):
    """Write a pipeline file of this name, and say where."""

    def written(name: str = "one", more: str = "", **changes: str) -> str:
        text = FILE.format(name=name) + more
        for old, new in changes.items():
            text = text.replace(old, new)
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    return written


@asynccontextmanager
async def commands_to(address: str):
    """Runs the commands against a placer."""

    async def run(*arguments: str):
        environment = {"SPOTLINE_PLACER_ADDRESS": address, "COLUMNS": "200"}
        return await asyncio.to_thread(CliRunner().invoke, APP, list(arguments), env=environment)

    yield run


@asynccontextmanager
async def spotline(
    *events, host: FakePlacerHost | None = None, identity: ServerIdentity | None = None
):
    host = host or FakePlacerHost(*(events or TWO))
    feed = AppliedFeed(pipeline_decided)
    host.listeners.append(feed.on_applied)
    server = PlacerServer(host, feed, PlacerOptions(), address="127.0.0.1:0")
    server.identify(identity)
    try:
        async with commands_to(await server.start()) as run:
            yield run
    finally:
        await server.stop(grace_s=0.2)


# --- submit -----------------------------------------------------------------------------------


async def test_submitting_says_where_it_runs_and_again_that_nothing_changed(job_file) -> None:
    file = job_file()
    async with spotline() as run:
        first = await run("pipelines", "submit", file)
        second = await run("pipelines", "submit", file)
        as_json = await run("pipelines", "submit", file, "--json")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    line, reason = first.stdout.splitlines()
    assert line.startswith(f"{id_of()}  running, on a (4) > b (4), done at 2026-01-01T00:13:")
    assert reason
    assert f"spotline pipelines watch {id_of()}" in first.stderr
    assert "was submitted before; nothing changed; running" in second.stdout
    answer = json.loads(as_json.stdout)
    assert answer["already_submitted"] is True
    assert answer["status"]["pipeline"]["job_id"] == read_pipeline(Path(file)).job_id == id_of()


async def test_a_file_may_leave_out_the_tokens_tenant(job_file, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = job_file(**{"tenant: research\n": ""})
    identities = IdentityFolder(tmp_path / "store")
    keys = {
        "ann": identities.keys.create("ann", RoleGrant(role=Role.OWNER, tenant="research")),
        "sam": identities.keys.create("sam", RoleGrant(role=Role.SERVICE)),
    }
    monkeypatch.setenv("SPOTLINE_CA", str(identities.ca_file))
    shown = ServerIdentity(
        authenticator=identities.authenticator(), key_and_chain=identities.server_identity([])
    )
    async with spotline(identity=shown) as run:
        monkeypatch.setenv("SPOTLINE_TOKEN", keys["ann"])
        explained = await run("place", file)
        submitted = await run("pipelines", "submit", file)
        monkeypatch.setenv("SPOTLINE_TOKEN", keys["sam"])
        unowned = await run("pipelines", "submit", file)
        unplaced = await run("place", file)

    assert explained.exit_code == 0, explained.output
    # The same request as a file that names the tenant.
    assert submitted.stdout.startswith(f"{id_of()}  running"), submitted.output
    said = "one.yaml: tenant: expected this field, as no token says whose pipeline it is"
    for refused in (unowned, unplaced):
        assert refused.exit_code == 2
        assert said in refused.stderr


async def test_a_deadline_too_soon_is_refused_with_the_earliest_finish(job_file) -> None:
    file = job_file("hurry", "deadline_s: 60\n")
    async with spotline(region("a", 8)) as run:
        refused = await run("pipelines", "submit", file)
        as_json = await run("pipelines", "submit", file, "--json")

    assert (refused.exit_code, as_json.exit_code) == (1, 1)
    assert (
        "hurry.yaml: deadline_s: expected a deadline of 2026-01-01T00:13:20Z or later"
        in refused.stderr
    )
    said = json.loads(as_json.stdout)
    assert said["earliest_feasible_deadline"] == "2026-01-01T00:13:20Z"
    assert said["field"] == "pipeline.deadline_s"


async def test_the_same_request_id_for_something_else_is_bad_input(job_file) -> None:
    async with spotline() as run:
        await run("pipelines", "submit", job_file())
        other = await run(
            "pipelines", "submit", job_file("one", **{"iterations: 100": "iterations: 7"}), "--json"
        )

    assert other.exit_code == 2
    assert json.loads(other.stdout)["field"] == "pipeline.client_request_id"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("compute_s: 4.0", "compute_s: fast"), "compute_s: expected a number, found 'fast'"),
        (("tenant: research", ""), "tenant: expected this field, as no token says whose"),
        (("max_gpus: 8", "max_gpus: 1"), "max_gpus: expected a number >= min_gpus (8), found 1"),
    ],
)
def test_a_wrong_file_is_bad_input_and_needs_no_placer(job_file, change, said) -> None:
    file = job_file("wrong", **dict([change]))

    shown = CliRunner().invoke(APP, ["pipelines", "submit", file])
    as_json = CliRunner().invoke(APP, ["pipelines", "submit", file, "--json"])

    assert (shown.exit_code, as_json.exit_code) == (2, 2)
    assert said in shown.stderr
    assert said in json.loads(as_json.stdout)["error"]


# --- list and show ----------------------------------------------------------------------------


async def test_the_list_has_a_row_for_each_and_can_be_narrowed(job_file) -> None:
    async with spotline() as run:
        none = await run("pipelines", "list")
        for name in ("one", "two"):
            await run("pipelines", "submit", job_file(name))
        every = await run("pipelines", "status")
        as_before = await run("pipelines", "list")
        waiting = await run("pipelines", "list", "--phase", "waiting", "--json")
        others = await run("pipelines", "list", "--tenant", "nobody")
        others_json = await run("pipelines", "list", "--tenant", "nobody", "--json")
        wrong = await run("pipelines", "list", "--phase", "lost")

    assert "hand one over with: spotline pipelines submit" in none.stdout
    assert as_before.stdout == every.stdout
    rows = {line.split()[0]: " ".join(line.split()) for line in every.stdout.splitlines()[1:]}
    assert set(rows) == {id_of("one")[:8], id_of("two")[:8]}
    assert (
        "gpt [13b] running 0 % a (4) > b (4) 01-01 00:13 0.00 0 research"
        in (rows[id_of("one")[:8]])
    )
    assert [one["pipeline"]["client_request_id"] for one in json.loads(waiting.stdout)] == ["two"]
    assert others.stdout == "no such pipelines\n"
    assert json.loads(others_json.stdout) == []
    assert wrong.exit_code == 2
    assert "--phase" in wrong.stderr


async def test_the_list_follows_every_page(job_file, monkeypatch) -> None:
    monkeypatch.setattr(commands, "_LARGEST_PAGE", 2)
    names = ("one", "two", "three", "four", "five")
    async with spotline() as run:
        for name in names:
            await run("pipelines", "submit", job_file(name))
        every = await run("pipelines", "list", "--json")

    listed = [one["pipeline"]["job_id"] for one in json.loads(every.stdout)]
    assert listed == sorted(id_of(name) for name in names)


async def test_one_is_shown_by_how_its_id_begins(job_file) -> None:
    host = FakePlacerHost(*TWO, moves=False)
    async with spotline(host=host) as run:
        await run("pipelines", "submit", job_file("one", "deadline_s: 7200\n"))
        host.record(region("a", 4, 0.1, at_s=404))
        shown = await run("pipelines", "show", id_of()[:6])
        as_json = await run("pipelines", "show", id_of(), "--json")
        unknown = await run("pipelines", "show", "nix")
        elsewhere = await run("pipelines", "show", id_of(), "--tenant", "other", "--json")

    rows = {line.split("  ")[0]: " ".join(line.split()) for line in shown.stdout.splitlines()}
    assert rows["model"] == "model gpt [13b]"
    assert rows["deadline"] == "deadline 2026-01-01T02:00:00Z"
    assert rows["path (GPUs)"] == "path (GPUs) a (4) > b (4)"
    assert rows["done"] == "done 50 of 100 iterations (50 %)"
    status = json.loads(as_json.stdout)
    assert (status["phase"], status["iterations_done"]) == ("running", 50)
    assert (unknown.exit_code, elsewhere.exit_code) == (1, 1)
    assert "there is no pipeline nix" in unknown.stderr
    assert "of tenant other" in json.loads(elsewhere.stdout)["error"]


async def test_what_begins_several_ids_is_refused_with_them_and_so_is_nothing(job_file) -> None:
    # Of seventeen ids two begin alike.
    names = [f"job {number}" for number in range(17)]
    first = [id_of(name)[0] for name in names]
    shared = next(digit for digit in first if first.count(digit) > 1)
    async with spotline() as run:
        for name in names:
            await run("pipelines", "submit", job_file(name))
        several = await run("pipelines", "show", shared)
        nothing = await run("pipelines", "show", "")

    assert (several.exit_code, nothing.exit_code) == (2, 2)
    assert f"found '{shared}', which begins {first.count(shared)} (" in several.stderr
    assert (
        nothing.stderr == "spotline: JOB: expected an id, or how it begins, found an empty text\n"
    )


# --- release ----------------------------------------------------------------------------------


async def test_releasing_frees_its_place_and_says_whether_anything_changed(job_file) -> None:
    async with spotline() as run:
        for name in ("one", "two"):
            await run("pipelines", "submit", job_file(name))
        first = await run("pipelines", "release", id_of("one")[:8])
        second = await run("pipelines", "release", id_of("one"), "--json")
        again = await run("pipelines", "cancel", id_of("one"))
        freed = await run("pipelines", "status", id_of("two"), "--json")
        unknown = await run("pipelines", "release", "nix")
        elsewhere = await run("pipelines", "release", id_of("two"), "--tenant", "other")

    assert first.stdout == f"{id_of('one')}  released\n"
    said = json.loads(second.stdout)
    assert (said["already_over"], said["status"]["phase"]) == (True, "released")
    assert "was over already (released); nothing changed" in again.stdout
    assert json.loads(freed.stdout)["phase"] == "running"
    assert (unknown.exit_code, elsewhere.exit_code) == (1, 1)


# --- nobody there -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["submit", "list", "show", "release"])
def test_nobody_there_says_what_to_do(job_file, command) -> None:
    argument = {"submit": [job_file()], "list": []}.get(command, ["abc"])

    result = CliRunner().invoke(
        APP, ["pipelines", command, *argument, "--address", "127.0.0.1:1", "--json"]
    )

    assert result.exit_code == 2
    said = json.loads(result.stdout)
    assert "the placer at 127.0.0.1:1 cannot be reached" in said["error"]
    assert "start one with `spotline up`" in said["error"]


async def test_without_regions_nothing_is_taken(job_file) -> None:
    async with spotline(host=FakePlacerHost()) as run:
        refused = await run("pipelines", "submit", job_file())

    assert refused.exit_code == 1
    assert "no region has been observed yet" in refused.stderr


# --- on a broker ------------------------------------------------------------------------------

GEOGRAPHY = """
regions:
  - {id: a, gpus: 8, energy_usd_per_kwh: 0.1, rent_usd_per_gpu_hour: [1.0, 9.0]}
  - {id: b, gpus: 8, energy_usd_per_kwh: 0.2, rent_usd_per_gpu_hour: 2.0}
links:
  - {from: a, to: b, gbit_per_s: 8}
"""


async def until(run, *arguments: str, condition):
    """Ask until the answer is as wanted."""
    async with asyncio.timeout(60):
        while True:
            result = await run(*arguments)
            if condition(result):
                return result
            await asyncio.sleep(0.02)


async def test_a_pipeline_is_handed_over_moves_with_the_rent_and_is_released(
    event_stream, broker, job_file
) -> None:
    market = generate("mixed", seed=3, slots=3, slot_s=3600, start_ns=START_NS)
    bus, go = BusAddress(nats_url=broker.url), asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    file = job_file("long", **{"iterations: 100": "iterations: 100000"})

    async def gate(timer: Timer) -> None:
        if timer.timer_id != "slot:0":
            await go.wait()

    async with asyncio.TaskGroup() as group:
        placer = serve_placer(
            bus,
            PlacerOptions(cost="rent"),
            address="127.0.0.1:0",
            hooks=PartHooks(),
            listening=listening.set_result,
        )
        ingest = serve_market_ingest(
            bus,
            market,
            IngestOptions(barrier=False),
            PartHooks(gate=gate),
            geography=parse_geography(GEOGRAPHY, where="geography.yaml"),
        )
        tasks = [group.create_task(work) for work in (placer, ingest)]
        async with commands_to(await listening) as run:
            submitted = await until(
                run, "pipelines", "submit", file, condition=lambda one: one.exit_code == 0
            )
            go.set()
            moved = await until(
                run,
                "pipelines",
                "show",
                id_of("long"),
                "--json",
                condition=lambda one: json.loads(one.stdout)["moves"] == 1,
            )
            explained = await run("place", file)
            released = await run("pipelines", "release", id_of("long"), "--json")
            listed = await run("pipelines", "list", "--phase", "running", "--json")
        for task in tasks:
            task.cancel()

    assert "on a (8)" in submitted.stdout
    status = json.loads(moved.stdout)
    assert [share["region_id"] for share in status["placement"]["path"]] == ["b"]
    # An hour on 8 GPUs at 1 USD, and what it has cost since.
    assert status["cost_micro_usd"] >= 8_000_000
    assert status["submitted"] == utc_iso(at(0))
    assert "cost rent" in explained.stdout
    assert json.loads(released.stdout)["status"]["phase"] == "released"
    assert json.loads(listed.stdout) == []
