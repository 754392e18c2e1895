"""The proof's short form: the numpy trainer on the local cloud, over a market made for a test."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.pace import MarketPace
from spotline.bootstrap.system import SystemOptions
from spotline.demo.train.accounts import TrainingAccount, account_of
from spotline.demo.train.diary import Page, read_diary
from spotline.demo.train.evidence import JobEvidence, evidence_of
from spotline.demo.train.proof import packaged
from spotline.demo.train.report import events_in
from spotline.demo.train.scenario import (
    Compression,
    JobContext,
    TrainingProgram,
    TrainingTask,
    job_of,
)
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.trainer.checkpoints import MARKER, CheckpointName, CommitMarker
from tests.fakes.processes import ROOT

SLOT_S, SPEED = 600, 1200.0
START_NS = 1_767_571_200_000_000_000
ROW_S = 0.02


def counted_market(counts: list[int]) -> Market:
    """A market of one zone with these spot counts by slot."""
    market = generate("mixed", seed=3, slots=len(counts), slot_s=SLOT_S, start_ns=START_NS)
    names = [name for name in market.__slots__ if isinstance(getattr(market, name), np.ndarray)]
    arrays = {name: getattr(market, name)[:, [0]] for name in names}
    arrays["spot_available"] = np.array(counts, dtype=np.int64)[:, None]
    return replace(market, offerings=market.offerings[:1], **arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTraining:
    """One task below `folder`, on a market."""

    folder: Path
    market: Market
    task: TrainingTask
    options: tuple[str, ...] = ()
    interval_wall_s: float = 1.0

    @property
    def program(self) -> TrainingProgram:
        return TrainingProgram(
            script="numpy_trainer.py",
            options=("--row-s", str(ROW_S), *self.options),
            interval_wall_s=self.interval_wall_s,
            restart_wall_s=1.0,
            save_wall_s=0.2,
        )

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def diary(self) -> Path:
        return self.folder / "diaries" / self.task.name

    def job(self) -> Job:
        return job_of(
            self.task,
            self.market,
            JobContext(
                program=self.program,
                compression=Compression(market_s_per_s=SPEED),
                package=packaged(self.program, self.checkpoints),
                location=self.checkpoints,
                diaries=self.folder / "diaries",
                steps_per_s=1 / (self.task.batch * ROW_S),
                seed=0,
                python_path=f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            ),
        )

    def system(self) -> SystemOptions:
        return SystemOptions(
            market=self.market,
            store=self.folder / "store",
            ingest=MarketPace(by_time=True, market_s_per_s=SPEED).ingest(
                SLOT_S, wait_for_work=False
            ),
            market_s_per_s=SPEED,
            selector=SelectorOptions(rehearsals=0),
            cloud=chosen_cloud("local", most_instances=4, notice_lead_s=2400, stop_grace_s=10.0),
            agent_times=AgentTimes(heartbeat_s=0.5),
        )

    @property
    def cloud_folder(self) -> Path:
        return self.folder / "store" / "local_cloud"

    def pages(self) -> tuple[Page, ...]:
        return read_diary(self.diary)

    def updates(self, *, world: int = 0, after_generation: int = 0) -> int:
        """How many updates ranks 0 noted in later generations of so many ranks (0: any)."""
        return sum(
            len(list(page.of("reached")))
            for page in self.pages()
            if page.generation > after_generation
            and any(world in (0, note["world"]) for note in page.of("began"))
        )

    def generation(self) -> int:
        """The latest generation that began."""
        began = [page.generation for page in self.pages() if any(page.of("began"))]
        return max(began, default=0)

    def complete(self) -> dict[str, float]:
        """The checkpoints that are complete in the store now, by digest, and what each holds."""
        found = {}
        for file in self.checkpoints.glob(f"*/checkpoints/*/{MARKER}"):
            name = CheckpointName.parse(file.parent.name)
            with suppress(FileNotFoundError):
                # An older one may be removed while it is read.
                if name is not None:
                    marker = CommitMarker.decode(file.read_bytes(), name)
                    found[marker.sha256] = marker.done
        return found

    def account(self) -> TrainingAccount:
        return account_of(self.diary, steps=self.task.steps, batch=self.task.batch)

    def evidence(self, log: Path, job: Job) -> JobEvidence:
        return evidence_of(events_in(EventLogReader(log)), [job.job_id])[job.job_id]
