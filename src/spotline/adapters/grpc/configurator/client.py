"""Callers of the configurator: the allocator, the commands, and any other service."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.identity.endpoints import ClientIdentity
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
from spotline.contracts.mapping import from_message
from spotline.domain.configuration.configuration import MeasuredRun

DEFAULT_ADDRESS = "127.0.0.1:7071"

# A source that is asked for the first time learns all runs before it answers.
_ANSWER_TIMEOUT_S = 120.0
_LEARN_TIMEOUT_S = 300.0


class ConfiguratorClient(RpcClient):
    """Configuration knowledge over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "configurator"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        caller: str = ANY_CLIENT,
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._stub = configuration_service_pb2_grpc.ConfigurationServiceStub(self._channel)

    async def complete(
        self, request: CompletionRequest, *, timeout_s: float = _ANSWER_TIMEOUT_S
    ) -> Completion:
        """Make a whole job of a draft: the best configuration, and the others considered."""
        return await self._ask(self._stub.Complete, request, Completion, timeout_s=timeout_s)

    async def predict(self, request: PredictionRequest) -> tuple[PredictionAnswer, ...]:
        """Say how configurations would run, one answer each, in order."""
        said = await self._ask(
            self._stub.Predict, request, PredictionAnswers, timeout_s=_ANSWER_TIMEOUT_S
        )
        return said.answers

    async def learn(self, runs: Sequence[MeasuredRun], *, request_id: str = "") -> LessonReceipt:
        """Add measured runs; those known already are not added twice."""
        lesson = Lesson(runs=tuple(runs), request_id=request_id)
        return await self._ask(self._stub.Learn, lesson, LessonReceipt, timeout_s=_LEARN_TIMEOUT_S)

    async def sources(self) -> KnownSources:
        """All sources, what they have learned from, and how well."""
        request = pb.SourcesRequest()
        response = await self._call(self._stub.Sources, request, timeout_s=_LEARN_TIMEOUT_S)
        return from_message(KnownSources, response)
