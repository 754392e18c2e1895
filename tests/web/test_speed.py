"""500 jobs on 100 offerings: what a page costs to open and to follow.

The wishes are: first view under 1 s, an update under 100 ms of the main thread, under 1 MB carried.
Tests fail only far beyond the first two: the machine may be busy. What was measured is printed.
"""

import os

import pytest

MOST_BYTES = 1_000_000
WISHED_FIRST_S, WISHED_UPDATE_S = 1.0, 0.1
_ON_A_BUSY_MACHINE = 10
_UPDATE = """() => htmx.ajax("GET", location.href, { target: "#view", select: "#view",
    swap: "outerMorph", selectOOB: "#standing:outerMorph,#scrubber:outerMorph,#entry:outerMorph" })"""


@pytest.mark.skipif("SPOTLINE_WEB_SHORT" in os.environ, reason="only the main pages are asked for")
@pytest.mark.parametrize("path", ["/", "/jobs", "/system"])
def test_a_large_system_opens_and_updates_fast(served, visits, path, capsys):
    address = served("large") + path
    page = visits.open("about:blank")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Performance.enable")
    carried = []
    session.on("Network.loadingFinished", lambda told: carried.append(told["encodedDataLength"]))
    page.goto(address, wait_until="load")
    first_s = page.evaluate(
        "() => performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
    )
    taken = sum(carried)
    before_s = _task_s(session)
    page.evaluate(_UPDATE)
    update_s = _task_s(session) - before_s
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{path}: first view {first_s:.2f} s, {taken:,.0f} bytes; "
            f"update {1000 * update_s:.0f} ms of the main thread"
        )
    assert taken < MOST_BYTES
    assert first_s < _ON_A_BUSY_MACHINE * WISHED_FIRST_S
    assert update_s < _ON_A_BUSY_MACHINE * WISHED_UPDATE_S


def _task_s(session):
    """Seconds that the main thread has worked since the page began."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
