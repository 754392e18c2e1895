"""`spotline knowledge import`, `describe` and `predict`: output and exit codes."""

import json
import sys
import types

import pytest
from typer.testing import CliRunner

from spotline.adapters.knowledge.store import read_knowledge
from spotline.cli.knowledge import knowledge_app
from tests.samples.measured_runs import FMS_ROW, SFTTRAINER_ROW, write_csv

run = CliRunner().invoke

GOOD = [
    SFTTRAINER_ROW | {"batch_size": str(batch), "dataset_tokens_per_second": str(9000.0 + batch)}
    for batch in (4, 8, 16, 32)
]
BAD = SFTTRAINER_ROW | {"gpu_model": "banana"}


def _import(tmp_path, *rows, extra=()):
    table = write_csv(tmp_path / "runs.csv", rows)
    path = tmp_path / "k.parquet"
    return run(knowledge_app, ["import", str(table), "--to", str(path), *extra]), path


def test_import_writes_runs_and_lists_refused_rows(tmp_path):
    result, path = _import(tmp_path, *GOOD, BAD)
    assert result.exit_code == 0
    assert len(read_knowledge(path)) == 4
    assert "row 6: field gpu_model: expected a known GPU, found 'banana'" in result.stdout


def test_import_as_json_counts_everything(tmp_path):
    result, path = _import(tmp_path, *GOOD, BAD, GOOD[0], extra=["--json", "--stack", "ours"])
    summary = json.loads(result.stdout)
    (file,) = summary["files"]
    assert (summary["path"], summary["runs"], summary["new_runs"]) == (str(path), 4, 4)
    assert (file["format"], file["stacks"], file["rows"]) == ("sfttrainer", ["ours"], 6)
    assert (file["duplicates"], file["refused"][0]["field"]) == (1, "gpu_model")


def test_importing_the_same_again_changes_nothing(tmp_path):
    _, path = _import(tmp_path, *GOOD)
    before = path.read_bytes()
    result, _ = _import(tmp_path, *GOOD, extra=["--json"])
    assert json.loads(result.stdout)["new_runs"] == 0
    assert path.read_bytes() == before


def test_importing_another_table_adds_its_runs(tmp_path):
    _import(tmp_path, *GOOD)
    _, path = _import(tmp_path, FMS_ROW)
    assert {one.stack for one in read_knowledge(path)} == {"sfttrainer", "fms-acceleration"}


def test_import_of_nothing_usable_exits_2_and_writes_nothing(tmp_path):
    result, path = _import(tmp_path, BAD)
    assert result.exit_code == 2
    assert "nothing imported" in result.stdout
    assert not path.exists()


@pytest.mark.parametrize("extra", [["--format", "banana"], ["--format", "nemo"]])
def test_import_with_a_format_that_does_not_fit_exits_2(tmp_path, extra):
    result, _ = _import(tmp_path, *GOOD, extra=extra)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "spotline: " in result.stderr


def test_import_to_a_place_that_is_not_there_exits_2(tmp_path):
    table = write_csv(tmp_path / "runs.csv", GOOD)
    result = run(knowledge_app, ["import", str(table), "--to", str(tmp_path / "no" / "k.parquet")])
    assert result.exit_code == 2
    assert "expected a place to write to" in result.stderr


def test_describe_says_stacks_models_and_ranges(tmp_path):
    failed = SFTTRAINER_ROW | {"is_valid": "0", "dataset_tokens_per_second": ""}
    _, path = _import(tmp_path, *GOOD, failed)
    described = json.loads(run(knowledge_app, ["describe", str(path), "--json"]).stdout)
    assert described["outcomes"] == {
        "succeeded": 4,
        "rejected": 0,
        "out_of_memory": 0,
        "failed": 1,
    }
    assert described["models"] == {"granite-3.1-8b": 5}
    assert described["ranges"]["batch_size"] == [4, 32]
    assert list(described["stacks"]) == ["sfttrainer"]

    result = run(knowledge_app, ["describe", str(path)])
    assert result.exit_code == 0
    assert "granite-3.1-8b" in result.stdout


def test_describe_of_something_else_exits_2(tmp_path):
    result = run(knowledge_app, ["describe", str(write_csv(tmp_path / "runs.csv", GOOD))])
    assert result.exit_code == 2
    assert "spotline knowledge import" in result.stderr


PREDICT = ["predict", "--model", "meta-llama/Llama-3.1-8B", "--gpu", "A100-SXM4-80GB"]


