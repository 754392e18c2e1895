"""Generated code and the released protobuf contract keep what they promise."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def test_generated_code_is_what_the_protos_give(repository):
    result = subprocess.run(
        [sys.executable, "tools/generate_protos.py", "--check", "src"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_renumbered_field_breaks_the_released_contract(tree):
    released = sorted((tree.root / "protos/released").glob("v*.binpb"))
    if not released:
        pytest.skip("nothing released yet: make release-protos")
    path = tree.root / "protos/spotline/api/v1/job.proto"
    text = path.read_text()
    renumbered = re.sub(r"(\n  [a-z][\w.]* \w+ = )1;", r"\g<1>999;", text, count=1)
    assert renumbered != text
    path.write_text(renumbered)

    result = tree.run("buf", "breaking", "--against", str(released[-1]))

    assert result.returncode != 0
    assert "job.proto" in result.stdout
