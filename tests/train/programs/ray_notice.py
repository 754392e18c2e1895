"""A cluster of one node that is taken back, and Ray Train's own watch over its nodes."""

import json
import os
import sys
import time
from pathlib import Path

import ray
from ray.train.v2._internal.execution.preemption import PreemptionWatcher

from spotline.trainer import attach
from spotline.trainer.ray import PreemptionSource

RUN = Path(os.environ["SPOTLINE_RUN_DIR"])


@ray.remote(num_cpus=1)
class Worker:
    """Keeps its node busy: an idle one that drains is gone at once."""

    def rank(self):
        return 0


def main():
    ray.init(
        "local",
        num_cpus=1,
        object_store_memory=80_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    worker = Worker.remote()
    assert ray.get(worker.rank.remote()) == 0
    node_id = ray.get_runtime_context().get_node_id()
    source = PreemptionSource(attach(), every_s=0.1)
    # What Ray Train starts beside its workers: ranks 0 and 1 are on this node.
    watcher = PreemptionWatcher({node_id: [0, 1]}, poll_interval_s=0.1)
    assert not source.look()
    with source:
        (RUN / "watching").touch()
        until = time.monotonic() + 120
        while (info := watcher.get_latest_preemption_info()) is None:
            if time.monotonic() > until:
                raise TimeoutError("Ray Train knows of no preemption after 120 s")
            time.sleep(0.05)
    assert source.drained
    said = {"deadline_ms": info.deadline_ms, "ranks": info.preempted_ranks}
    sys.stdout.write(f"said {json.dumps(said)}\n")
    sys.stdout.flush()
    ray.shutdown()


if __name__ == "__main__":
    main()
