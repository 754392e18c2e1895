"""Every published table imports as counted by hand; skipped where the tables are absent."""

import os
from collections import Counter
from pathlib import Path

import pytest

from spotline.adapters.knowledge.reader import read_file
from spotline.domain.configuration.memory import gpu_memory
from spotline.domain.configuration.rules import broken_rules

DATA = Path(
    os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[5] / "shared" / "data")
)
TABLES = DATA / "llm-finetune-perf"

pytestmark = pytest.mark.skipif(
    not TABLES.is_dir(), reason=f"real data absent: no folder {TABLES}; set SPOTLINE_DATA"
)


@pytest.mark.parametrize(
    ("file", "outcomes", "refused", "duplicates", "stacks"),
    [
        ("coastline_run_database.csv", {"succeeded": 70}, 0, 0, ("sfttrainer",)),
        (
            "fms_accel_a100_80gb.csv",
            {"succeeded": 85, "out_of_memory": 39},
            0,
            0,
            ("fms-acceleration",),
        ),
        (
            "fms_accel_a100_80gb_granite.csv",
            {"succeeded": 28},
            0,
            0,
            ("fms-acceleration-granite",),
        ),
        ("fms_accel_a100_80gb_moe.csv", {"succeeded": 41}, 0, 0, ("fms-acceleration-moe",)),
        (
            "litgpt_a100_40gb_2023.csv",
            {"succeeded": 39, "out_of_memory": 8, "rejected": 4},
            0,
            0,
            ("litgpt-2023",),
        ),
        (
            "litgpt_a10g_config_hub.csv",
            {"succeeded": 25, "out_of_memory": 3},
            16,
            1,
            ("litgpt-hub",),
        ),
        ("ms_swift_a100_80gb.csv", {"succeeded": 88, "out_of_memory": 2}, 0, 3, ("ms-swift",)),
        ("nemo_h100_finetune.csv", {"succeeded": 7}, 0, 0, ("nemo", "nemo-automodel")),
        (
            "vectorlm_2024_matrix.csv",
            {"succeeded": 75, "out_of_memory": 35, "rejected": 10},
            0,
            0,
            ("vectorlm",),
        ),
    ],
)
def test_published_table_imports_as_counted(file, outcomes, refused, duplicates, stacks):
    imported = read_file(TABLES / file)
    assert Counter(run.outcome.value for run in imported.runs) == outcomes
    assert (len(imported.refused), imported.duplicates) == (refused, duplicates)
    assert imported.stacks == stacks
    assert imported.unknown_columns == ()
    assert imported.rows == len(imported.runs) + refused + duplicates
    assert not any(broken_rules(run.configuration) for run in imported.runs if run.ran)


def test_memory_verdict_is_right_for_nine_of_ten_runs_of_a_well_documented_stack():
    runs = read_file(TABLES / "fms_accel_a100_80gb.csv").runs
    right = [gpu_memory(run.configuration).fits is run.ran for run in runs]
    assert sum(right) / len(right) >= 0.9


def test_memory_estimate_is_near_what_the_driver_showed():
    runs = read_file(TABLES / "fms_accel_a100_80gb.csv").runs
    ratios = sorted(
        gpu_memory(run.configuration).total_gb / run.peak_memory_gb for run in runs if run.ran
    )
    assert 0.8 < ratios[len(ratios) // 2] < 1.2
