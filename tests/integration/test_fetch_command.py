"""Fetching a result that a training program committed: whole, verified, or not at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.cli import fetch, jobs
from spotline.client import Client, NothingToFetch
from spotline.client.fetching import fetch_result
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.job import Checkpoint
from spotline.trainer.checkpoints import CheckpointName
from spotline.trainer.stores import open_store
from tests.fakes.allocator import START_NS, job, opened_host

pytestmark = pytest.mark.integration

APP = typer.Typer()
for commands in (fetch, jobs):
    commands.register(APP)


def a_job(location: Path | str):
    checkpoint = Checkpoint(interval_s=600, save_s=10, location=str(location))
    return replace(job(value_usd=400), checkpoint=checkpoint)


def commit(location: Path, job_id: str, step: int, kind: str, text: str) -> Path:
    """Leave a complete checkpoint, as the library does."""
    store = open_store(str(location / job_id), location / "scratch")
    name = CheckpointName(generation=1, step=step, kind=kind)
    folder = store.staging(name)
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "model.txt").write_text(text)
    (folder / "config.json").write_text("{}")
    return store.commit(name, done=float(step), position=None).path


def test_the_result_is_fetched_though_a_later_checkpoint_is_newer(tmp_path):
    work = a_job(tmp_path / "store")
    commit(tmp_path / "store", work.job_id, 40, "final", "trained")
    commit(tmp_path / "store", work.job_id, 50, "periodic", "half")

    fetched = fetch_result(work, tmp_path / "model")

    assert (fetched.kind, fetched.step, fetched.done) == ("final", 40, 40.0)
    assert (tmp_path / "model" / "weights" / "model.txt").read_text() == "trained"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "store"]


def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path):
    work = a_job(tmp_path / "store")
    commit(tmp_path / "store", work.job_id, 40, "periodic", "whole")
    damaged = commit(tmp_path / "store", work.job_id, 50, "periodic", "broken later")
    (damaged / "weights" / "model.txt").write_text("broken LATER")

    fetched = fetch_result(work, tmp_path / "model", unfinished=True)

    assert fetched.step == 40
    assert "00000001-0000000050" in fetched.passed_over[0]


def test_nothing_appears_where_there_is_no_result(tmp_path):
    work = a_job(tmp_path / "store")
    commit(tmp_path / "store", work.job_id, 40, "periodic", "half")

    with pytest.raises(NothingToFetch, match="has no result yet"):
        fetch_result(work, tmp_path / "model")

    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("location", "said"), [("", "states no checkpoint.location"), ("moon://here", "moon")]
)
def test_a_location_that_cannot_be_read_is_named(tmp_path, location, said):
    with pytest.raises(NothingToFetch, match=said):
        fetch_result(a_job(location), tmp_path / "model")


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("mine")

    with pytest.raises(FileExistsError, match="must not exist or be empty"):
        fetch_result(a_job(tmp_path / "store"), tmp_path / "model")


async def test_the_command_and_the_client_fetch_it(tmp_path):
    work = a_job(tmp_path / "store")
    commit(tmp_path / "store", work.job_id, 40, "final", "trained")
    host, feed = opened_host(JobSubmitted(job=work, ts_event_ns=START_NS)), JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    address = await server.start()

    def program() -> str:
        with Client(address) as spotline:
            return spotline.fetch(work.job_id, tmp_path / "second").sha256

    async def run(*words: str):
        every = ("fetch", work.job_id, *words, "--address", address)
        return await asyncio.to_thread(CliRunner().invoke, APP, every)

    try:
        done = await run("--to", str(tmp_path / "first"), "--json")
        again = await run("--to", str(tmp_path / "first"))
        sha256 = await asyncio.to_thread(program)
    finally:
        await server.stop(grace_s=0.2)

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sha256"] == sha256
    assert (tmp_path / "first" / "weights" / "model.txt").read_text() == "trained"
    assert again.exit_code == 1
    assert "must not exist or be empty" in again.output
