from pathlib import Path

import pytest

from spotline.adapters.grpc.agent.messages import Order, OrderState, Peer
from spotline.agent.ranks import MembersUnreachable, RankPlace, checkpoint_uri, rank_starts
from spotline.domain.jobs.run import EnvironmentVariable, Launcher
from tests.fakes.agent_parts import task_of


def order_of(*hosts: str, generation: int = 3) -> Order:
    peers = tuple(
        Peer(instance_id=f"i-{rank}", node_rank=rank, host=host) for rank, host in enumerate(hosts)
    )
    return Order(job_id="job-1", generation=generation, state=OrderState.RUN, peers=peers)


def place_on(instance_id: str, **own) -> RankPlace:
    return RankPlace(
        instance_id=instance_id,
        work_dir=Path("/w"),
        run_dir=Path("/r"),
        notice_file=Path("/r/notice.json"),
        own_environment=own,
        secrets={"KEY": "secret"},
        market_s_per_s=60.0,
    )


def test_plain_ranks_count_over_all_members():
    starts = rank_starts(
        task_of(ranks_per_instance=2), order_of("10.0.0.1", "10.0.0.2"), place_on("i-1"), 5
    )

    assert [start.rank for start in starts] == [2, 3]
    assert [start.words for start in starts] == [("true",)] * 2
    first, second = (start.environment for start in starts)
    assert {name: first[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")} == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
    }
    assert (second["LOCAL_RANK"], second["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert first["MASTER_ADDR"] == "10.0.0.1"
    assert first["MASTER_PORT"] == "5"
    assert (first["SPOTLINE_NNODES"], first["SPOTLINE_NODE_RANK"]) == ("2", "1")


def test_a_single_member_meets_on_its_own_machine():
    (start,) = rank_starts(task_of(), order_of(""), place_on("i-0"), 4711)

    assert start.environment["MASTER_ADDR"] == "127.0.0.1"
    assert start.environment["MASTER_PORT"] == "4711"


def test_torchrun_meets_statically():
    task = task_of(
        command=("train.py", "--lr", "1e-4"), launcher=Launcher.TORCHRUN, ranks_per_instance=8
    )

    (start,) = rank_starts(task, order_of("a", "b"), place_on("i-1"), 5)

    assert start.rank == 8
    assert start.words == (
        *("python", "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1"),
        *("--nproc-per-node=8", "--master-addr=a", "--master-port=5"),
        *("train.py", "--lr", "1e-4"),
    )
    assert "RANK" not in start.environment


@pytest.mark.parametrize("named", ["torchrun", "python", "/usr/bin/python3"])
def test_torchrun_adds_its_name_and_pythons_itself(named):
    task = task_of(command=(named, "train.py"), launcher=Launcher.TORCHRUN)

    (start,) = rank_starts(task, order_of("a"), place_on("i-0"), 5)

    assert start.words[-2:] == ("--master-port=5", "train.py")


def test_what_is_spotlines_own_is_not_passed_on_and_cannot_be_changed():
    variables = (
        EnvironmentVariable(name="HOME", value="/job"),
        EnvironmentVariable(name="SPOTLINE_JOB_ID", value="other"),
    )
    place = place_on("i-0", HOME="/root", LANG="C", SPOTLINE_JOIN_TOKEN="t", SPOTLINE_SECRET_X="x")

    (start,) = rank_starts(
        task_of(environment=variables, location="s3://b/x/"), order_of("h"), place, 5
    )

    found = start.environment
    assert (found["HOME"], found["LANG"], found["KEY"]) == ("/job", "C", "secret")
    assert {name for name in found if name.startswith("SPOTLINE_")} == {
        "SPOTLINE_CHECKPOINT_URI",
        "SPOTLINE_GENERATION",
        "SPOTLINE_GRACE_S",
        "SPOTLINE_INSTANCE_ID",
        "SPOTLINE_JOB_ID",
        "SPOTLINE_MARKET_SPEED",
        "SPOTLINE_NNODES",
        "SPOTLINE_NODE_RANK",
        "SPOTLINE_NOTICE_FILE",
        "SPOTLINE_RUN_DIR",
    }
    assert found["SPOTLINE_JOB_ID"] == "job-1"
    assert found["SPOTLINE_CHECKPOINT_URI"] == "s3://b/x/job-1"
    assert (found["SPOTLINE_GRACE_S"], found["SPOTLINE_MARKET_SPEED"]) == ("30", "60.0")


def test_checkpoints_are_as_far_apart_in_wall_time_as_the_job_says_in_market_time():
    (start,) = rank_starts(task_of(interval_s=300), order_of("h"), place_on("i-0"), 5)

    assert start.environment["SPOTLINE_CHECKPOINT_INTERVAL_S"] == "5.0"


def test_without_a_location_there_is_no_checkpoint_uri():
    assert checkpoint_uri(task_of()) == ""


def test_a_first_member_without_a_host_is_named():
    with pytest.raises(MembersUnreachable, match="instance i-0 is the first of 2 members"):
        rank_starts(task_of(), order_of("", "b"), place_on("i-1"), 5)
