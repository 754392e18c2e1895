"""Tables become measured runs, or their rows are refused with the reason."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spotline.adapters.knowledge.mappings.registry import mapping_names
from spotline.adapters.knowledge.reader import read_file
from spotline.contracts.errors import ContractError
from spotline.domain.configuration.configuration import Method, RunOutcome
from tests.samples.measured_runs import (
    FMS_MIXTURE_ROW,
    FMS_ROW,
    LITGPT_2023_ROW,
    LITGPT_HUB_ROW,
    MS_SWIFT_ROW,
    NEMO_ROW,
    SFTTRAINER_ROW,
    VECTORLM_ROW,
    write_csv,
)


def _read(tmp_path, *rows, **given):
    return read_file(write_csv(tmp_path / "runs.csv", rows), **given)


def _only_run(tmp_path, row):
    imported = _read(tmp_path, row)
    assert imported.refused == ()
    (run,) = imported.runs
    return run


def _only_refusal(tmp_path, row):
    imported = _read(tmp_path, row)
    assert imported.runs == ()
    (refused,) = imported.refused
    assert refused.row == 2
    return refused


# --- sfttrainer ---------------------------------------------------------------------------------


def test_a_run_of_the_run_database_is_read_under_canonical_names(tmp_path):
    run = _only_run(tmp_path, SFTTRAINER_ROW)
    of = run.configuration
    assert (of.model_name, of.gpu_model, of.method) == ("granite-3.1-8b", "a100-80gb", Method.FULL)
    assert (of.gpus, of.nodes, of.tokens_per_sample, of.batch_size) == (4, 1, 4096, 8)
    assert (run.stack, run.outcome) == ("sfttrainer", RunOutcome.SUCCEEDED)
    assert (run.tokens_per_s, run.runtime_s) == (10000.5, 120.0)


PUBLIC_ROW = SFTTRAINER_ROW | {
    "identifier": "model_name.granite-number_gpus.16-fsdp_sharding_strategy.NO_SHARD",
    "experiment_id": "SFTTrainer.full-v1-fms_hf_tuning_version.2.7.1-stop_after_seconds.600",
    "generatorid": "grid",
    "torch_dtype": "bfloat16",
    "enable_roce": "0.0",
    "fast_kernels": "[True; True; True]",
    "fast_moe": "4.0",
    "number_nodes": "2",
    "number_gpus": "16",
    "batch_size": "16",
    "gpu_memory_utilization_peak": "50.0",
    "dataset_tokens_per_second_per_gpu": "625.03",
    "weather": "rain",
}


def test_a_row_of_the_public_data_set_keeps_every_setting(tmp_path):
    imported = _read(tmp_path, PUBLIC_ROW)
    (run,) = imported.runs
    of = run.configuration
    assert of.expert_parallel == 4
    assert {one.name: one.value for one in of.options} == {
        "enable_roce": "false",
        "fast_kernels": "true",
        "fast_moe": "true",
        "placement": "replicated",
        "software_version": "2.7.1",
        "stop_after_s": "600",
    }
    assert run.peak_memory_gb == pytest.approx(85.899 / 2, abs=0.001)
    assert imported.unknown_columns == ("weather",)


def test_settings_that_are_off_leave_no_option(tmp_path):
    row = PUBLIC_ROW | {
        "identifier": "",
        "experiment_id": "",
        "fast_kernels": "nan",
        "fast_moe": "0.0",
        "enable_roce": "",
    }
    of = _only_run(tmp_path, row).configuration
    assert (of.options, of.expert_parallel) == ((), 1)


def _failed(**cells):
    return SFTTRAINER_ROW | {"is_valid": "0", "dataset_tokens_per_second": ""} | cells


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (_failed(batch_size="6"), RunOutcome.REJECTED),
        (_failed(), RunOutcome.FAILED),
        (_failed(dataset_tokens_per_second="nan"), RunOutcome.FAILED),
        (_failed(gpu_memory_utilization_peak="99.5"), RunOutcome.OUT_OF_MEMORY),
        (_failed(gpu_memory_utilization_peak="40"), RunOutcome.FAILED),
        (_failed(error="CUDA out of memory"), RunOutcome.OUT_OF_MEMORY),
        (_failed(status="rejected"), RunOutcome.REJECTED),
    ],
)
def test_a_run_that_is_not_valid_ended_as_its_columns_tell(tmp_path, row, outcome):
    run = _only_run(tmp_path, row)
    assert (run.outcome, run.tokens_per_s) == (outcome, 0.0)


@pytest.mark.parametrize(
    ("change", "field", "expected", "found"),
    [
        ({"model_name": "banana"}, "model_name", "known model", "banana"),
        ({"gpu_model": "banana"}, "gpu_model", "known GPU", "banana"),
        ({"method": "prompt"}, "method", "lora", "prompt"),
        ({"number_gpus": "0"}, "number_gpus", ">= 1", "0"),
        ({"number_gpus": "two"}, "number_gpus", "whole number", "two"),
        ({"number_gpus": "2.5"}, "number_gpus", "whole number", "2.5"),
        ({"number_gpus": ""}, "number_gpus", "whole number", "nothing"),
        ({"tokens_per_sample": "-4"}, "tokens_per_sample", ">= 1", "-4"),
        ({"number_nodes": "8"}, "number_gpus", "at least number_nodes (8)", "4"),
        ({"batch_size": "6"}, "batch_size", "can start", "6"),
        ({"number_nodes": "3"}, "number_gpus", "can start", "4"),
        ({"dataset_tokens_per_second": "-1"}, "dataset_tokens_per_second", ">= 0", "-1"),
        ({"dataset_tokens_per_second": "nan"}, "dataset_tokens_per_second", "finite", "nan"),
        ({"dataset_tokens_per_second": "inf"}, "dataset_tokens_per_second", "finite", "inf"),
        ({"dataset_tokens_per_second": "0"}, "dataset_tokens_per_second", "> 0", "0"),
        ({"dataset_tokens_per_second": "OOM"}, "dataset_tokens_per_second", "number", "OOM"),
        ({"is_valid": "0"}, "dataset_tokens_per_second", "is_valid is 0", "10000.5"),
        ({"is_valid": "maybe"}, "is_valid", "1 or 0", "maybe"),
        ({"train_runtime": "-5"}, "train_runtime", ">= 0", "-5"),
        ({"torch_dtype": "int3"}, "torch_dtype", "bfloat16", "int3"),
        ({"gpu_memory_utilization_peak": "700"}, "gpu_memory_utilization_peak", "0..100", "700"),
        (
            {"dataset_tokens_per_second_per_gpu": "10000.5"},
            "dataset_tokens_per_second_per_gpu",
            "/ number_gpus",
            "10000.5",
        ),
    ],
)
def test_contradictions_and_nonsense_are_refused_with_field_and_reason(
    tmp_path, change, field, expected, found
):
    refused = _only_refusal(tmp_path, SFTTRAINER_ROW | change)
    assert refused.field == field
    assert expected in refused.expected
    assert found in refused.found


# --- the other formats --------------------------------------------------------------------------


def test_fms_rates_are_per_gpu_and_lengths_are_derived(tmp_path):
    run = _only_run(tmp_path, FMS_ROW)
    of = run.configuration
    assert run.tokens_per_s == pytest.approx(2 * 2777.18)
    assert (of.method, of.tokens_per_sample, of.batch_size) == (Method.FULL, 4096, 4)
    assert run.peak_memory_gb == pytest.approx(44382 * 2**20 / 1e9)
    assert run.stack == "fms-acceleration"


@pytest.mark.parametrize(
    ("framework", "peft", "method"),
    [
        ("none", "lora", Method.LORA),
        ("foak-fast-kernels", "", Method.FULL),
        ("baseline-peft-bnb", "lora", Method.QLORA),
        ("accelerated-peft-autogptq-foak", "lora", Method.GPTQ_LORA),
    ],
)
def test_fms_methods_are_told_by_framework_and_adapter(tmp_path, framework, peft, method):
    row = FMS_ROW | {"framework_config": framework, "peft_method": peft, "r": "16" if peft else ""}
    of = _only_run(tmp_path, row).configuration
    assert of.method is method
    assert of.option("fast_kernels") == ("true" if "foak" in framework else "")
    assert of.option("lora_rank") == ("16" if peft else "")


@pytest.mark.parametrize(
    ("memory_mib", "outcome"), [("81166", RunOutcome.OUT_OF_MEMORY), ("30000", RunOutcome.FAILED)]
)
def test_fms_blank_rate_is_out_of_memory_where_memory_was_nearly_full(
    tmp_path, memory_mib, outcome
):
    row = FMS_ROW | {
        "train_tokens_per_second": "",
        "train_samples_per_second": "",
        "mem_nvidia_mem_reserved": memory_mib,
    }
    run = _only_run(tmp_path, row)
    assert (run.outcome, run.configuration.tokens_per_sample) == (outcome, 4096)


def test_fms_powerlm_is_a_stack_of_its_own(tmp_path):
    run = _only_run(tmp_path, FMS_ROW | {"model_name_or_path": "ibm/PowerLM-3b"})
    assert run.stack == "fms-acceleration-granite"


def test_fms_mixture_rows_say_their_expert_parallelism_and_accumulation(tmp_path):
    run = _only_run(tmp_path, FMS_MIXTURE_ROW)
    of = run.configuration
    assert (of.expert_parallel, of.batch_size, of.tokens_per_sample) == (2, 128, 192)
    assert of.option("gradient_accumulation_steps") == "4"
    assert of.option("padding_free") == "true"
    assert run.stack == "fms-acceleration-moe"


def test_litgpt_minutes_become_nominal_tokens_per_second(tmp_path):
    run = _only_run(tmp_path, LITGPT_2023_ROW)
    assert run.tokens_per_s == pytest.approx(1000 * 2 * 512 / 120)
    assert run.configuration.method is Method.QLORA
    assert run.configuration.model_name == "stablelm-alpha-3b"


def test_litgpt_unsupported_run_was_rejected(tmp_path):
    row = LITGPT_2023_ROW | {"status": "not_supported", "minutes_per_1k_iterations": ""}
    assert _only_run(tmp_path, row).outcome is RunOutcome.REJECTED


def test_litgpt_rate_of_a_run_out_of_memory_is_a_contradiction(tmp_path):
    refused = _only_refusal(tmp_path, LITGPT_2023_ROW | {"status": "oom"})
    assert refused.field == "minutes_per_1k_iterations"


def test_litgpt_hub_counts_its_epochs_and_refuses_four_gpus(tmp_path):
    run = _only_run(tmp_path, LITGPT_HUB_ROW)
    assert run.tokens_per_s == pytest.approx(3 * 2000 * 512 / 600)
    refused = _only_refusal(tmp_path, LITGPT_HUB_ROW | {"number_gpus": "4"})
    assert "scaling" in refused.expected


def test_ms_swift_takes_the_fuller_of_two_gpus_and_all_options(tmp_path):
    run = _only_run(tmp_path, MS_SWIFT_ROW)
    of = run.configuration
    assert run.peak_memory_gb == pytest.approx(75 * 2**30 / 1e9)
    assert run.tokens_per_s == pytest.approx(0.5 * 2048)
    assert of.batch_size == 16
    assert {one.name: one.value for one in of.options} == {
        "flash_attention": "true",
        "gradient_accumulation_steps": "16",
        "gradient_checkpointing": "false",
        "lora_matrices": "7",
        "lora_rank": "8",
        "placement": "split",
    }


@pytest.mark.parametrize("memory", ["70+75+3", "70+much", "nan+1"])
def test_ms_swift_memory_that_cannot_be_read_is_refused(tmp_path, memory):
    refused = _only_refusal(tmp_path, MS_SWIFT_ROW | {"gpu_memory_gib": memory})
    assert refused.field == "gpu_memory_gib"


def test_ms_swift_full_tuning_of_quantised_weights_is_refused(tmp_path):
    row = MS_SWIFT_ROW | {"method": "full", "precision_or_quant": "int4-bnb"}
    assert _only_refusal(tmp_path, row).field == "method"


def test_nemo_rates_are_per_gpu_and_groups_are_told(tmp_path):
    run = _only_run(tmp_path, NEMO_ROW)
    of = run.configuration
    assert run.tokens_per_s == 1800 * 16
    assert (of.nodes, of.precision, of.option("model_parallel")) == (2, "fp8", "8")
    assert of.option("gradient_accumulation_steps") == "16"


def test_nemo_automodel_is_a_stack_of_its_own(tmp_path):
    run = _only_run(tmp_path, NEMO_ROW | {"source": "NVIDIA-NeMo/Automodel"})
    assert run.stack == "nemo-automodel"


def test_nemo_groups_that_do_not_divide_the_gpus_are_refused(tmp_path):
    assert _only_refusal(tmp_path, NEMO_ROW | {"tp": "3"}).field == "tp"


def test_vectorlm_samples_have_the_longest_context(tmp_path):
    assert _only_run(tmp_path, VECTORLM_ROW).configuration.tokens_per_sample == 4096
    refused = _only_refusal(tmp_path, VECTORLM_ROW | {"model": "newcomer-7b"})
    assert refused.field == "model"


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (SFTTRAINER_ROW, "sfttrainer"),
        (FMS_ROW, "fms-acceleration"),
        (FMS_MIXTURE_ROW, "fms-acceleration-moe"),
        (LITGPT_2023_ROW, "litgpt-2023"),
        (LITGPT_HUB_ROW, "litgpt-hub"),
        (MS_SWIFT_ROW, "ms-swift"),
        (NEMO_ROW, "nemo"),
        (VECTORLM_ROW, "vectorlm"),
    ],
)
def test_every_format_is_told_by_its_columns(tmp_path, row, name):
    assert _read(tmp_path, row).format_name == name
    assert name in mapping_names()


# --- files --------------------------------------------------------------------------------------


def test_good_rows_are_kept_beside_refused_and_repeated_ones(tmp_path):
    bad = SFTTRAINER_ROW | {"number_gpus": "many"}
    imported = _read(tmp_path, SFTTRAINER_ROW, bad, SFTTRAINER_ROW)
    assert (imported.rows, len(imported.runs), imported.duplicates) == (3, 1, 1)
    assert [refused.row for refused in imported.refused] == [3]


def test_a_row_cut_short_is_refused(tmp_path):
    path = write_csv(tmp_path / "runs.csv", [SFTTRAINER_ROW, SFTTRAINER_ROW])
    path.write_text(path.read_text()[:-20])
    imported = read_file(path)
    assert len(imported.runs) == 1
    assert imported.refused[0].expected == "10 fields"


def test_gzip_and_parquet_read_as_csv_does(tmp_path):
    path = write_csv(tmp_path / "runs.csv", [SFTTRAINER_ROW])
    (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    numbers = {name: [float(SFTTRAINER_ROW[name])] for name in ("number_gpus", "is_valid")}
    columns = {name: [value] for name, value in SFTTRAINER_ROW.items()} | numbers
    pq.write_table(pa.table(columns), tmp_path / "runs.parquet")

    from_csv = read_file(path).runs
    assert from_csv
    assert read_file(tmp_path / "runs.csv.gz").runs == from_csv
    assert read_file(tmp_path / "runs.parquet").runs == from_csv


def test_nulls_in_parquet_are_empty_cells(tmp_path):
    columns = {name: [value] for name, value in SFTTRAINER_ROW.items()}
    columns |= {"dataset_tokens_per_second": [None], "is_valid": [0]}
    pq.write_table(pa.table(columns), tmp_path / "runs.parquet")
    assert read_file(tmp_path / "runs.parquet").runs[0].outcome is RunOutcome.FAILED


def test_stack_can_be_named(tmp_path):
    assert _read(tmp_path, SFTTRAINER_ROW, stack="ours").stacks == ("ours",)
    assert _read(tmp_path, NEMO_ROW, stack="ours").stacks == ("ours",)


def test_a_format_that_does_not_fit_says_what_is_missing(tmp_path):
    with pytest.raises(ContractError, match="tokens_per_sec_per_gpu"):
        _read(tmp_path, SFTTRAINER_ROW, format_name="nemo")


def test_unknown_format_and_unknown_columns_are_refused(tmp_path):
    with pytest.raises(ContractError, match=r"--format.*sfttrainer"):
        _read(tmp_path, SFTTRAINER_ROW, format_name="banana")
    with pytest.raises(ContractError, match="known format"):
        _read(tmp_path, {"a": "1", "b": "2"})


def test_a_column_named_twice_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("model_name,model_name\na,b\n")
    with pytest.raises(ContractError, match="twice"):
        read_file(path)


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"\xff\xfe\x00"])
def test_files_that_are_no_tables_are_refused(tmp_path, content):
    path = tmp_path / "runs"
    path.write_bytes(content)
    with pytest.raises(ContractError, match="runs"):
        read_file(path)


def test_absent_file_is_refused(tmp_path):
    with pytest.raises(ContractError, match="found none"):
        read_file(tmp_path / "absent.csv")
