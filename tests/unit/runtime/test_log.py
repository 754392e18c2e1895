"""Where logs go."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest
import structlog

from spotline.runtime.log import configure_logging


@pytest.fixture(autouse=True)
def structlog_as_before():
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_logger_outlives_the_stream_that_stood_in_for_stderr(monkeypatch):
    passing, lasting = io.StringIO(), io.StringIO()
    log = structlog.get_logger("lasting")
    monkeypatch.setattr(sys, "stderr", passing)
    configure_logging("warning", json_lines=True)
    log.warning("first")
    said_first = json.loads(passing.getvalue())
    passing.close()

    monkeypatch.setattr(sys, "stderr", lasting)
    log.warning("second", slot=3)

    said = json.loads(lasting.getvalue())
    assert said_first["event"] == "first"
    assert (said["event"], said["level"], said["slot"]) == ("second", "warning", 3)


def test_what_is_below_the_level_is_not_written(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logging("warning", json_lines=True)

    structlog.get_logger("quiet").info("nothing")

    assert not stderr.getvalue()


def test_a_level_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'loud'"):
        configure_logging("loud")


def test_grpc_says_errors_alone_unless_more_is_stated(monkeypatch):
    # What is set here is taken back at the end, also where nothing was.
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")
    configure_logging("warning")
    assert os.environ["GRPC_VERBOSITY"] == "DEBUG"
    monkeypatch.delenv("GRPC_VERBOSITY")
    configure_logging("warning")
    assert os.environ["GRPC_VERBOSITY"] == "ERROR"
