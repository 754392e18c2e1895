"""docs/assess-formats.md names what is read, and its examples can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotline.adapters.bills import cur, focus, gcp
from spotline.adapters.bills.assessing import read_assessed
from spotline.adapters.histories import jobs_csv
from spotline.adapters.histories.reading import read_history
from spotline.domain.assessment.findings import SENTENCES
from spotline.domain.assessment.grouping import JOB_TAGS, OWNER_TAGS

DOCUMENT = Path(__file__).parents[4] / "docs" / "assess-formats.md"


@pytest.fixture(scope="module")
def document():
    return DOCUMENT.read_text()


@pytest.fixture(scope="module")
def examples(document):
    return re.findall(r"^```(?:csv|json|text)\n(.*?)^```", document, re.MULTILINE | re.DOTALL)


def test_every_column_tag_and_finding_is_named(document):
    named = set(re.findall(r"`([^`\s]+)`", document))

    columns = {
        *focus.COLUMNS,
        *cur.REQUIRED,
        *cur.OPTIONAL,
        *cur.TELLING_APART,
        *gcp.REQUIRED,
        *gcp.OPTIONAL,
        *gcp.TELLING_APART,
        *jobs_csv.REQUIRED,
        *jobs_csv.OPTIONAL,
    }
    assert not (columns | set(JOB_TAGS) | set(OWNER_TAGS) | set(SENTENCES)) - named


def test_the_bill_of_three_rows_is_one_job(examples, tmp_path):
    (tmp_path / "bill").write_text(examples[0])

    bill = read_assessed(tmp_path / "bill", jobs=None, prices=None)

    (job,) = bill.jobs
    assert (job.job_id, job.work_s, job.paid_micro) == ("train", 6300, 19_600_000)
    assert [finding.kind for finding in bill.findings] == ["tax"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_each_history_is_the_same_job(examples, tmp_path, number):
    (tmp_path / "bill").write_text(examples[0].replace('""train""', '""train-7""'))
    (tmp_path / "history").write_text(examples[number])

    (job,) = read_history(tmp_path / "history")

    assert "train" in (job.job_id, *job.names)
    assert job.owner in ("ann", "research")
