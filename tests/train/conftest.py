"""These tests train for real: with torch, and with the trainers of `spotline[train]` themselves."""

import importlib.util

import pytest

HOW = "make test-train runs it (make setup-train installs torch, about 1 GB)"
HOW_RAY = 'make setup-train, .venv-train/bin/pip install "ray[train]>=2.60,<3", make test-train'


def pytest_collection_modifyitems(items):
    """Skip what needs a library that is not here, and say how to run it."""
    for item in items:
        marker = item.get_closest_marker("train")
        if marker is None:
            continue  # the hook sees the tests of all folders
        missing = [name for name in marker.args if importlib.util.find_spec(name) is None]
        if missing:
            how = HOW_RAY if "ray" in missing else HOW
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed: {how}"))
