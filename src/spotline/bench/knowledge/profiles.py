"""Sia's measured profiles as job classes: what an application does on every GPU type and placement.

The profiles give seconds per step; how much a sample is worth in a larger batch is RECONSTRUCTED,
since the artifact's gradient statistics are not in the data: the noise scale of an application is
the smallest batch that its users ask for on many GPUs (`batch_size` of the workload files), so a
sample there is worth about half of one in the smallest batch.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.bench.knowledge.cluster import JobClass, NodeGroup, RunOption

# The reference cluster: 6 nodes x 4 T4, 2 x 8 A100, 3 x 8 RTX 2080 Ti.
SIA_CLUSTER = (
    NodeGroup(gpu_type="t4", nodes=6, gpus_per_node=4),
    NodeGroup(gpu_type="a100", nodes=2, gpus_per_node=8),
    NodeGroup(gpu_type="rtx", nodes=3, gpus_per_node=8),
)
# `dgx-ext` holds what `dgx` does and larger batches.
_SUFFIX = {"t4": "aws", "a100": "dgx-ext", "rtx": "rtx"}
_LEARNED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Constants of an application.

    `initial_batch` is the usual one on one GPU (Pollux, OSDI'21, table 1), `largest_batch` the
    largest that the workload files ask for; `work_samples` is samples per epoch times epochs.
    """

    initial_batch: float
    largest_batch: float
    noise_scale: float
    work_samples: float


