"""The output of a rehearsal is one line for its starter; what it logs goes elsewhere."""

from __future__ import annotations

import json

import pytest
import structlog

from spotline.rehearsal.aws.__main__ import log_to_stderr


@pytest.fixture
def log_as_before():
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_bug_of_the_rehearsal_is_logged_whole_and_not_in_its_output(capsys, log_as_before):
    log_to_stderr()

    try:
        int("not of the model")
    except ValueError:
        structlog.get_logger("spotline.rehearsal.aws.server").exception("rehearsal_failed")

    said = capsys.readouterr()
    line = json.loads(said.err)
    assert said.out == ""
    assert (line["event"], line["level"]) == ("rehearsal_failed", "error")
    assert "ValueError: invalid literal" in line["exception"]
