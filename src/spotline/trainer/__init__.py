"""For training programs: notices, checkpoints, progress (`docs/trainer.md`).

Imports the standard library alone; a program's environment needs nothing else of Spotline.
"""

from spotline.trainer.agreement import Agreement
from spotline.trainer.checkpoints import CheckpointUnusable, StoredCheckpoint
from spotline.trainer.elastic import DataOrder, StepBatches, accumulation_steps
from spotline.trainer.environment import EXIT_TO_RESUME, RankAllocation
from spotline.trainer.notices import PreemptionInfo
from spotline.trainer.saving import CheckpointInProgress
from spotline.trainer.session import TrainingSession, attach

__all__ = [
    "EXIT_TO_RESUME",
    "Agreement",
    "CheckpointInProgress",
    "CheckpointUnusable",
    "DataOrder",
    "PreemptionInfo",
    "RankAllocation",
    "StepBatches",
    "StoredCheckpoint",
    "TrainingSession",
    "accumulation_steps",
    "attach",
]
