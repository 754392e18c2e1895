"""Readers of the Skyplane tables."""

import gzip
import os
from pathlib import Path

import pytest

from spotline.adapters.network.skyplane import (
    EGRESS_FILE,
    THROUGHPUT_FILE,
    read_egress,
    read_throughput,
)
from spotline.contracts.errors import ContractError

HEADER = "src_region,src_tier,dst_region,dst_tier,throughput_received,success\n"
DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))


def _table(folder, rows, header=HEADER):
    path = folder / "table.csv.gz"
    path.write_bytes(gzip.compress((header + "".join(f"{row}\n" for row in rows)).encode()))
    return path


def _refused(read, path, where, message):
    with pytest.raises(ContractError) as caught:
        read(path)
    assert where in caught.value.where
    assert message in caught.value.problem


def test_throughput_is_bytes_per_second_and_the_mean_of_a_pairs_rows(tmp_path):
    path = _table(
        tmp_path,
        [
            "gcp:b,PREMIUM,aws:a,PREMIUM,8e9,True",
            "aws:a,PREMIUM,gcp:b,PREMIUM,4e9,True",
            "aws:a,PREMIUM,gcp:b,PREMIUM,8e9,True",
        ],
    )

    found = read_throughput(path)

    assert list(found.items()) == [(("aws:a", "gcp:b"), 7.5e8), (("gcp:b", "aws:a"), 1e9)]


def test_failed_measurements_and_the_standard_tier_are_left_out(tmp_path):
    path = _table(
        tmp_path,
        [
            "aws:a,PREMIUM,gcp:b,PREMIUM,8e9,True",
            "aws:a,PREMIUM,gcp:c,STANDARD,8e9,True",
            "aws:a,PREMIUM,gcp:d,PREMIUM,0,False",
        ],
    )

    assert list(read_throughput(path)) == [("aws:a", "gcp:b")]


@pytest.mark.parametrize(
    ("row", "where", "message"),
    [
        ("aws:a,PREMIUM,gcp:b,PREMIUM,much,True", "throughput_received", "a number >= 0"),
        ("aws:a,PREMIUM,gcp:b,PREMIUM,nan,True", "throughput_received", "a number in"),
        ("aws:a,PREMIUM,gcp:b,PREMIUM,-1,True", "line 2", "a number in"),
        ("somewhere,PREMIUM,gcp:b,PREMIUM,1,True", "line 2", "regions such as"),
        ("aws:a,PREMIUM,aws:a,PREMIUM,1,True", "line 2", "two regions"),
        ("aws:a,PREMIUM,gcp:b,PREMIUM,1,False", "table.csv.gz", "found none"),
    ],
)
def test_throughput_that_makes_no_sense_is_refused(tmp_path, row, where, message):
    _refused(read_throughput, _table(tmp_path, [row]), where, message)


def test_missing_column_is_named(tmp_path):
    path = _table(tmp_path, ["aws:a,gcp:b"], header="src,dest\n")

    _refused(read_egress, path, "line 1", "expected the column cost")


def test_egress_is_per_direction(tmp_path):
    path = _table(tmp_path, ["aws:a,gcp:b,0.09", "gcp:b,aws:a,0.12"], header="src,dest,cost\n")

    assert read_egress(path) == {("aws:a", "gcp:b"): 0.09, ("gcp:b", "aws:a"): 0.12}


def test_second_price_of_a_pair_is_refused(tmp_path):
    path = _table(tmp_path, ["aws:a,gcp:b,0.09", "aws:a,gcp:b,0.1"], header="src,dest,cost\n")

    _refused(read_egress, path, "line 3", "one price per pair")


@pytest.mark.skipif(not (DATA / THROUGHPUT_FILE).is_file(), reason="no recorded data here")
def test_recorded_tables_cover_the_same_pairs():
    throughput, egress = read_throughput(DATA / THROUGHPUT_FILE), read_egress(DATA / EGRESS_FILE)

    assert len(throughput) == 4970
    assert set(throughput) == set(egress)
    # AWS holds a VM to some 5 Gbit/s.
    assert 4e8 < throughput["aws:eu-west-1", "aws:eu-central-1"] < 7e8
