from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.bench.priors.sources import prior_sources, region_of
from spotline.bench.quality.families import load_families
from spotline.cli.main import app
from spotline.contracts.errors import ContractError
from spotline.domain.market.prior_laws import shipped_card, shipped_priors
from spotline.domain.policies.registry import POOL
from spotline.domain.selection.prior import shipped_weights
from spotline.domain.selection.saved import parse_saved

DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="recorded data is not there")


def test_every_source_of_the_card_stops_at_half() -> None:
    for source in shipped_card()["sources"]:
        begin, end = source["slots_used"]
        assert begin == 0
        assert 0 < end <= source["slots"] // 2


@with_data
def test_nothing_that_benchmarks_report_was_learned_from() -> None:
    families, _ = load_families(DATA)
    # Reports begin at half of a series; a card's slots end there, on the same files and slots.
    reported = {one.slots: one.half for family in families for one in family.series}
    for source in shipped_card()["sources"]:
        if source["kind"] != "H100 counts":
            assert source["slots_used"][1] <= reported[source["slots"]]


@with_data
def test_the_card_names_the_files_by_what_they_hold() -> None:
    stated = {source["file"]: source["sha256"] for source in shipped_card()["sources"]}

    found = {name: hashlib.sha256((DATA / name).read_bytes()).hexdigest() for name in stated}

    assert found == stated


@with_data
def test_the_laws_in_the_wheel_are_those_of_the_sources() -> None:
    from spotline.domain.market.prior_laws import learn_prior

    learned = [
        learn_prior(source.name, source.kind, source.region, source.counts)
        for source in prior_sources(DATA)
        if source.counts.any()
    ]

    assert tuple(learned) == shipped_priors().laws


def test_weights_in_the_wheel_fit_the_pool() -> None:
    saved = parse_saved(shipped_weights())

    assert saved.prior([policy.policy_id for policy in POOL]).sum() == pytest.approx(1.0)
    assert saved.rounds == shipped_card()["weights"]["jobs"]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="--data"):
        prior_sources(tmp_path)


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("europe-west1-c", "europe-west1"), ("H100_PCIE", "H100_PCIE")],
)
def test_regions_of_zones(zone: str, region: str) -> None:
    assert region_of(zone) == region


def test_show_says_what_priors_were_learned_from() -> None:
    shown = CliRunner().invoke(app, ["priors", "show", "--json"])

    assert shown.exit_code == 0
    assert json.loads(shown.output)["sha256"] == shipped_priors().sha256
    assert "neocloud" in CliRunner().invoke(app, ["priors", "show"]).output
