"""Read a pipeline file (docs/pipeline-file.md)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from spotline.adapters.files.yaml_file import Count, Name, NotNegative, Part, part_of, text_of
from spotline.application.placer.messages import pipeline_id_for
from spotline.contracts.errors import ContractError
from spotline.domain.placement.submission import Pipeline


class _PipelinePart(Part):
    tenant: Name
    request_id: str = ""
    model: str = ""
    iterations: Count
    microbatches: Count
    compute_s: NotNegative
    activation_bytes: NotNegative
    stage_overhead_s: NotNegative = 0.0
    min_gpus: Count = 1
    max_gpus: Count = 1024
    deadline_s: NotNegative = 0.0
    checkpoint_gb: NotNegative = 0.0
    checkpoint_interval_iterations: Count = 1
    restart_s: NotNegative = 0.0

    def to_domain(self) -> Pipeline:
        request_id = self.request_id or _content_id(self)
        return Pipeline(
            job_id=pipeline_id_for(self.tenant, request_id),
            client_request_id=request_id,
            model_name=self.model,
            **self.model_dump(exclude={"request_id", "model"}),
        )


def read_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file; without a request id, equal files are the same request.

    Raises
    ------
    ContractError
        It cannot be read, or a field is not as expected: says which, and what was found.
    """
    part = part_of(_PipelinePart, text_of(path), where=str(path))
    try:
        return part.to_domain()
    except ValueError as error:
        raise ContractError(str(path), str(error)) from error


def _content_id(part: _PipelinePart) -> str:
    text = json.dumps(part.model_dump(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
