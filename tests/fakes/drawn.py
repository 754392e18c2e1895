"""What pictures are tried on, and what makes one readable."""

from dataclasses import replace
from itertools import pairwise

from spotline.replay.pictures.lives import JobMark, MarkKind


def marked(job):
    """The job with something of every kind, some of it at one moment."""
    slot = 1800 * 10**9
    marks = tuple(
        JobMark(at_ns=job.begin_ns + (n // 2) * slot, kind=kind, instances=1)
        for n, kind in enumerate(MarkKind)
    )
    return replace(job, marks=marks)


def assert_readable(figure) -> None:
    """No letter below 8 points; no two tick labels of an axis in one place."""
    from matplotlib.text import Text

    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in shown) >= 8.0
    for axes in figure.axes:
        if not axes.axison:
            continue
        for labels, low, high in (
            (axes.get_yticklabels(), "y0", "y1"),
            (axes.get_xticklabels(), "x0", "x1"),
        ):
            boxes = [
                label.get_window_extent()
                for label in labels
                if label.get_visible() and label.get_text()
            ]
            boxes.sort(key=lambda box: getattr(box, low))
            gaps = [
                getattr(after, low) - getattr(before, high) for before, after in pairwise(boxes)
            ]
            assert all(gap > -1.0 for gap in gaps), (
                axes.get_title(loc="left"),
                gaps,
            )
