from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from spotline.bench.priors.stock import RECORDED, RecordedStock, build_stock
from spotline.contracts.errors import ContractError
from spotline.domain.beliefs.stock_laws import shipped_stock, stock_card, stock_priors_to_json

DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))


@pytest.mark.skipif(not (DATA / RECORDED).is_file(), reason="recorded stock is not there")
def test_the_stock_in_the_wheel_is_that_of_the_recording() -> None:
    priors, card = build_stock(DATA, command=stock_card()["command"])

    text = stock_priors_to_json(priors, card)

    assert hashlib.sha256(text.encode()).hexdigest() == shipped_stock().sha256


def test_the_card_stops_at_half_and_names_what_is_assumed() -> None:
    card = stock_card()

    for series in card["series"]:
        assert series["probes_used"][0] == 0 < series["probes_used"][1] <= series["probes"] // 2
    learned = [series["name"] for series in card["series"] if series["learned"]]
    named = {law.name for law in shipped_stock().laws}
    assert named - set(learned) == {"plenty", "tight"}
    assert card["assumed"].keys() == {"laws", "families", "gangs"}


def test_a_series_that_never_changed_teaches_no_length_of_an_outage() -> None:
    series = RecordedStock(name="x", probes=4, probes_used=2, out_s=9.0, there_s=0.0, outages=0)

    assert series.law() is None


def test_a_folder_without_the_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="--data"):
        build_stock(tmp_path)
