"""What is said of values of files, and how much of them is shown."""

import pytest

from spotline.adapters.market.parse import check_offering_id, names, refusal_of, shown
from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import Reservation


def test_a_long_value_is_cut_and_a_short_one_is_not():
    assert shown("a") == "'a'"
    assert shown(["x"] * 1000).endswith("...")
    assert len(shown("x" * 10_000_000)) == 80


def test_of_many_names_the_first_are_said_and_how_many_more_there_are():
    assert names(["a", "b"]) == "a, b"
    assert names(f"n{number}" for number in range(1012)).endswith("n11 and 1,000 more")
    assert len(names(["x" * 10_000])) == 80


@pytest.mark.parametrize("offering_id", ["", "a\x1b[2J", "a\x00b", "a\nb", "x" * 201])
def test_an_id_that_cannot_be_shown_is_refused(offering_id):
    with pytest.raises(
        ContractError, match=r"^here: expected 1 to 200 printable characters, found"
    ):
        check_offering_id(offering_id, "here")


def test_ids_of_reservations_and_of_other_letters_are_taken():
    check_offering_id("cloud:east-1a:a100-1x/reserved/block-7", "here")
    check_offering_id("größe:zürich:π", "here")


def test_what_a_value_refuses_is_said_in_a_files_words():
    with pytest.raises(ValueError, match="must be") as caught:
        Reservation(instances=0)

    error = refusal_of(caught.value, "m.parquet: offering 1")

    assert str(error) == "m.parquet: offering 1, field instances: expected >= 1, found 0"


def test_what_is_refused_in_other_words_stays_as_it_is():
    assert str(refusal_of(ValueError("no such thing"), "here")) == "here: no such thing"
