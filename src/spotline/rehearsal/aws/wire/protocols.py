"""From bytes to a call and from an answer to bytes, in the protocol that a service's model names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotline.rehearsal.aws.service import AwsError
from spotline.rehearsal.aws.wire import form, json_body, xml_body
from spotline.rehearsal.aws.wire.models import (
    ServiceDescription,
    WireOperation,
    WireShape,
    unfitting,
)
from spotline.rehearsal.aws.wire.rest import WireRequest, find_operation, read_rest
from spotline.rehearsal.aws.wire.scalars import OPEN_ENUMS, BadParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """What goes back over HTTP."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class AnswerNotOfModel(Exception):
    """A service's answer does not fit AWS's own model of it: a bug of the rehearsal."""


# Errors of SQS that its model called so before it spoke JSON (2023); clients are told both names.
_OF_QUERY: Mapping[str, str] = {
    **{
        name: f"AWS.SimpleQueueService.{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "QueueDeletedRecently",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
}

# What each refusal of a parameter is called, by service; `""` stands for all others.
_CODES: Mapping[str, Mapping[str, str]] = {
    "missing": {
        "ec2": "MissingParameter",
        "sqs": "MissingParameter",
        "pricing": "InvalidParameterException",
        "service-quotas": "IllegalArgumentException",
        "": "ValidationException",
        "iam": "ValidationError",
        "fis": "ValidationException",
        "sts": "ValidationError",
    },
    "unknown": {
        "ec2": "UnknownParameter",
        "iam": "ValidationError",
        "fis": "ValidationException",
        "sts": "ValidationError",
        "": "SerializationException",
    },
    "type": {
        "ec2": "InvalidParameterValue",
        "iam": "ValidationError",
        "fis": "ValidationException",
        "sts": "ValidationError",
        "": "SerializationException",
    },
    "range": {
        "ec2": "InvalidParameterValue",
        "sqs": "InvalidParameterValue",
        "iam": "ValidationError",
        "fis": "ValidationException",
        "sts": "ValidationError",
        "pricing": "InvalidParameterException",
        "service-quotas": "IllegalArgumentException",
        "": "ValidationException",
    },
    "malformed": {
        "ec2": "MalformedQueryString",
        "iam": "MalformedQueryString",
        "fis": "ValidationException",
        "sts": "MalformedQueryString",
        "": "SerializationException",
    },
}


def refusal(service: str, problem: BadParameter) -> AwsError:
    """A bad parameter in the words of its service."""
    kind = "range" if problem.kind == "enum" else problem.kind
    codes = _CODES[kind]
    return AwsError(codes.get(service, codes[""]), problem.sentence)


def read_call(
    service: ServiceDescription, request: WireRequest
) -> tuple[WireOperation, dict[str, Any]]:
    """Which operation is called, and with which members of its input shape.

    Raises
    ------
    AwsError
        The operation is unknown, or a parameter is not what its shape says.
    """
    try:
        if service.protocol == "rest-json":
            found = find_operation(service, request)
            if found is None:
                raise AwsError(
                    "UnknownOperationException",
                    f"{request.method} {request.path} is not known",
                    status=404,
                )
            return found[0], read_rest(request, found[0].input_shape, found[1])
        if service.protocol == "json":
            return _read_json_call(service, request)
        return _read_form_call(service, request)
    except BadParameter as problem:
        raise refusal(service.name, problem) from problem


def _read_json_call(
    service: ServiceDescription, request: WireRequest
) -> tuple[WireOperation, dict[str, Any]]:
    prefix, _, name = request.target.rpartition(".")
    operation = service.operation(name) if prefix == service.target_prefix else None
    if operation is None:
        said = request.target or "nothing"
        raise AwsError("UnknownOperationException", f"{said} is not known")
    return operation, json_body.read_json(request.body, operation.input_shape)


def _read_form_call(
    service: ServiceDescription, request: WireRequest
) -> tuple[WireOperation, dict[str, Any]]:
    said = form.read_form(request.body)
    operation = service.operation(said.action)
    if operation is None or said.version != service.api_version:
        raise unknown_action(said.action, said.version)
    of_ec2 = service.protocol == "ec2"
    return operation, form.read_members(
        said, operation.input_shape, lists_are_numbered_at_once=of_ec2
    )


def unknown_action(action: str, version: str) -> AwsError:
    """What services of the protocols `query` and `ec2` say of an operation that they lack."""
    return AwsError(
        "InvalidAction", f"The action {action} is not valid for this web service version {version}."
    )


def write_answer(
    service: ServiceDescription, operation: WireOperation, value: Mapping[str, Any], request_id: str
) -> WireAnswer:
    """Serialise an answer, once it was held against the model.

    Raises
    ------
    AnswerNotOfModel
        A member is unknown, missing or of the wrong type, or a text cannot be written.
    """
    shape = operation.output_shape
    given = dict(value)
    wrong = unfitting(given, shape)
    if shape is not None and not wrong:
        wrong = _closed_enums(given, shape, "")
    if wrong:
        raise AnswerNotOfModel(f"{service.name} {operation.name}: {wrong}")
    if service.speaks_json:
        document = {} if shape is None else json_body.write_json(given, shape)
        # An operation without output answers with no body at all.
        body = b"" if shape is None else json.dumps(document).encode()
        return WireAnswer(status=200, body=body, headers=_json_headers(service, request_id))
    try:
        inner = "" if shape is None else xml_body.write_members(given, shape)
    except ValueError as error:
        raise AnswerNotOfModel(f"{service.name} {operation.name}: {error}") from error
    return _xml(200, _wrapped(service, operation, inner, request_id), request_id)


def write_error(service: ServiceDescription, error: AwsError, request_id: str) -> WireAnswer:
    """Serialise a refusal as the service's protocol has it."""
    if not service.speaks_json:
        inner = _xml_error(service, error, request_id)
        answer = _xml(error.status, inner, request_id)
        return WireAnswer(
            status=answer.status, body=answer.body, headers={**answer.headers, **error.headers}
        )
    shape = service.error_shape(error.code)
    name = shape.name if shape is not None else error.code
    headers = _json_headers(service, request_id)
    if service.query_compatible:
        fault = "Sender" if error.status < 500 else "Receiver"
        headers["x-amzn-query-error"] = f"{_OF_QUERY.get(name, name)};{fault}"
    said = {"__type": _namespaced(service, name), "message": error.message}
    if service.protocol == "rest-json":
        headers["x-amzn-errortype"] = name
        del said["__type"]
    body = json.dumps(said).encode()
    return WireAnswer(status=error.status, body=body, headers={**headers, **error.headers})


def _namespaced(service: ServiceDescription, name: str) -> str:
    return f"com.amazonaws.{service.name}#{name}" if service.query_compatible else name


def _json_headers(service: ServiceDescription, request_id: str) -> dict[str, str]:
    kind = "application/json"
    if service.protocol == "json":
        kind = f"application/x-amz-json-{service.json_version}"
    return {
        "content-type": kind,
        "x-amzn-requestid": request_id,
    }


def _xml(status: int, document: str, request_id: str) -> WireAnswer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{document}'.encode()
    headers = {"content-type": "text/xml;charset=UTF-8", "x-amzn-requestid": request_id}
    return WireAnswer(status=status, body=body, headers=headers)


def _wrapped(
    service: ServiceDescription, operation: WireOperation, inner: str, request_id: str
) -> str:
    opening = f'{operation.name}Response xmlns="{service.namespace}"'
    if service.protocol == "ec2":
        inside = xml_body.element("requestId", request_id) + inner
    else:
        shape = operation.output_shape
        wrapper = None if shape is None else shape.serialization.get("resultWrapper")
        metadata = xml_body.element("RequestId", request_id)
        inside = xml_body.element(str(wrapper), inner) if wrapper else inner
        inside += xml_body.element("ResponseMetadata", metadata)
    return f"<{opening}>{inside}</{operation.name}Response>"


def _xml_error(service: ServiceDescription, error: AwsError, request_id: str) -> str:
    code = xml_body.element("Code", xml_body.escape(error.code))
    message = xml_body.element("Message", xml_body.escape(error.message))
    if service.protocol == "ec2":
        errors = xml_body.element("Errors", xml_body.element("Error", code + message))
        return xml_body.element("Response", errors + xml_body.element("RequestID", request_id))
    fault = xml_body.element("Type", "Sender" if error.status < 500 else "Receiver")
    inside = xml_body.element("Error", fault + code + message)
    inside += xml_body.element("RequestId", request_id)
    return f'<ErrorResponse xmlns="{service.namespace}">{inside}</ErrorResponse>'


def _closed_enums(value: Any, shape: WireShape, path: str) -> str:
    """Say which text is none that AWS's model lists; empty: none. botocore's validator does not."""
    if shape.type_name == "structure":
        inner = ((shape.members[name], each, f"{path}.{name}") for name, each in value.items())
    elif shape.type_name == "list":
        inner = ((shape.member, each, f"{path}[{at}]") for at, each in enumerate(value))
    elif shape.type_name == "map":
        inner = ((shape.value, each, f"{path}.{key}") for key, each in value.items())
    else:
        allowed = shape.metadata.get("enum", ())
        if allowed and shape.name not in OPEN_ENUMS and value not in allowed:
            return f"{path.removeprefix('.')} must be one of {', '.join(allowed)}, was {value!r}"
        return ""
    return next(
        (wrong for below in inner if (wrong := _closed_enums(below[1], below[0], below[2]))), ""
    )
