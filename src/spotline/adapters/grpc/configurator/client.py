"""Callers of the configurator: the allocator, the commands, and any other service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.grpc.kit.errors import failing_as_rpc
from spotline.api.v1 import configuration_service_pb2 as pb
from spotline.api.v1 import configuration_service_pb2_grpc
from spotline.application.configurator.messages import (
    Completion,
    CompletionRequest,
    KnownSources,
    Lesson,
    LessonReceipt,
    PredictionAnswer,
    PredictionAnswers,
    PredictionRequest,
)
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.configuration.configuration import MeasuredRun

DEFAULT_ADDRESS = "127.0.0.1:7071"

# A source that is asked for the first time learns all runs before it answers.
_ANSWER_TIMEOUT_S = 120.0
_LEARN_TIMEOUT_S = 300.0


class ConfiguratorClient(RpcClient):
    """Configuration knowledge over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "configurator"

    def __init__(self, address: str = DEFAULT_ADDRESS, *, caller: str = ANY_CLIENT) -> None:
        super().__init__(address, caller=caller)
        self._stub = configuration_service_pb2_grpc.ConfigurationServiceStub(self._channel)

    @failing_as_rpc
    async def complete(
        self, request: CompletionRequest, *, timeout_s: float = _ANSWER_TIMEOUT_S
    ) -> Completion:
        """Make a whole job of a draft: the best configuration, and the others considered."""
        response = await self._stub.Complete(
            cast("pb.CompleteRequest", to_message(request)),
            timeout=timeout_s,
        )
        return from_message(Completion, response)

    @failing_as_rpc
    async def predict(self, request: PredictionRequest) -> tuple[PredictionAnswer, ...]:
        """Say how configurations would run, one answer each, in order."""
        response = await self._stub.Predict(
            cast("pb.PredictRequest", to_message(request)),
            timeout=_ANSWER_TIMEOUT_S,
        )
        return from_message(PredictionAnswers, response).answers

    @failing_as_rpc
    async def learn(self, runs: Sequence[MeasuredRun]) -> LessonReceipt:
        """Add measured runs; those known already are not added twice."""
        response = await self._stub.Learn(
            cast("pb.LearnRequest", to_message(Lesson(runs=tuple(runs)))),
            timeout=_LEARN_TIMEOUT_S,
        )
        return from_message(LessonReceipt, response)

    @failing_as_rpc
    async def sources(self) -> KnownSources:
        """All sources, what they have learned from, and how well."""
        response = await self._stub.Sources(pb.SourcesRequest(), timeout=_LEARN_TIMEOUT_S)
        return from_message(KnownSources, response)
