"""Ray Train on Spotline: a notice drains the node, and Ray tells its workers.

Ray Train's own `get_preemption_info` answers in all workers once a node of theirs drains. A source
runs beside `ray start` on every instance, and drains the node when a notice names the instance.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

import ray
from ray.core.generated import autoscaler_pb2

from spotline.trainer.events import warn
from spotline.trainer.session import TrainingSession

# What `ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION` sends; Ray has no other way to say it.
_REASON = "DRAIN_NODE_REASON_PREEMPTION"
_THREAD = "spotline-preemption"


class PreemptionSource:
    """Drains this instance's Ray node when it is taken back. A drain cannot be withdrawn.

    As a context it looks by itself, in a thread, until the context ends.

    Parameters
    ----------
    session
        Of this instance.
    address
        HOST:PORT of Ray's control store; None: that of the cluster that this process joined.
    node_id
        Hexadecimal; None: the node of this process.
    every_s
        Seconds between two looks, > 0.

    Raises
    ------
    RuntimeError
        This process has not joined a cluster, and address or node were not given.
    """

    def __init__(
        self,
        session: TrainingSession,
        *,
        address: str | None = None,
        node_id: str | None = None,
        every_s: float = 1.0,
    ) -> None:
        if every_s <= 0:
            raise ValueError(f"every_s must be > 0, was {every_s}")
        if address is None or node_id is None:
            if not ray.is_initialized():
                raise RuntimeError("call ray.init first, or give address and node_id")
            context = ray.get_runtime_context()
            address = address or context.gcs_address
            node_id = node_id or context.get_node_id()
        self._session = session
        self._address = address
        self._node_id = node_id
        self._every_s = every_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self.drained = False

    def look(self) -> bool:
        """Drain the node if a notice names this instance; True: it drains by now.

        Raises
        ------
        RuntimeError
            Ray does not accept the drain; its words are in the message.
        """
        notice = self._session.get_preemption_info()
        if self.drained or notice is None or not self._is_meant(notice.instance_ids):
            return self.drained
        accepted, why_not = ray._raylet.GcsClient(address=self._address).drain_node(
            self._node_id,
            autoscaler_pb2.DrainNodeReason.Value(_REASON),
            f"Spotline: {notice.kind}, notices {', '.join(notice.notice_ids)}",
            int(notice.deadline_s * 1000),
        )
        if not accepted:
            raise RuntimeError(f"Ray does not drain node {self._node_id}: {why_not}")
        self.drained = True
        return True

    def _is_meant(self, instance_ids: tuple[str, ...]) -> bool:
        place = self._session.allocation
        mine = os.environ.get("SPOTLINE_INSTANCE_ID") or (
            place.instance_ids[place.node_rank] if place.instance_ids else ""
        )
        return not instance_ids or not mine or mine in instance_ids

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow, name=_THREAD, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                if self.look():
                    return
            except Exception as error:  # noqa: BLE001 - raised where the context ends
                warn(f"preemption source: {error}")
                self._failed = error
                return
            self._over.wait(self._every_s)