# Work: CIFAR-10 50,000 images x 100 epochs; SQuAD 88,000 features x 2; CMU-ARCTIC about 13,000
# utterances x 80; ImageNet 1.28 million x 90; VOC 2007+2012 16,551 images x 50. On one T4 that is
# about half an hour to an hour, a few hours, hours, a week, and most of a day: Sia's small,
# medium, medium, extra large and large jobs.
APPLICATIONS: Mapping[str, Application] = {
    "bert": Application(
        initial_batch=12, largest_batch=384, noise_scale=384, work_samples=88_000 * 2
    ),
    "cifar10": Application(
        initial_batch=129, largest_batch=4096, noise_scale=2048, work_samples=50_000 * 100
    ),
    "deepspeech2": Application(
        initial_batch=20, largest_batch=640, noise_scale=320, work_samples=13_000 * 80
    ),
    "imagenet": Application(
        initial_batch=200, largest_batch=3200, noise_scale=1600, work_samples=1_281_167 * 90
    ),
    "yolov3": Application(
        initial_batch=8, largest_batch=64, noise_scale=64, work_samples=16_551 * 50
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """Seconds per step of GPUs on nodes with a batch on each GPU."""

    gpus: int
    nodes: int
    batch_per_gpu: float
    step_s: float


def efficiency(batch: float, application: Application) -> float:
    """Worth of a sample in a batch against one in the initial batch, in 0..1.

    Notes
    -----
    ((var + sqr) / (var / scale + sqr)) / scale of Sia with var / sqr = noise scale in units of
    the initial batch and scale = batch / initial batch.
    """
    noise = application.noise_scale / application.initial_batch
    scale = max(batch / application.initial_batch, 1.0)
    return (noise + 1) / (noise + scale)


def load_rows(profiles: Path, application: str, gpu_type: str) -> tuple[ProfileRow, ...]:
    """Read all measured placements of an application on a GPU type, means over repetitions.

    Parameters
    ----------
    profiles
        `sia/profiles` of the data.

    Raises
    ------
    ValueError
        A file is absent or a row is malformed.
    """
    cells: dict[tuple[int, int, float], list[float]] = defaultdict(list)
    for kind in ("placements", "scalability"):
        path = profiles / application / f"{kind}-{_SUFFIX[gpu_type]}.csv"
        if not path.is_file():
            raise ValueError(f"profiles must hold {path}, which is absent")
        with path.open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                try:
                    nodes, gpus = _nodes_and_gpus(row)
                    key = (gpus, nodes, float(row["local_bsz"]))
                    cells[key].append(float(row["step_time"]))
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(f"{path.name} line {number} must be a profile row") from error
    return tuple(
        ProfileRow(gpus=gpus, nodes=nodes, batch_per_gpu=batch, step_s=float(np.mean(times)))
        for (gpus, nodes, batch), times in sorted(cells.items())
    )


def _nodes_and_gpus(row: Mapping[str, str]) -> tuple[int, int]:
    if "placement" in row:
        placement = row["placement"]
        return len(placement), sum(int(digit) for digit in placement)
    return int(float(row["num_nodes"])), int(float(row["num_replicas"]))


@dataclass(frozen=True, slots=True)
class StepModel:
    """T_step = (T_compute^g + T_network^g)^(1/g), fitted on the logarithm of measured steps.

    T_compute = a + b * batch per GPU; T_network = 0 on one GPU, c + d * (GPUs - 2) inside a node,
    e + f * (GPUs - 2) over nodes; g in 1..10.
    """

    parameters: tuple[float, ...]

    def step_s(self, rows: Sequence[tuple[int, int, float]]) -> npt.NDArray[np.float64]:
        """Seconds per step of (GPUs, nodes, batch per GPU)."""
        return _step_s(np.array(self.parameters), np.array(rows, dtype=np.float64))


def _step_s(
    parameters: npt.NDArray[np.float64], rows: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    a, b, c, d, e, f, g = parameters
    gpus, nodes, batch = rows.T
    compute = a + b * batch
    beyond = np.maximum(gpus - 2, 0)
    network = np.where(nodes > 1, e + f * beyond, c + d * beyond)
    joined = (compute**g + network**g) ** (1 / g)
    return np.asarray(np.where(gpus > 1, joined, compute))


def fit_steps(rows: Sequence[ProfileRow]) -> StepModel:
    """Fit a `StepModel` to measured rows.

    Raises
    ------
    ValueError
        There is no row.
    """
    from scipy.optimize import least_squares

    if not rows:
        raise ValueError("rows must not be empty")
    data = np.array([(one.gpus, one.nodes, one.batch_per_gpu) for one in rows], dtype=np.float64)
    steps = np.log(np.array([one.step_s for one in rows]))
    least = float(np.exp(steps.min()))
    tiny = least * 1e-4
    start = np.array([least, least / 50, least / 5, tiny, least / 2, tiny, 1.5])
    low = np.array([tiny] * 6 + [1.0])
    high = np.array([1e4] * 6 + [10.0])
    found = least_squares(
        lambda x: np.log(_step_s(x, data)) - steps,
        np.clip(start, low * 1.001, high),
        bounds=(low, high),
        x_scale=np.maximum(start, tiny * 10),
        loss="soft_l1",
        f_scale=0.1,
    )
    return StepModel(tuple(float(one) for one in found.x))


def application_class(
    profiles: Path, name: str, rng: np.random.Generator, *, groups: Sequence[NodeGroup]
) -> JobClass:
    """Everything measured that Sia may choose, with a prediction from half of all rows.

    Parameters
    ----------
    rng
        Draws the half that is learned; what is in it is predicted as measured.

    Notes
    -----
    A configuration that was not measured (20 T4) is not offered. Batches beyond the largest that
    users ask for are not either.
    """
    application = APPLICATIONS[name]
    options: list[RunOption] = []
    steps: list[float] = []
    predicted: list[float] = []
    for group in groups:
        rows = load_rows(profiles, name, group.gpu_type)
        learned = [one for one in rows if rng.random() < _LEARNED_SHARE]
        model = fit_steps(learned)
        for one in rows:
            if not _offered(one, group, application):
                continue
            options.append(
                RunOption(
                    gpu_type=group.gpu_type,
                    gpus=one.gpus,
                    nodes=one.nodes,
                    batch_per_gpu=one.batch_per_gpu,
                )
            )
            steps.append(one.step_s)
            guess = model.step_s([(one.gpus, one.nodes, one.batch_per_gpu)])[0]
            predicted.append(one.step_s if one in learned else float(guess))
    batches = np.array([one.gpus * one.batch_per_gpu for one in options])
    worth = np.array([efficiency(float(batch), application) for batch in batches])
    return JobClass(
        options=tuple(options),
        true_rate=batches / np.array(steps) * worth,
        predicted_rate=batches / np.array(predicted) * worth,
        efficiency=worth,
        defaults=(_initial(options, application),),
        batches_are_profiled=True,
    )


def _offered(one: ProfileRow, group: NodeGroup, application: Application) -> bool:
    whole_nodes = one.gpus == one.nodes * group.gpus_per_node
    power_inside = one.nodes == 1 and one.gpus & (one.gpus - 1) == 0
    return (
        (whole_nodes or power_inside)
        and one.nodes <= group.nodes
        and one.gpus <= group.gpus
        and application.initial_batch * 0.5 <= one.gpus * one.batch_per_gpu
        and one.gpus * one.batch_per_gpu <= application.largest_batch * 1.01
    )


def _initial(options: Sequence[RunOption], application: Application) -> tuple[int, ...]:
    """One GPU of every type with the measured batch nearest to the usual one."""
    nearest: dict[str, int] = {}
    for index, one in enumerate(options):
        if one.gpus != 1:
            continue
        held = nearest.setdefault(one.gpu_type, index)
        away = abs(one.batch_per_gpu - application.initial_batch)
        if away < abs(options[held].batch_per_gpu - application.initial_batch):
            nearest[one.gpu_type] = index
    return tuple(nearest.values())
