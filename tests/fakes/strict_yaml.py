"""YAML as strict tools read it: a key that stands twice in one mapping is a mistake."""

from __future__ import annotations

from pathlib import Path

import yaml


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        assert not twice, f"{node.start_mark}: twice: {', '.join(twice)}"
        return super().construct_mapping(node, deep)


def read_yaml(path: Path):
    """What a file holds."""
    return yaml.load(path.read_text(), _Strict)
