"""YAML as strict tools read it: a key that stands twice in one mapping is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        assert not twice, f"{node.start_mark}: twice: {', '.join(twice)}"
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def read_yaml(path: Path) -> Any:
    """What a file holds."""
    return yaml.load(path.read_text(), _Strict)
