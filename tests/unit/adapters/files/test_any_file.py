"""Whatever a file holds, its reader makes something of it or says what is wrong with it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.adapters.files.geography.geography_file import parse_geography
from spotline.adapters.files.job_file import parse_job_file, read_jobs
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.pipeline_file import PIPELINE_FIELDS, read_pipeline
from spotline.adapters.files.weights_file import read_weights
from spotline.contracts.errors import ContractError
from tests.depth import examples

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
JOB, DRAFT, TRAIN, PIPELINE, GEOGRAPHY, SERIES = (
    yaml.load((EXAMPLES / f"{name}.yaml").read_text(), yaml.BaseLoader)
    for name in ("job", "draft", "train", "pipeline", "geography", "geography-series")
)

NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 1, 10**30, 1e300, "1e999"])
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, whole: Any) -> Any:
    """A valid content, something in it replaced by anything."""
    if isinstance(whole, dict) and whole and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(whole)))
        return whole | {key: draw(changed(whole[key]))}
    if isinstance(whole, list) and whole and draw(st.integers(0, 3)):
        index = draw(st.integers(0, len(whole) - 1))
        return [*whole[:index], draw(changed(whole[index])), *whole[index + 1 :]]
    return draw(VALUES)


def written(content: Any) -> str:
    return yaml.safe_dump(content, allow_unicode=True)


@settings(max_examples=examples(150), deadline=None)
@given(changed(JOB) | changed(DRAFT) | changed(TRAIN))
def test_any_job_file_is_a_job_or_a_bad_file(content: Any) -> None:
    with suppress(BadFile):
        parse_job_file(written(content), now_ns=0)


@settings(max_examples=examples(100), deadline=None)
@given(changed(GEOGRAPHY) | changed(SERIES))
def test_any_geography_is_one_or_a_bad_file(content: Any) -> None:
    with suppress(BadFile):
        parse_geography(written(content), where="geography.yaml", folder=EXAMPLES)


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(changed(PIPELINE))
def test_any_pipeline_file_is_a_pipeline_or_a_bad_file(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(written(content))
    with suppress(BadFile):
        read_pipeline(path)


WEIGHTS = (
    b'{"format_version":1,"rule":"adahedge","rounds":3,"gap_usd":0.5,"provenance":"x",'
    b'"weights":{"msu":0.5,"on_demand_only":0.5}}'
)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, len(WEIGHTS)), st.binary(max_size=4)).map(
        lambda cut: WEIGHTS[: cut[0]] + cut[1] + WEIGHTS[cut[0] + 1 :]
    )
)
def test_any_weights_file_is_weights_or_a_bad_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.json"
    path.write_bytes(content)
    with suppress(BadFile):
        read_weights(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"rule": 1, "rule": 2}', "rule: expected each field once, found it again"),
        ("[" * 100_000, "(file): expected fewer levels of lists and objects, found more"),
        ("{", "line 1: expected JSON, found Expecting property name enclosed in double quotes"),
        ("[NaN]", "(file): expected finite numbers, found NaN"),
        (f"[{'9' * 5000}]", "(file): expected a number of at most 64 characters, found "),
        ("[]", "(file): expected an object with format_version 1, found something else"),
        ('{"format_version": 1}', "rule: expected of type str, found None"),
    ],
)
def test_a_mistake_in_a_weights_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "weights.json"
    path.write_text(text)

    with pytest.raises(BadFile) as caught:
        read_weights(path)

    assert str(caught.value).startswith(f"{path}: {said}")


def test_weights_of_policies_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_bytes(WEIGHTS.replace(b"msu", b"guess"))

    with pytest.raises(BadFile, match=r"weights\.json: weights: expected .* found .*guess"):
        read_weights(path)


def test_no_file_is_no_warm_start() -> None:
    assert read_weights(None) == ""


@pytest.mark.parametrize("read", [read_jobs, read_pipeline, read_weights])
def test_every_reader_bounds_what_it_reads(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(60 << 20)

    with pytest.raises(ContractError, match=r"expected at most .* bytes, found more"):
        read(path)


def test_the_documentation_has_a_row_for_every_field_of_a_pipeline() -> None:
    text = (EXAMPLES.parent / "pipeline-file.md").read_text()
    documented = {
        name.strip(" `")
        for line in text.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    }

    assert documented == set(PIPELINE_FIELDS)
