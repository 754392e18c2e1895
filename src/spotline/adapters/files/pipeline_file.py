"""Read a pipeline file (docs/pipeline-file.md)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.files.fields import Count, Label, Name, NotNegative, Part, read_part
from spotline.adapters.files.mistake import BadFile, bad_file, mistake_of
from spotline.adapters.files.yaml_file import read_yaml
from spotline.application.placer.messages import pipeline_id_for
from spotline.domain.placement.submission import Pipeline

# The others have the names that they have in messages.
_FILE_NAMES = {"client_request_id": "request_id", "model_name": "model"}


class _PipelinePart(Part):
    tenant: Name | None = None
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

    def to_domain(self, tenant: str) -> Pipeline:
        whole = self.model_copy(update={"tenant": tenant})
        request_id = self.request_id or _content_id(whole)
        return Pipeline(
            job_id=pipeline_id_for(tenant, request_id),
            client_request_id=request_id,
            model_name=self.model,
            **whole.model_dump(exclude={"request_id", "model"}),
        )


PIPELINE_FIELDS = tuple(_PipelinePart.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPipeline:
    """What a file says; `where` is how errors name it."""

    where: str
    part: _PipelinePart

    @property
    def needs_tenant(self) -> bool:
        """Whether it is left to who hands it over whose pipeline it is."""
        return self.part.tenant is None

    def of_tenant(self, tenant: str) -> Pipeline:
        """The pipeline, as this tenant's where the file says of none whose it is.

        Raises
        ------
        BadFile
            Nobody says whose it is, or its values do not fit together.
        """
        whose = self.part.tenant or tenant
        if not whose:
            expected = "this field, as no token says whose pipeline it is"
            raise bad_file(self.where, "tenant", expected, "nothing")
        try:
            return self.part.to_domain(whose)
        except ValueError as error:
            raise BadFile(self.where, [mistake_of(str(error))]) from error


def read_stated_pipeline(path: Path) -> StatedPipeline:
    """Read a pipeline file; without a request id, equal files are the same request.

    Raises
    ------
    BadFile
        It cannot be read, or a field is not as expected: says which, and what was found.
    """
    where = str(path)
    return StatedPipeline(where=where, part=read_part(_PipelinePart, read_yaml(path), where=where))


def read_pipeline(path: Path) -> Pipeline:
    """Read a pipeline file that says whose it is; `BadFile` as `read_stated_pipeline`."""
    return read_stated_pipeline(path).of_tenant("")


def pipeline_field(wire: str) -> str:
    """The file's name of a field of a pipeline's message."""
    return _FILE_NAMES.get(wire, wire)


def _content_id(part: _PipelinePart) -> str:
    text = json.dumps(part.model_dump(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