def test_predict_without_any_history_answers_from_first_principles():
    result = run(knowledge_app, [*PREDICT, "--gpus", "4", "--batch", "16", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    (answer,) = found["predictions"]
    assert answer["source_id"] == "analytic"
    assert 0 < answer["low_tokens_per_s"] < answer["tokens_per_s"] < answer["high_tokens_per_s"]
    assert (found["configuration"]["model_name"], found["memory"]["fits"]) == ("llama-3.1-8b", True)


def test_predict_says_when_memory_does_not_suffice():
    result = run(knowledge_app, ["predict", "--model", "llama-2-70b", "--gpu", "t4"])
    assert result.exit_code == 0
    assert "does not fit" in result.stdout


def test_predict_refuses_a_broken_rule_with_exit_1():
    result = run(knowledge_app, [*PREDICT, "--gpus", "4", "--batch", "6"])
    assert result.exit_code == 1
    assert "batch_size must be a multiple of gpus (4), was 6" in result.stderr

    as_json = run(knowledge_app, [*PREDICT, "--gpus", "4", "--batch", "6", "--json"])
    assert json.loads(as_json.stdout)["broken_rules"][0]["field"] == "batch_size"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["predict", "--model", "banana", "--gpu", "t4"], "--model"),
        (["predict", "--model", "llama-2-7b", "--gpu", "banana"], "--gpu"),
        ([*PREDICT, "--method", "prompt"], "--method"),
        ([*PREDICT, "--precision", "int3"], "precision"),
        ([*PREDICT, "--option", "banana"], "--option"),
        ([*PREDICT, "--option", "a=1", "--option", "a=2"], "options"),
        ([*PREDICT, "--source", "oracle"], "--source"),
        ([*PREDICT, "--gpus", "0"], "--gpus"),
        (["evaluate", "absent.parquet"], "absent.parquet"),
    ],
)
def test_bad_input_exits_2_and_names_the_option(arguments, problem):
    result = run(knowledge_app, arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_model_nobody_knows_is_predicted_from_its_size():
    arguments = ["predict", "--model", "ours", "--gpu", "h100", "--parameters", "3000000000"]
    assert run(knowledge_app, arguments).exit_code == 0


def test_predict_with_history_asks_the_sources_named(tmp_path):
    _, path = _import(tmp_path, *GOOD)
    arguments = ["predict", str(path), "--model", "granite-3.1-8b", "--gpu", "a100-80gb"]
    result = run(
        knowledge_app,
        [*arguments, "--gpus", "4", "--batch", "8", "--source", "analytic", "--json"],
    )
    assert [one["source_id"] for one in json.loads(result.stdout)["predictions"]] == ["analytic"]


def test_predict_for_a_stack_without_runs_exits_2(tmp_path):
    _, path = _import(tmp_path, *GOOD)
    arguments = ["predict", str(path), "--model", "granite-3.1-8b", "--gpu", "a100-80gb"]
    result = run(knowledge_app, [*arguments, "--stack", "banana"])
    assert result.exit_code == 2
    assert "sfttrainer" in result.stderr


def test_predict_answers_for_the_stack_with_most_runs(tmp_path):
    _import(tmp_path, FMS_ROW | {"model_name_or_path": "granite-3.1-8b"})
    _, path = _import(tmp_path, *GOOD)
    arguments = ["predict", str(path), "--model", "granite-3.1-8b", "--gpu", "a100-80gb"]
    arguments += ["--gpus", "4", "--batch", "8", "--seq", "4096", "--source", "history"]

    def rate(*extra):
        result = run(knowledge_app, [*arguments, "--json", *extra])
        return json.loads(result.stdout)["predictions"][0].get("tokens_per_s")

    assert rate() == rate("--stack", "sfttrainer") != rate("--stack", "fms-acceleration")


def test_predict_refuses_experts_over_gpus_they_do_not_divide():
    result = run(knowledge_app, [*PREDICT, "--gpus", "4", "--expert-parallel", "3"])
    assert result.exit_code == 1
    assert "expert_parallel must divide gpus (4), was 3" in result.stderr


class _Report:
    def as_json(self):
        return {"throughput": {"random_split": {"history": {"mdape_percent": 4.25}}}}


@pytest.fixture
def evaluation(monkeypatch):
    """Stands in for the evaluation, which fits every source many times; records its arguments."""
    asked = {}

    def evaluate_sources(runs, **given):
        asked.update(given, runs=len(runs))
        return _Report()

    module = types.ModuleType("spotline.bench.knowledge.evaluation")
    module.evaluate_sources = evaluate_sources
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def test_evaluate_reports_what_was_found_for_the_sources_named(tmp_path, evaluation):
    _, path = _import(tmp_path, *GOOD)
    arguments = ["evaluate", str(path), "--source", "history", "--seed", "7", "--repeats", "2"]

    result = run(knowledge_app, arguments)
    as_json = run(knowledge_app, [*arguments, "--json"])

    assert evaluation == {"runs": 4, "sources": ("history",), "repeats": 2, "seed": 7}
    assert "throughput / random_split / history: mdape_percent 4.25" in result.stdout
    assert json.loads(as_json.stdout) == _Report().as_json()
