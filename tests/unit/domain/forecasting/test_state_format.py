import hashlib
import json
import pickle
import zlib

import pytest

from spotline.domain.forecasting.state_format import pack, state_version, unpack

VERSIONS = {"format": "1"}


def test_round_trip_keeps_values():
    state = {"a": [1.5, 2], "b": (None, True)}

    assert unpack("model", VERSIONS, pack("model", VERSIONS, state)) == state


def test_equal_states_give_equal_bytes_whatever_they_share():
    text = "shared"
    shared, apart = [text, text], ["shared", "".join(["sha", "red"])]

    assert pack("model", VERSIONS, shared) == pack("model", VERSIONS, apart)


def test_header_is_readable():
    header = json.loads(pack("model", VERSIONS, 1).split(b"\n")[1])

    assert (header["model"], header["versions"]) == ("model", VERSIONS)


def test_state_that_would_run_something_is_refused():
    class Evil:
        def __reduce__(self):
            return (print, ("owned",))

    body = zlib.compress(pickle.dumps(Evil()))
    header = {"model": "m", "versions": VERSIONS, "sha256": hashlib.sha256(body).hexdigest()}
    data = b"spotline-forecaster\n" + json.dumps(header).encode() + b"\n" + body

    with pytest.raises(ValueError, match=r"builtins\.print does not belong"):
        unpack("m", VERSIONS, data)


def test_version_names_the_model_and_everything_it_depends_on():
    assert state_version("m", {"river": "2", "format": "1"}) == "m format=1 river=2"
