"""Whatever stands in a file, a query or a token is read, or is answered by an error of its own."""

import json
import random
from pathlib import Path

import pytest

from spotline.adapters.agents.enrolment import SignedEnrolment, read_token
from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.eventlog.manifest import UnreadableLog, read_manifest
from spotline.adapters.files.geography.geography_file import read_geography
from spotline.adapters.files.job_file import read_job_file, read_jobs, read_stated_job
from spotline.adapters.files.pipeline_file import read_pipeline
from spotline.adapters.files.reservations_file import add_reservations
from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.files.weights_file import read_weights
from spotline.adapters.identity.instances import (
    Identity,
    InstanceSessions,
    JoinedStanding,
    sha256_of,
)
from spotline.adapters.identity.signing import ForgedStatement
from spotline.adapters.market.parquet import read_market, write_market
from spotline.adapters.market.parse import json_value, read_csv
from spotline.adapters.web.asking import (
    asked_fleet,
    asked_happenings,
    asked_jobs,
    asked_nothing,
    asked_watch,
)
from spotline.application.read_model.ports import ViewRefused
from spotline.bootstrap.clouds import cloud_of
from spotline.contracts.errors import ConfigError, ContractError, Unauthenticated
from spotline.domain.modes import Mode
from tests.depth import examples
from tests.fakes.bad_input import small_market
from tests.fakes.mutation import changed_bytes, changed_text, only_raises

DOCS = Path(__file__).parents[3] / "docs" / "examples"
TYPED = (ContractError, ConfigError)
TIMES = examples(90)
MARKET = small_market()

WEIGHTS = json.dumps(
    {
        "format_version": 1,
        "rule": "exponentiated_gradient",
        "rounds": 5,
        "gap_usd": 0.5,
        "provenance": "a test",
        "weights": {"msu": 0.5, "up": 0.5},
    }
)
READERS = {
    "job": (lambda path: read_job_file(path, now_ns=0), "job.yaml"),
    "draft": (lambda path: read_job_file(path, now_ns=0), "draft.yaml"),
    "train": (read_stated_job, "train.yaml"),
    "jobs": (lambda path: read_jobs(path, now_ns=0), "job.yaml"),
    "pipeline": (read_pipeline, "pipeline.yaml"),
    "geography": (read_geography, "geography.yaml"),
    "rented geography": (read_geography, "geography-rented.yaml"),
    "reservations": (lambda path: add_reservations(MARKET, path), "reservations.yaml"),
    "configuration": (
        lambda path: cloud_of(
            {}, "aws", Mode.OBSERVE, read_config(path, {"SPOTLINE_EXTERNAL_ID": "x"})
        ),
        "spotline.yaml",
    ),
    "weights": (read_weights, WEIGHTS),
    "prices": (lambda path: list(read_csv(path, ["time"])), "prices.csv"),
}


def sample_of(name: str) -> str:
    return name if name.startswith("{") else (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("reader", READERS)
def test_a_changed_file_is_read_or_refused(reader, tmp_path):
    read, name = READERS[reader]
    text = sample_of(name)
    path = tmp_path / Path(name if not name.startswith("{") else "weights.json").name
    rng = random.Random(f"file {reader}")
    for number in range(TIMES):
        data = (
            changed_bytes(text.encode(), rng)
            if number % 3 == 0
            else changed_text(text, rng).encode("utf-8", "surrogatepass")
        )
        path.write_bytes(data)
        only_raises(lambda: read(path), TYPED, f"{reader} {number}: {data[:3000]!r}")


BOMBS = {
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    ),
    "merged aliases": "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: [*a, *a]}}\n" for n in range(5_000)),
    "brackets": "tenant: " + "[" * 5_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "mappings": "{a: " * 5_000,
    "60 MB": "tenant: " + "x" * 60_000_000,
    "60 MB of lines": "- 1\n" * 15_000_000,
    "a number of 1e30": "value_usd: 1e30\n",
    "a number of a million digits": "value_usd: " + "9" * 1_000_000,
    "nothing but keys": "".join(f"k{n}:\n" for n in range(20_000)),
    "a comment of 2 MB": "#" + "x" * 2_000_000,
    "nulls": "\0" * 100_000,
    "a tag": "!!python/object/apply:os.system ['true']",
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("reader", ["jobs", "geography", "weights", "configuration"])
def test_a_bomb_is_refused_without_being_read(reader, bomb, tmp_path):
    read, name = READERS[reader]
    path = tmp_path / (name if not name.startswith("{") else "weights.json")
    path.write_text(BOMBS[bomb], encoding="utf-8")
    with pytest.raises(TYPED) as caught:
        read(path)

    lines = str(caught.value).splitlines()
    assert all(line.isprintable() and len(line) < 2_000 for line in lines)


