"""The `spotline.yaml` that the environment of a service names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig, read_config
from spotline.runtime.settings import PREFIX

VARIABLE = f"{PREFIX}CONFIG"


def stated_config(environ: Mapping[str, str]) -> SpotlineConfig | None:
    """What the file says that `SPOTLINE_CONFIG` names, None for none; `BadFile` where it is wrong."""
    path = environ.get(VARIABLE)
    return read_config(Path(path), environ) if path else None
