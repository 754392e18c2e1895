"""What `ExplainDecision` answers and refuses."""

from __future__ import annotations

import grpc

from spotline.adapters.grpc.allocator.standing import unknown_job
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.api.v1 import job_service_pb2 as pb
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.explaining.ports import (
    DecisionExplainer,
    ExplainerBusy,
    LogBeginsLate,
    UnknownDecision,
)
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason

# An explanation takes about as long.
_BUSY_S = 5.0


class Explaining:
    """Asks an explainer, and says why it cannot; None explains nothing."""

    def __init__(self, explainer: DecisionExplainer | None) -> None:
        self._explainer = explainer

    async def explain(self, request: pb.ExplainDecisionRequest) -> DecisionExplanation:
        """Why a decision was what it was.

        Raises
        ------
        RpcRefused
            There is no such job or decision, another is being explained, the log's beginning is
            gone, or this server explains none.
        """
        if not request.job_id:
            raise unknown_job("")
        query = from_message(DecisionQuery, request)
        for name in ("slot", "revision"):
            stated = getattr(query, name)
            if stated is not None and stated < 0:
                raise RpcRefused(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{name} must be >= 0, was {stated}",
                    reason=Reason.FIELD_INVALID,
                    field=name,
                )
        if self._explainer is None:
            raise RpcRefused(
                grpc.StatusCode.UNIMPLEMENTED,
                "this server explains no decisions",
                reason=Reason.NO_EXPLAINER,
            )
        try:
            return await self._explainer.explain(query)
        except UnknownDecision as error:
            if not error.job_known:
                raise unknown_job(query.job_id) from error
            raise RpcRefused(
                grpc.StatusCode.NOT_FOUND,
                str(error),
                reason=Reason.UNKNOWN_DECISION,
                field="slot",
            ) from error
        except ExplainerBusy as error:
            raise RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                str(error),
                reason=Reason.EXPLAINER_BUSY,
                retry_s=_BUSY_S,
            ) from error
        except LogBeginsLate as error:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION, str(error), reason=Reason.LOG_BEGINS_LATE
            ) from error
