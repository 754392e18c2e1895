"""The files that an agent shares with the ranks of a program, written as ADR 0031 says."""

import json
import os
import threading


class AgentFiles:
    """The agent's side of a run folder."""

    def __init__(self, folder, *, job_id="job-1", generation=1, checkpoints=None):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.job_id = job_id
        self.generation = generation
        self.checkpoints = folder.parent / "store" / job_id if checkpoints is None else checkpoints

    def environ(self, *, rank=0, world_size=1, nnodes=1, **more):
        ranks = world_size // nnodes
        return {
            "SPOTLINE_JOB_ID": self.job_id,
            "SPOTLINE_GENERATION": str(self.generation),
            "SPOTLINE_NNODES": str(nnodes),
            "SPOTLINE_NODE_RANK": str(rank // ranks),
            "SPOTLINE_RUN_DIR": str(self.folder),
            "SPOTLINE_NOTICE_FILE": str(self.folder / "notice.json"),
            "SPOTLINE_CHECKPOINT_URI": str(self.checkpoints),
            "SPOTLINE_MARKET_SPEED": "1.0",
            "SPOTLINE_GRACE_S": "30",
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(rank % ranks),
            **{name: str(value) for name, value in more.items()},
        }

    def write(self, name, content):
        aside = self.folder / f".{name}"
        aside.write_text(json.dumps(content))
        aside.rename(self.folder / name)

    def allocate(self, *members, state="run", generation=None):
        self.write(
            "allocation.json",
            {
                "generation": self.generation if generation is None else generation,
                "members": list(members),
                "node_rank": 0,
                "instances": len(members),
                "state": state,
            },
        )

    def notice(self, *notices):
        self.write("notice.json", list(notices))

    def events(self, kind=None):
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if kind is None or event["kind"] == kind]


class AgreeingThreads:
    """Ranks as threads of this process, that agree on the largest of what each says."""

    def __init__(self, ranks):
        self._said = [None] * ranks
        self._barrier = threading.Barrier(ranks, timeout=60)
        self.counts = [0] * ranks

    def of(self, rank):
        def agree(values):
            self._said[rank] = list(values)
            self.counts[rank] += 1
            self._barrier.wait()
            agreed = [max(place) for place in zip(*self._said, strict=True)]
            self._barrier.wait()
            return agreed

        return agree


def run_ranks(ranks, work):
    """Run `work(rank)` in a thread for each rank, and return what each gave."""
    given, failed = [None] * ranks, []

    def run(rank):
        try:
            given[rank] = work(rank)
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return given


def python_environ(**more):
    """Environment in which another Python process finds this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(("src", ".")), **more}
