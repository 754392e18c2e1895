"""What is started on an instance for one generation: commands and their environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spotline.adapters.grpc.agent.messages import AgentTask, Order, Peer
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.run import Launcher

_PREFIX = "SPOTLINE_"


class MembersUnreachable(SpotlineError):
    """The first member of a generation did not say where others reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """One process to be started; `rank` is its own in the whole program.

    A launcher starts further ranks itself.
    """

    rank: int
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where a program runs on an instance.

    Parameters
    ----------
    run_dir
        Folder of what agent and program say to each other.
    own_environment
        Of the agent; its `SPOTLINE_*` variables are not passed on.
    secrets
        Values by name.
    """

    instance_id: str
    work_dir: Path
    run_dir: Path
    notice_file: Path
    own_environment: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    market_s_per_s: float = 1.0


def checkpoint_uri(task: AgentTask) -> str:
    """Where the checkpoints of a job lie, in `checkpoints/` below; empty where it states none."""
    location = task.checkpoint_location.rstrip("/")
    return f"{location}/{task.job_id}" if location else ""


def rank_starts(task: AgentTask, order: Order, place: RankPlace, port: int) -> list[RankStart]:
    """What to start for a generation that this instance is a member of.

    Parameters
    ----------
    port
        At which the ranks find each other, on the first member.

    Raises
    ------
    MembersUnreachable
        There are several members, and the first said no host.
    """
    peers = sorted(order.peers, key=lambda peer: peer.node_rank)
    node_rank = order.node_rank(place.instance_id)
    if node_rank is None:
        raise ValueError(f"members must have {place.instance_id}, were {order.peers}")
    host = _master(peers)
    common = {
        **common_environment(task, order.generation, place),
        "SPOTLINE_NNODES": str(len(peers)),
        "SPOTLINE_NODE_RANK": str(node_rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }
    ranks, run = task.run.ranks, task.run
    if run.launcher is Launcher.TORCHRUN:
        words = (
            *("python", "-m", "torch.distributed.run"),
            f"--nnodes={len(peers)}",
            f"--node-rank={node_rank}",
            f"--nproc-per-node={ranks}",
            f"--master-addr={host}",
            f"--master-port={port}",
            *script_words(run.command),
        )
        return [RankStart(rank=node_rank * ranks, words=words, environment=common)]
    return [
        RankStart(
            rank=node_rank * ranks + local,
            words=run.command,
            environment={
                **common,
                "RANK": str(node_rank * ranks + local),
                "WORLD_SIZE": str(len(peers) * ranks),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(ranks),
            },
        )
        for local in range(ranks)
    ]


def script_words(command: Sequence[str]) -> Sequence[str]:
    """What torchrun is to run: the command without its own name or Python's, which it adds."""
    named = command[0].rpartition("/")[2] in ("torchrun", "python", "python3")
    return command[1:] if named else command


def _master(peers: Sequence[Peer]) -> str:
    if len(peers) == 1:
        return "127.0.0.1"
    if not peers[0].host:
        raise MembersUnreachable(
            f"instance {peers[0].instance_id} is the first of {len(peers)} members and said no "
            "host: set SPOTLINE_HOST in its environment"
        )
    return peers[0].host


def common_environment(task: AgentTask, generation: int, place: RankPlace) -> dict[str, str]:
    """The environment of setup and ranks alike; Spotline's own variables win."""
    passed_on = {
        name: value for name, value in place.own_environment.items() if not name.startswith(_PREFIX)
    }
    interval = {}
    if task.checkpoint_interval_s:
        interval_s = task.checkpoint_interval_s / place.market_s_per_s
        interval["SPOTLINE_CHECKPOINT_INTERVAL_S"] = repr(interval_s)
    return {
        **passed_on,
        **{variable.name: variable.value for variable in task.run.environment},
        **place.secrets,
        "SPOTLINE_JOB_ID": task.job_id,
        "SPOTLINE_INSTANCE_ID": place.instance_id,
        "SPOTLINE_GENERATION": str(generation),
        "SPOTLINE_RUN_DIR": str(place.run_dir),
        "SPOTLINE_NOTICE_FILE": str(place.notice_file),
        "SPOTLINE_CHECKPOINT_URI": checkpoint_uri(task),
        **interval,
        "SPOTLINE_MARKET_SPEED": repr(place.market_s_per_s),
        "SPOTLINE_GRACE_S": str(task.run.seconds_of_grace),
        # What a program prints is read as it runs.
        "PYTHONUNBUFFERED": "1",
    }
