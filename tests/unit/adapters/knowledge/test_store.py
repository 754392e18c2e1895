"""The knowledge base: the same runs, the same bytes; merging is idempotent."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.adapters.knowledge.reader import read_file
from spotline.adapters.knowledge.store import (
    METADATA_KEY,
    is_knowledge_file,
    knowledge_digest,
    merged,
    read_knowledge,
    write_knowledge,
)
from spotline.contracts.errors import ContractError
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    MethodOption,
    RunOutcome,
)
from tests.depth import examples


def _run(batch_size=8, rate=100.0, stack="sfttrainer", outcome=RunOutcome.SUCCEEDED, options=()):
    return MeasuredRun(
        configuration=Configuration(
            model_name="granite-3.1-8b",
            method=Method.LORA,
            gpu_model="a100-80gb",
            gpus=8,
            nodes=1,
            tokens_per_sample=4096,
            batch_size=batch_size,
            options=options,
        ),
        stack=stack,
        outcome=outcome,
        tokens_per_s=rate if outcome is RunOutcome.SUCCEEDED else 0.0,
    )


RUNS = st.lists(
    st.builds(
        _run,
        batch_size=st.sampled_from([8, 16]),
        rate=st.floats(1, 1e6),
        stack=st.sampled_from(["a", "b"]),
        outcome=st.sampled_from(list(RunOutcome)),
        options=st.sampled_from(
            [(), (MethodOption(name="a", value="1"), MethodOption(name="b", value="é=;"))]
        ),
    ),
    max_size=6,
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
def test_what_is_written_is_read_back_and_any_order_gives_the_same_bytes(tmp_path, runs):
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    digest = write_knowledge(runs, one)
    assert write_knowledge(runs[::-1] + runs, other) == digest == knowledge_digest(runs)
    assert one.read_bytes() == other.read_bytes()
    assert read_knowledge(one) == merged(runs)


@given(RUNS, RUNS)
def test_merging_forgets_nothing_and_counts_nothing_twice(one, other):
    both = merged(one, other)
    assert both == merged(other, one) == merged(both, one)
    assert set(both) == {*one, *other}


def test_digest_tells_different_runs_apart():
    assert knowledge_digest([_run(rate=1.0)]) != knowledge_digest([_run(rate=1.5)])


def test_a_knowledge_base_can_be_imported_again(tmp_path):
    path = tmp_path / "k.parquet"
    write_knowledge([_run()], path)
    imported = read_file(path)
    assert (imported.format_name, imported.runs) == ("knowledge", (_run(),))


def test_nothing_is_left_behind_where_it_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match="absent"):
        write_knowledge([_run()], tmp_path / "absent" / "k.parquet")
    assert list(tmp_path.iterdir()) == []


def test_absent_foreign_and_truncated_files_are_refused(tmp_path):
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    truncated = tmp_path / "truncated.parquet"
    write_knowledge([_run()], truncated)
    truncated.write_bytes(truncated.read_bytes()[:-9])
    assert not is_knowledge_file(foreign)
    assert not is_knowledge_file(truncated)
    for path in (tmp_path / "absent.parquet", foreign, truncated):
        with pytest.raises(ContractError, match="expected a knowledge base"):
            read_knowledge(path)


def _rewritten(tmp_path, change, metadata=None):
    path = tmp_path / "k.parquet"
    write_knowledge([_run()], path)
    table = pq.read_table(path)
    kept = metadata or table.schema.metadata
    columns = {name: table.column(name).to_pylist() for name in table.column_names} | change
    pq.write_table(pa.table(columns).replace_schema_metadata(kept), path)
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gpus": [0]}, "row 1: gpus must be >= 1"),
        ({"gpus": ["eight"]}, "row 1, field gpus"),
        ({"outcome": ["lost"]}, "row 1: .*lost"),
        ({"method": ["prompt"]}, "row 1: .*prompt"),
        ({"tokens_per_s": [float("nan")]}, "row 1: tokens_per_s"),
        ({"stack": [None]}, "row 1, field stack"),
        ({"options": ["[]"]}, "row 1: "),
        ({"options": ["{"]}, "row 1: "),
    ],
)
def test_a_row_that_breaks_the_format_is_named(tmp_path, change, problem):
    with pytest.raises(ContractError, match=problem):
        read_knowledge(_rewritten(tmp_path, change))


@pytest.mark.parametrize("header", ['{"format_version": 99}', "{}", "banana"])
def test_another_version_is_refused(tmp_path, header):
    with pytest.raises(ContractError, match="format_version"):
        read_knowledge(_rewritten(tmp_path, {}, {METADATA_KEY: header}))
