"""What `spotline demo --cloud` takes and refuses before anything is run."""

import pytest
from typer.testing import CliRunner

from spotline.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cloud", "moon"), "--cloud: expected simulated or rehearsal-aws, found 'moon'"),
        (("--cloud", "rehearsal-aws", "--fail", "2"), "--fail"),
        (("--cloud", "rehearsal-aws", "--slot-wall", "0"), "--slot-wall"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(tmp_path, arguments, said):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "run"), *arguments])

    assert result.exit_code == 2
    assert said in result.output
