"""docs/asyncapi.yaml: what the subjects and protos give, valid, and true of real messages."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from spotline.contracts.build import envelope_for
from spotline.contracts.codec import encode, json_of
from spotline.contracts.subjects import EVENT_TYPES, KINDS, PREFIX, subject_of
from tests.samples.events import SAMPLES, source_of
from tools.document_asyncapi import DOCUMENT, text

SCHEMA = Path(__file__).parents[2] / "data" / "asyncapi" / "3.0.0-without-id.json.xz"


@pytest.fixture(scope="module")
def written():
    return yaml.safe_load(DOCUMENT.read_text())


def test_it_is_what_the_code_gives():
    assert DOCUMENT.read_text() == text(), "python -m tools.document_asyncapi"


def test_it_is_valid_asyncapi(written):
    schema = json.loads(lzma.decompress(SCHEMA.read_bytes()))

    jsonschema.Draft7Validator(schema).validate(written)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(written | {"channels": {"x": {"address": 3}}})


def test_every_reference_leads_somewhere(written):
    for reference in re.findall(r"\$ref: '?#/([^'\n]+)", DOCUMENT.read_text()):
        found = written
        for name in reference.split("/"):
            found = found[name]
        assert found


def test_real_messages_are_on_their_channels_and_as_their_schemas_say(written):
    followed = {
        message["x-ce-type"].removeprefix(PREFIX): name
        for name, message in written["components"]["messages"].items()
    }
    seen = set()
    for event in SAMPLES:
        kind = KINDS[type(event)]
        if kind not in followed:
            continue
        channel = written["channels"][followed[kind]]
        pattern = re.sub(r"\\{\w+\\}", r"[a-z0-9_-]+", re.escape(channel["address"]))
        assert re.fullmatch(pattern, subject_of(event, source_of(event)))
        schema = {
            "$ref": written["components"]["messages"][followed[kind]]["payload"]["$ref"],
            "components": written["components"],
        }
        jsonschema.Draft202012Validator(schema).validate(json_of(kind, encode(event)))
        seen.add(kind)
    assert seen == followed.keys()


def test_it_names_the_headers_that_messages_have(written):
    event = SAMPLES[0]
    cause = {"causation_id": "b" * 32, "correlation_id": "c" * 32}
    envelope = envelope_for(event, source=source_of(event), event_id="a" * 32, **cause)
    headers = written["components"]["messageTraits"]["cloudEvent"]["headers"]

    jsonschema.Draft202012Validator(headers).validate(envelope.headers())
    assert envelope.headers().keys() <= headers["properties"].keys()
    assert set(EVENT_TYPES) >= {
        message["x-ce-type"].removeprefix(PREFIX)
        for message in written["components"]["messages"].values()
    }
