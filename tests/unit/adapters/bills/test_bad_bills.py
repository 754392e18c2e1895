"""Bills that are wrong: what is said names the file, the row, the column and what was expected."""

from __future__ import annotations

import csv
import gzip

import pytest

from spotline.adapters.bills.assessing import read_assessed
from spotline.contracts.errors import ContractError
from tests.fakes.bills import cur, focus
from tests.fakes.bills.drawn import Drawn


def assessed(path):
    return read_assessed(path, jobs=None, prices=None)


def focus_with(tmp_path, column, cell):
    """A bill of FOCUS whose second row has another cell in a column."""
    path = focus.written(tmp_path / "bill.csv", Drawn(1, jobs=1, days=4).charges())
    with path.open(newline="") as file:
        header, first, *more = csv.reader(file)
    first[header.index(column)] = cell
    with path.open("w", newline="") as file:
        csv.writer(file).writerows((header, first, *more))
    return path


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("EffectiveCost", "twelve", "expected a decimal number such as 12.345, found 'twelve'"),
        ("EffectiveCost", "NaN", "expected a finite number of at most"),
        ("EffectiveCost", "1e400", "expected a finite number of at most"),
        ("ChargePeriodStart", "monday", "expected a time such as 2026-11-01T00:00:00Z, found"),
        ("ChargePeriodEnd", "2020-01-01T00:00:00Z", "expected a time not before ChargePeriodStart"),
        ("BillingCurrency", "", "expected a currency such as USD, found ''"),
        ("ChargeCategory", "Gift", "expected Usage, Purchase, Tax, Credit or Adjustment, found"),
        ("ConsumedQuantity", "many", "expected a decimal number such as 12.345, found 'many'"),
    ],
)
def test_a_cell_that_is_wrong_is_named(tmp_path, column, cell, said):
    path = focus_with(tmp_path, column, cell)

    with pytest.raises(ContractError) as wrong:
        assessed(path)

    assert str(wrong.value).startswith(f"{path}: row 2, column {column}: {said}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected a table with a header, found an empty file"),
        (b"a,b\n1,2\n", "expected the columns of a bill (FOCUS: BilledCost, EffectiveCost"),
        (b"a,a\n1,2\n", "expected each column once, found a again"),
        (
            b"BilledCost,ChargePeriodStart,EffectiveCost\n",
            "found it without BillingCurrency, ChargeCategory, ChargePeriodEnd",
        ),
        (
            b"BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ChargePeriodStart,"
            b"ChargePeriodEnd\n",
            "expected rows, found none but the header",
        ),
        (
            b"BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ChargePeriodStart,"
            b"ChargePeriodEnd\n1,2\n",
            "expected complete CSV or Parquet, found: CSV parse error: Expected 6 columns, got 2",
        ),
        (b"PAR1 and nothing else", "expected complete CSV or Parquet, found: Parquet magic"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:20], "expected a complete gzip file"),
    ],
)
def test_a_file_that_is_no_bill_is_refused(tmp_path, content, said):
    path = tmp_path / "bill"
    path.write_bytes(content)

    with pytest.raises(ContractError) as wrong:
        assessed(path)

    assert str(wrong.value).startswith(str(path))
    assert said in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [("", "or a folder with .csv, .csv.gz, .parquet in it"), ("absent", "found none")],
)
def test_what_is_no_file_is_refused(tmp_path, name, said):
    with pytest.raises(ContractError, match=f"expected a file, {said}"):
        assessed(tmp_path / name)


def test_files_of_one_folder_are_of_one_kind(tmp_path):
    focus.written(tmp_path / "a.csv", Drawn(1, jobs=1, days=4).charges())
    cur.written_legacy(tmp_path / "b.csv.gz", Drawn(1, jobs=1, days=4).charges())

    with pytest.raises(ContractError, match=r"b\.csv\.gz: expected FOCUS as before"):
        assessed(tmp_path)


def test_fees_of_plans_without_what_was_used_are_refused(tmp_path):
    drawn = Drawn(1, jobs=1, days=4)
    list(drawn.charges())
    path = cur.written_legacy(tmp_path / "bill.csv.gz", drawn.planted())
    text = gzip.decompress(path.read_bytes()).decode()
    path.write_bytes(text.replace("savingsPlan/UsedCommitment", "savingsPlan/Other").encode())

    with pytest.raises(ContractError, match="expected the column, to tell what of a plan was used"):
        assessed(path)
