"""What botocore serialises the rehearsal reads, and what the rehearsal writes botocore reads."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSRequest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.rehearsal.aws.wire.models import SERVICES, describe
from spotline.rehearsal.aws.wire.protocols import read_call, write_answer
from spotline.rehearsal.aws.wire.rest import WireRequest
from tests.depth import examples
from tests.unit.rehearsal.aws.wire_values import values, without_nothing

ROUND = settings(
    max_examples=examples(25),
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


def operations(service):
    return st.sampled_from(service.operation_names()).map(service.operation)


@pytest.mark.parametrize("name", SERVICES)
def test_rehearsal_reads_what_botocore_serialises(name):
    service = describe(name)
    serializer = create_serializer(service.protocol)

    @ROUND
    @given(st.data())
    def reads(data):
        operation = data.draw(operations(service))
        given_params = (
            {} if operation.input_shape is None else data.draw(values(operation.input_shape))
        )
        request = serializer.serialize_to_request(given_params, operation)
        sent = AWSRequest(
            method=request["method"],
            url=f"http://127.0.0.1{request['url_path']}",
            params=request["query_string"],
            data=request["body"],
            headers=request["headers"],
        ).prepare()
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body or b""
        asked = WireRequest(
            body=body,
            target=sent.headers.get("X-Amz-Target", ""),
            method=request["method"],
            path=urlsplit(sent.url).path,
            query=urlsplit(sent.url).query,
        )

        read, params = read_call(service, asked)

        assert read.name == operation.name
        assert without_nothing(params) == without_nothing(given_params)

    reads()


@pytest.mark.parametrize("name", SERVICES)
def test_botocore_reads_what_the_rehearsal_answers(name):
    service = describe(name)
    parser = create_parser(service.protocol)

    @ROUND
    @given(st.data())
    def reads(data):
        operation = data.draw(operations(service))
        shape = operation.output_shape
        value = {} if shape is None else data.draw(values(shape))

        answer = write_answer(service, operation, value, "id-of-this-call")

        response = {
            "body": answer.body,
            "headers": answer.headers,
            "status_code": answer.status,
            "context": {"operation_name": operation.name},
        }
        parsed = parser.parse(response, shape)
        metadata = parsed.pop("ResponseMetadata")
        assert metadata["RequestId"] == "id-of-this-call"
        assert parsed == value

    reads()
