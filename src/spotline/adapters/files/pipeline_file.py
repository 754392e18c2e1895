"""Read a pipeline file (docs/pipeline-file.md)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from spotline.adapters.files.fields import Count, Label, Name, NotNegative, Part, read_part
from spotline.adapters.files.mistake import BadFile, mistake_of
from spotline.adapters.files.yaml_file import read_yaml
from spotline.application.placer.messages import pipeline_id_for
from spotline.domain.placement.submission import Pipeline

# The others have the names that they have in messages.
_FILE_NAMES = {"client_request_id": "request_id", "model_name": "model"}


class _PipelinePart(Part):
    tenant: Name
    request_id: Label = ""
    model: Label = ""
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


PIPELINE_FIELDS = tuple(_PipelinePart.model_fields)


def read_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file; without a request id, equal files are the same request.

    Raises
    ------
    BadFile
        It cannot be read, or a field is not as expected: says which, and what was found.
    """
    where = str(path)
    part = read_part(_PipelinePart, read_yaml(path), where=where)
    try:
        return part.to_domain()
    except ValueError as error:
        raise BadFile(where, [mistake_of(str(error))]) from error


def pipeline_field(wire: str) -> str:
    """The file's name of a field of a pipeline's message."""
    return _FILE_NAMES.get(wire, wire)


def _content_id(part: _PipelinePart) -> str:
    text = json.dumps(part.model_dump(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
