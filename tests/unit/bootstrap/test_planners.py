"""The planners are compiled once, before anything waits for them."""

from __future__ import annotations

import pytest

from spotline.bootstrap.planners import compile_planners, planners_compiled


def test_what_was_compiled_is_not_compiled_again(tmp_path, monkeypatch):
    assert not planners_compiled(tmp_path)

    compile_planners(tmp_path)

    assert planners_compiled(tmp_path)

    def refuse(*_):
        pytest.fail("the planners ran again")

    monkeypatch.setattr("spotline.replay.simulate.simulate", refuse)
    compile_planners(tmp_path)


def test_where_nothing_can_be_kept_the_planners_are_compiled_at_each_start(monkeypatch):
    ran = []
    monkeypatch.setattr("spotline.replay.simulate.simulate", lambda *given: ran.append(given))

    compile_planners(None)
    compile_planners(None)

    assert len(ran) == 2
    assert not planners_compiled(None)


def test_another_numba_compiles_them_again(tmp_path, monkeypatch):
    compile_planners(tmp_path)

    monkeypatch.setattr("numba.__version__", "0.0.0")

    assert not planners_compiled(tmp_path)


def test_a_mark_that_cannot_be_written_does_not_stop_a_start(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr("spotline.replay.simulate.simulate", lambda *given: ran.append(given))

    compile_planners(tmp_path / "not-there")

    assert len(ran) == 1
    assert not planners_compiled(tmp_path / "not-there")
