"""What is expected of the jobs of a list is worked out once, in their order, and nobody waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from spotline.bootstrap.beside import ProcessBeside
from spotline.bootstrap.web_recorded import ListedOutlooks


class Pieces(ProcessBeside):
    """Holds what was begun, for the test to end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, int | None, Future[Any]]] = []

    def begin(self, piece: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        _, job_id, at = args
        ended: Future[Any] = Future()
        self.begun.append((job_id, at, ended))
        return ended


def listed() -> tuple[ListedOutlooks, Pieces]:
    pieces = Pieces()
    return ListedOutlooks(Path("log"), pieces), pieces


def test_each_is_begun_once_in_order_and_filled_in_as_it_comes() -> None:
    outlooks, pieces = listed()

    assert outlooks.known(["b", "a"], 3) == {}
    assert outlooks.known(["b", "a"], 3) == {}
    assert [(job_id, at) for job_id, at, _ in pieces.begun] == [("b", 3), ("a", 3)]

    pieces.begun[1][2].set_result("expected")
    assert outlooks.known(["b", "a"], 3) == {"a": "expected"}


def test_another_slot_is_another_question_and_the_first_goes_behind() -> None:
    outlooks, pieces = listed()
    outlooks.known(["a", "b"], 3)
    pieces.begun[0][2].set_running_or_notify_cancel()

    outlooks.known(["a"], 4)

    # What runs goes on, what waits is let go of, and is begun again when it is wanted.
    assert [ended.cancelled() for _, _, ended in pieces.begun] == [False, True, False]
    pieces.begun[0][2].set_result("then")
    assert outlooks.known(["a", "b"], 3) == {"a": "then"}
    assert [(job_id, at) for job_id, at, _ in pieces.begun[2:]] == [("a", 4), ("b", 3)]


def test_of_what_failed_nothing_is_said() -> None:
    outlooks, pieces = listed()
    outlooks.known(["a"], None)
    pieces.begun[0][2].set_exception(ValueError("no such law"))

    assert outlooks.known(["a"], None) == {"a": None}
