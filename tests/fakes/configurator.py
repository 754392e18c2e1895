"""A configurator that completes every draft in the same simple way, or fails as it is told."""

from __future__ import annotations

import asyncio

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.configurator.messages import (
    Completion,
    CompletionRequest,
    ConfigurationOption,
)
from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.provenance import JobConfiguration, OriginKind, ParameterOrigin
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Checkpoint, Job, Overheads, Throughput, Topology, Work

OVERHEADS = Overheads(launch_s=60, grow_s=60, shrink_s=30, migrate_s=90, interrupted_s=60)
CHECKPOINT = Checkpoint(interval_s=600, save_s=60)


class FakeConfigurator:
    """Runs everything on 1 to 4 instances of 8 GPUs at `tokens_per_hour` each.

    `failure` is raised instead of an answer; with `held` it answers when that is set.
    """

    def __init__(self, tokens_per_hour: float = 2e6) -> None:
        self.tokens_per_hour = tokens_per_hour
        self.failure: RpcFailed | None = None
        self.held: asyncio.Event | None = None
        self.asked: list[JobDraft] = []

    async def complete(self, request: CompletionRequest, *, timeout_s: float = 0.0) -> Completion:
        self.asked.append(request.draft)
        rate = self.tokens_per_hour
        if self.held is not None:
            await self.held.wait()
        if self.failure is not None:
            raise self.failure
        job = completed(request.draft, rate)
        return Completion(job=job, options=(_option(job, rate),), considered=3)


def completed(draft: JobDraft, tokens_per_hour: float) -> Job:
    """The draft as a job; what it states is kept, and marked as its owner's."""
    counts = draft.allowed_counts or ((draft.gpus // 8,) if draft.gpus else (1, 2, 3, 4))
    one = Configuration(
        model_name=draft.model_name,
        method=draft.method or Method.LORA,
        gpu_model="a100-80gb",
        gpus=draft.gpus or 8 * counts[-1],
        nodes=counts[-1],
        tokens_per_sample=draft.tokens_per_sample or 2048,
        batch_size=draft.batch_size or 32,
        precision=draft.precision or "bfloat16",
        expert_parallel=draft.expert_parallel or 1,
        model_parameters=draft.model_parameters,
        options=draft.options,
    )
    predicted = Throughput(offering="p4d.24xlarge", alpha=tokens_per_hour)
    origins = [_origin("model_name", one.model_name, stated=True)]
    for name, value in (
        ("method", one.method.value),
        ("gpu_model", one.gpu_model),
        ("gpus", one.gpus),
        ("tokens_per_sample", one.tokens_per_sample),
        ("batch_size", one.batch_size),
        ("precision", one.precision),
        ("options", ""),
        ("topology", "one_zone"),
        ("checkpoint", "every 600 s"),
        ("overheads", "60 s"),
    ):
        origins.append(_origin(name, str(value), stated=bool(getattr(draft, name))))
    origins.append(
        _origin(
            "allowed_counts",
            ", ".join(map(str, counts)),
            stated=bool(draft.allowed_counts or draft.gpus),
        )
    )
    origins.extend(
        _origin(f"throughput.{one.offering}", "stated", stated=True) for one in draft.throughputs
    )
    if not draft.throughputs:
        origins.append(
            ParameterOrigin(
                parameter="throughput.p4d.24xlarge",
                value=f"{tokens_per_hour * counts[-1]:.4g} tokens/h on {counts[-1]}",
                kind=OriginKind.PREDICTED,
                source_id="combined",
                low=0.5 * tokens_per_hour * counts[-1],
                high=2.0 * tokens_per_hour * counts[-1],
                detail="no measured runs",
            )
        )
    return Job(
        job_id=draft.job_id,
        tenant=draft.tenant,
        client_request_id=draft.client_request_id,
        name=draft.name,
        work=Work(amount=draft.tokens, unit="tokens"),
        deadline=draft.deadline,
        value_micro_usd=draft.value_micro_usd,
        start_ns=draft.start_ns,
        allowed_counts=counts,
        throughputs=draft.throughputs or (predicted,),
        topology=draft.topology or Topology.ONE_ZONE,
        checkpoint=draft.checkpoint or CHECKPOINT,
        overheads=draft.overheads or OVERHEADS,
        offerings=draft.offerings,
        budget_micro_usd=draft.budget_micro_usd,
        value_from_quote=draft.value_from_quote,
        run=draft.run,
        awaits_exit=draft.awaits_exit,
        configuration=JobConfiguration(
            configuration=one,
            weak_scaling=False,
            success_ppm=990_000,
            stack="sfttrainer",
            origins=tuple(origins),
        ),
    )


def _origin(parameter: str, value: str, *, stated: bool) -> ParameterOrigin:
    kind = OriginKind.USER if stated else OriginKind.DEFAULT
    return ParameterOrigin(parameter=parameter, value=value, kind=kind)


def _option(job: Job, tokens_per_hour: float) -> ConfigurationOption:
    assert job.configuration is not None
    rate = tokens_per_hour * job.max_instances / 3600
    return ConfigurationOption(
        configuration=job.configuration.configuration,
        instance_type="p4d.24xlarge",
        offering_id="aws/us-east-1/use1-az1/p4d.24xlarge",
        allowed_counts=job.allowed_counts,
        throughput=job.throughputs[0],
        tokens_per_s=rate,
        low_tokens_per_s=rate / 2,
        high_tokens_per_s=rate * 2,
        success_ppm=990_000,
        expected_cost_micro_usd=12_000_000,
        on_time_probability_ppm=1_000_000,
        expected_utility_micro_usd=100_000_000,
        policy_id="msu",
        chosen=True,
        why="least expected cost",
    )