def test_a_changed_market_is_read_or_refused(tmp_path):
    path = tmp_path / "market.parquet"
    write_market(MARKET, path)
    whole = path.read_bytes()
    rng = random.Random("market")
    for number in range(TIMES):
        path.write_bytes(changed_bytes(whole, rng))
        only_raises(lambda: read_market(path), TYPED, f"market {number}")


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 100_000, "nan", "", "\0", '{"a":' * 5_000])
def test_json_of_a_source_is_bounded(text):
    only_raises(lambda: json_value(text, "source.json"), (ContractError,), text[:20])


def test_a_changed_manifest_is_read_or_unreadable(tmp_path):
    sample = Path(__file__).parents[2] / "data" / "v0.2.0"
    manifests = sorted(sample.rglob("manifest.json"))
    text = (
        manifests[0].read_text()
        if manifests
        else '{"format_version": 1, "environment": {}, "status": "complete"}'
    )
    rng = random.Random("manifest")
    for number in range(TIMES):
        data = changed_text(text, rng) if number % 2 else ""
        raw = data.encode("utf-8", "surrogatepass") if data else changed_bytes(text.encode(), rng)
        (tmp_path / "manifest.json").write_bytes(raw)
        only_raises(
            lambda: read_manifest(tmp_path), (UnreadableLog,), f"manifest {number}: {raw[:2000]!r}"
        )


QUERIES = (
    "tenant=research&state=pending&page_size=10&page_token=abc",
    "job_id=abc&after_seq=5&page_size=3",
    "tenant=a",
    "",
)


@pytest.mark.parametrize(
    "asked",
    [
        asked_jobs,
        asked_happenings,
        asked_fleet,
        asked_nothing,
        lambda query: asked_watch(query, {}),
    ],
    ids=["jobs", "happenings", "fleet", "nothing", "watch"],
)
def test_a_changed_query_is_read_or_refused(asked):
    rng = random.Random("query")
    for number in range(4 * TIMES):
        said = changed_bytes(rng.choice(QUERIES).encode(), rng).decode("latin-1")
        only_raises(lambda said=said: asked(said), (ViewRefused,), f"{number}: {said!r}")
    for said in ("a=b&" * 100_000, "%ff%fe", "=", "&&&", "a=" + "%00" * 1_000, "%"):
        only_raises(lambda said=said: asked(said), (ViewRefused,), said[:50])


@pytest.mark.parametrize(
    "last_event_id", ["", "x", "5:3", "9" * 5_000, "-1", "\x00", "²", "٣", "5:"]
)
def test_where_a_watch_goes_on_is_read_or_refused(last_event_id):
    only_raises(
        lambda: asked_watch("", {"last-event-id": last_event_id}),
        (ViewRefused,),
        last_event_id[:20],
    )


def test_a_changed_token_or_session_is_forged(tmp_path):
    keys = AgentKeys(tmp_path)
    standing = JoinedStanding(nonce_sha256=sha256_of("nonce"), generation=1)
    sessions = InstanceSessions(keys.signer, lambda _: standing, lasts_s=600)
    session = sessions.open(Identity(instance_id="i-1", job_id="job-1"), standing)
    made = SignedEnrolment(keys, advertise="head:7443").user_data(
        instance_id="i-1", job_id="job-1", tenant="acme"
    )
    readers = (
        (session, sessions.caller, Unauthenticated),
        (made["SPOTLINE_JOIN_TOKEN"], lambda text: read_token(keys.signer, text), ForgedStatement),
    )
    rng = random.Random("token")
    for right, read, refused in readers:
        assert read(right)
        for number in range(4 * TIMES):
            wrong = changed_bytes(right.encode(), rng).decode("utf-8", "replace")
            if wrong == right:
                continue
            said = f"{number}: {wrong!r}"
            assert not only_raises(lambda read=read, wrong=wrong: read(wrong), (refused,), said), (
                said
            )
        for wrong in ("", ".", "..", "a.b.c", "\ud800", "x" * 1_000_000, "t." + "A" * 5_000 + "."):
            only_raises(lambda read=read, wrong=wrong: read(wrong), (refused,), wrong[:20])
