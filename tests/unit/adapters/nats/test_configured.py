"""What a server's refusal to create a stream means: try again, or change the configuration."""

import json
from types import SimpleNamespace

import pytest

from spotline.adapters.nats.configured import ensure_stream
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.contracts.subjects import StreamPart

CREATED = {"config": {"name": "SPOTLINE_0"}}
# What nats-server answers while it still removes the folder of a deleted stream.
NO_STORE = {
    "error": {"code": 500, "err_code": 10049, "description": "error creating store for stream"}
}
IN_USE = {"error": {"code": 400, "err_code": 10058, "description": "stream name already in use"}}
GONE = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
OVERLAP = {"error": {"code": 400, "err_code": 10065, "description": "subjects overlap"}}


class Server:
    """Answers in turn, the last answer again and again."""

    def __init__(self, *answers) -> None:
        self._answers = list(answers)
        self.asked = []

    async def request(self, subject, payload, *, timeout):  # noqa: ASYNC109 - as nats-py names it
        self.asked.append(subject.removeprefix("$JS.API.STREAM."))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return SimpleNamespace(data=json.dumps(answer).encode())


async def test_stream_whose_store_cannot_be_made_yet_is_asked_for_again():
    server = Server(NO_STORE, NO_STORE, CREATED)

    await ensure_stream(server, StreamPart.LOG)

    assert server.asked == ["CREATE.SPOTLINE_0"] * 3


async def test_stream_that_goes_between_two_questions_is_created():
    server = Server(IN_USE, GONE, CREATED)

    await ensure_stream(server, StreamPart.LOG)

    assert server.asked == ["CREATE.SPOTLINE_0", "INFO.SPOTLINE_0", "CREATE.SPOTLINE_0"]


async def test_server_that_stays_unable_is_unavailable_and_not_misconfigured():
    server = Server(NO_STORE)

    with pytest.raises(ProviderUnavailable, match=r"SPOTLINE_0 .* 0.2 s: error creating store"):
        await ensure_stream(server, StreamPart.LOG, patience_s=0.2)

    assert len(server.asked) > 1


async def test_wrong_configuration_is_told_at_once():
    server = Server(OVERLAP)

    with pytest.raises(ConfigError, match="SPOTLINE_0 cannot be used: subjects overlap"):
        await ensure_stream(server, StreamPart.LOG)

    assert len(server.asked) == 1
