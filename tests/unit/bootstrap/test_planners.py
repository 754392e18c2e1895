"""The planners are compiled once, before anything waits for them."""

from __future__ import annotations

import pytest

from spotline.bootstrap.planners import compile_planners, planners_compiled


@pytest.fixture
def ran(monkeypatch):
    """What drew on the kernels, instead of drawing on them: `make kernels` does."""
    ran = []
    for name in ("simulate.simulate", "closed_loop.closed_loop"):
        monkeypatch.setattr(f"spotline.replay.{name}", lambda *_, name=name: ran.append(name))
    return ran


def test_what_was_compiled_is_not_compiled_again(tmp_path, ran):
    assert not planners_compiled(tmp_path)

    compile_planners(tmp_path)

    assert planners_compiled(tmp_path)
    assert ran == ["simulate.simulate", "closed_loop.closed_loop"]

    compile_planners(tmp_path)

    assert len(ran) == 2


def test_where_nothing_can_be_kept_the_planners_are_compiled_at_each_start(ran):
    compile_planners(None)
    compile_planners(None)

    assert len(ran) == 4
    assert not planners_compiled(None)


@pytest.mark.usefixtures("ran")
def test_another_numba_compiles_them_again(tmp_path, monkeypatch):
    compile_planners(tmp_path)

    monkeypatch.setattr("numba.__version__", "0.0.0")

    assert not planners_compiled(tmp_path)


def test_a_mark_that_cannot_be_written_does_not_stop_a_start(tmp_path, ran):
    compile_planners(tmp_path / "not-there")

    assert len(ran) == 2
    assert not planners_compiled(tmp_path / "not-there")
