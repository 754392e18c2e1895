"""Ranks agree on integers: the largest that any of them says.

All ranks must come to it equally often. With torch.distributed an agreement is one all-reduce of a
few integers: some tens of microseconds on one host, a network round trip between hosts. `agree_every`
spreads it over steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

Agreement = Callable[[Sequence[int]], Sequence[int]]
"""Takes this rank's integers (each below 2^53), gives the largest of each place over the ranks."""


class TorchAgreement:
    """Over torch.distributed's default group; alone where the program does not use it."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._group: Any = None

    def __call__(self, values: Sequence[int]) -> Sequence[int]:
        """Agree; with a world size of 1 that is what this rank says.

        Raises
        ------
        RuntimeError
            There are several ranks, and no process group that connects them.
        """
        # A program that does not import torch has no process group, and need not wait for one.
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if (
            distributed is None
            or not distributed.is_available()
            or not distributed.is_initialized()
        ):
            if self._world_size == 1:
                return values
            raise RuntimeError(
                f"{self._world_size} ranks must agree, and torch.distributed is not initialised: "
                "call init_process_group first, or attach(agreement=...) with a function of yours"
            )
        if distributed.get_world_size() == 1:
            return values
        tensor = torch.tensor(list(values), dtype=torch.int64)  # type: ignore[union-attr]
        if distributed.get_backend() == "nccl":
            tensor = tensor.to(torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))  # type: ignore[union-attr]
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return [int(value) for value in tensor.tolist()]
