"""Histories of four schedulers, and what is said of those that are wrong."""

from __future__ import annotations

import json

import pytest

from spotline.adapters.histories.reading import read_history
from spotline.contracts.errors import ContractError
from spotline.domain.assessment.lines import HistoryJob

SLURM = """JobID|JobName|User|Start|End|NNodes|AllocTRES|NodeList|State
21|train|ann|2026-10-10T10:00:00|2026-10-10T12:00:00|4|cpu=96,gres/gpu:a100=32,gres/gpu=32,node=4|gpu[08-10],odd1|PREEMPTED
21|train|ann|2026-10-10T13:00:00|2026-10-10T15:00:00|4|cpu=96,gres/gpu:a100=32,gres/gpu=32,node=4|gpu[08-11]|COMPLETED
21.0|step|ann|2026-10-10T13:00:00|2026-10-10T15:00:00|4|cpu=96|gpu[08-11]|COMPLETED
22_3|array|bob|2026-10-10T11:00:00|Unknown|1|cpu=1|odd2|RUNNING
"""
KUEUE = {
    "apiVersion": "v1",
    "items": [
        {
            "kind": "Workload",
            "metadata": {
                "name": "job-train-1a2b3",
                "namespace": "team-a",
                "uid": "8c6f",
                "creationTimestamp": "2026-10-10T08:00:00Z",
                "ownerReferences": [{"kind": "Job", "name": "train"}],
            },
            "spec": {
                "podSets": [
                    {
                        "name": "main",
                        "count": 4,
                        "template": {
                            "spec": {
                                "containers": [
                                    {"resources": {"requests": {"cpu": "8", "nvidia.com/gpu": "8"}}}
                                ]
                            }
                        },
                    }
                ]
            },
            "status": {
                "conditions": [
                    {
                        "type": "Admitted",
                        "status": "True",
                        "lastTransitionTime": "2026-10-10T10:00:00Z",
                    },
                    {
                        "type": "Finished",
                        "status": "True",
                        "lastTransitionTime": "2026-10-10T18:00:00Z",
                    },
                ],
                "schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]},
            },
        },
        {"kind": "Workload", "metadata": {"name": "waits", "namespace": "team-a"}, "status": {}},
    ],
}


def read(tmp_path, text):
    path = tmp_path / "history"
    path.write_text(text)
    return read_history(path)


def test_slurm_jobs_have_their_nodes_and_starts(tmp_path):
    first, second = read(tmp_path, SLURM)

    assert first == HistoryJob(
        job_id="21",
        begin_s=1_791_626_400,
        end_s=1_791_626_400 + 5 * 3600,
        owner="ann",
        names=("train",),
        nodes=("gpu08", "gpu09", "gpu10", "odd1", "gpu11"),
        instances=4,
        gpus=8,
        restarts=1,
    )
    assert (second.job_id, second.end_s, second.nodes, second.gpus) == ("22_3", None, ("odd2",), 0)


def test_kueue_workloads_that_were_admitted(tmp_path):
    (job,) = read(tmp_path, json.dumps(KUEUE))

    assert job == HistoryJob(
        job_id="team-a/train",
        begin_s=1_791_619_200,
        end_s=1_791_619_200 + 10 * 3600,
        owner="team-a",
        names=("job-train-1a2b3", "train", "8c6f"),
        gpus=8,
        restarts=2,
    )


def test_a_csv_of_jobs(tmp_path):
    (job,) = read(
        tmp_path,
        "job_id,begin,end,owner,instance_ids,gpus\nx,2026-10-10T10:00:00Z,,ann,i-1 i-2,8\n",
    )

    assert (job.nodes, job.gpus, job.end_s, job.owner) == (("i-1", "i-2"), 8, None, "ann")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected jobs of SkyPilot"),
        ("{}", "found JSON with neither items nor jobs"),
        ("[1]", "job 1, field job_id: expected an object with the job's number, found 1"),
        (
            '[{"job_id": 1, "start_at": "soon"}]',
            "job 1, field start_at: expected a decimal number such as 12.345, found 'soon'",
        ),
        (
            '[{"job_id": 1, "start_at": 9, "end_at": 8}]',
            "job 1, field end_at: expected a time not before start_at, found 8",
        ),
        ("JobID|Start\n1|2", "line 1: expected the columns JobID, Start, End, found"),
        ("JobID|Start|End\n1|noon|Unknown", "line 2, column Start: expected a time such as"),
        (
            "JobID|Start|End|NodeList\n1|2026-10-10T10:00:00|Unknown|a[1-99999999]",
            "line 2, column NodeList: expected names such as gpu[1-4], found",
        ),
        ("job_id,start\nx,1", "line 1: expected the columns job_id, begin, and of end"),
        ("job_id,begin,gpus\nx,2026-10-10T10:00:00Z,-1", "line 2, column gpus: expected a whole"),
        ("job_id,begin\nx", "line 2: expected as many cells as the header has, found"),
        ('{"items": [{"kind": "Pod", "metadata": {}}]}', "item 1, field kind: expected Workload"),
        ('{"items": []}', "expected jobs that ran, found none"),
    ],
)
def test_what_is_wrong_is_said_by_entry_and_field(tmp_path, text, said):
    with pytest.raises(ContractError) as wrong:
        read(tmp_path, text)

    assert said in str(wrong.value)
