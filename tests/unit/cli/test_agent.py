"""What `spotline agent` says of an environment that it cannot use."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app

GIVEN = {
    "SPOTLINE_CONTROL": "localhost:1",
    "SPOTLINE_CONTROL_CA": "-----BEGIN CERTIFICATE-----",
    "SPOTLINE_INSTANCE_ID": "i-1",
    "SPOTLINE_JOB_ID": "job-1",
    "SPOTLINE_JOIN_TOKEN": "t",
}


@pytest.mark.parametrize("missing", [("SPOTLINE_CONTROL",), tuple(GIVEN)])
def test_missing_variables_are_named(missing: tuple[str, ...]) -> None:
    environ = {name: "" if name in missing else value for name, value in GIVEN.items()}

    result = CliRunner().invoke(app, ["agent"], env=environ)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"spotline: {', '.join(missing)} must be set")


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")

    result = CliRunner().invoke(
        app, ["agent"], env={**GIVEN, "SPOTLINE_WORK_DIR": str(tmp_path / "file" / "x")}
    )

    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
