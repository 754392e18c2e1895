"""What others made is as they published it, and pages load nothing from anywhere else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import spotline.adapters.page

PAGE = Path(spotline.adapters.page.__file__).parent
VENDOR = PAGE / "static" / "vendor"
_ROW = re.compile(r"^\| `(?P<file>[^`]+)` \|.*\| `(?P<sha256>[0-9a-f]{64})` \|$", re.MULTILINE)


def test_every_vendored_file_is_listed_with_its_hash() -> None:
    listed = dict(_ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8")))
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "README.md"
    }

    assert found == listed
    assert len(found) >= 5


def test_templates_load_from_this_server_alone_and_run_nothing_inline() -> None:
    for path in sorted((PAGE / "templates").glob("*.html")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""(src|href|action)=["'](https?:)?//""", text), path.name
        assert not re.search(r"""\s(on[a-z]+|style)=["']""", text), path.name
        assert not re.search(r"<style|javascript:", text), path.name
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or 'type="application/json"' in script, path.name
