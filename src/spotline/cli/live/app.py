"""The live view itself, drawn by textual; imported only where somebody looks at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from spotline.cli.explain_view import explanation_lines
from spotline.cli.jobs_view import status_facts
from spotline.cli.live.charts import ProgressPoint
from spotline.cli.live.feed import FeedBroken, LiveFeed
from spotline.cli.live.panels import header_text, job_panel, market_panel
from spotline.cli.reading import happening_line
from spotline.cli.status_view import JobBoard, by_urgency, is_flagged, job_table, spent_micro_usd
from spotline.cli.tables import (
    Column,
    Kind,
    column_widths,
    escaped,
    fact_lines,
    fitting_columns,
    shortened,
)

if TYPE_CHECKING:
    from textual.events import Resize

    from spotline.application.allocator.messages import JobStatus
    from spotline.domain.market.slot_quote import SlotQuote

_LOOK_EVERY_S = 1.0
_ROUND_CELLS = 4
# Below it there is room for the job or its market.
_NARROW = 110
_MOST_POINTS = 2_000


class DetailScreen(ModalScreen[None]):
    """A text over the whole view, to scroll through; escape or q leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "back"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """The text under its title."""
        yield Static(self._title, id="title", markup=False)
        with VerticalScroll(id="detail"):
            yield Static(self._text, id="detail-text", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Let the arrows scroll."""
        self.query_one("#detail").focus()

    def tell(self, text: str) -> None:
        """Show another text; nothing where this was left before it came."""
        self._text = text
        for shown in self.query("#detail-text").results(Static):
            shown.update(text)


class LiveView(App[None]):
    """Jobs, the market of the selected one, and its way to the deadline."""

    CSS = """
    #header { height: auto; padding: 0 1; background: $panel; }
    #jobs { height: 1fr; min-height: 5; }
    #below { height: 18; border-top: solid $primary; }
    #job { width: 3fr; padding: 0 1; }
    #market { width: 2fr; padding: 0 1; border-left: solid $primary; }
    .narrow #market { width: 1fr; border-left: none; }
    .narrow #job { width: 1fr; }
    .narrow.jobs #market { display: none; }
    .narrow.markets #job { display: none; }
    #find { display: none; }
    DetailScreen { background: $surface; }
    #title { padding: 0 1; background: $panel; text-style: bold; }
    #detail { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_job", "job", priority=False),
        Binding("e", "show_events", "events"),
        Binding("x", "explain", "explain"),
        Binding("m", "turn", "market"),
        Binding("slash", "find", "find"),
        Binding("escape", "found", "all", show=False),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "spotline watch"

    def __init__(self, feed: LiveFeed, board: JobBoard, *, selected: str = "") -> None:
        super().__init__()
        self._feed = feed
        self._board = board
        self._selected = selected
        self._points: dict[str, list[ProgressPoint]] = {}
        self._quotes: tuple[SlotQuote, ...] = ()
        self._wanted = ""
        self._broken = ""
        self._drawn: object = None

    # --- what is on it ------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Header, table, panels, keys."""
        self.screen.add_class("jobs")
        yield Static(id="header", markup=False)
        yield DataTable(id="jobs", cursor_type="row", zebra_stripes=True)
        yield Input(id="find", placeholder="part of an id, a name, a tenant or a phase")
        with Horizontal(id="below"):
            yield Static(id="job", markup=False)
            yield Static(id="market", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known, and go on asking."""
        self.query_one(DataTable).focus()
        self._take(self._board)
        self.set_interval(_LOOK_EVERY_S, self.look)
        self.look()

    def on_resize(self, event: Resize) -> None:
        """Lay everything out again."""
        self.screen_stack[0].set_class(event.size.width < _NARROW, "narrow")
        self._drawn = None
        self._draw()

    def look(self) -> None:
        """Ask again, unless an answer is still awaited."""
        self.run_worker(self._look(), exclusive=True, group="look", exit_on_error=True)

    async def _look(self) -> None:
        try:
            board = await self._feed.board()
            status = self._status()
            quotes: Sequence[SlotQuote] = ()
            if status is not None and status.offering_id:
                quotes = await self._feed.quotes(status.offering_id)
        except FeedBroken as error:
            self._broken = str(error)
            self._draw()
            return
        self._broken = ""
        self._quotes = tuple(quotes)
        self._take(board)

    def _take(self, board: JobBoard) -> None:
        self._board = board
        clock = board.market.clock
        for status in board.statuses:
            points = self._points.setdefault(status.job.job_id, [])
            point = ProgressPoint(
                market_ns=status.submitted_ns if clock is None else clock.market_ns,
                done_ppm=status.progress_ppm,
                spent_micro_usd=spent_micro_usd(status),
            )
            if not points or points[-1] != point:
                points.append(point)
                del points[:-_MOST_POINTS]
        self._draw()

    # --- drawing ------------------------------------------------------------------------------

    def _found(self) -> list[JobStatus]:
        statuses = by_urgency(self._board.statuses)
        if not self._wanted:
            return statuses
        return [
            status
            for status in statuses
            if any(self._wanted in said.lower() for said in _searched(status))
        ]

    def _status(self) -> JobStatus | None:
        by_id = {status.job.job_id: status for status in self._board.statuses}
        return by_id.get(self._selected)

    def _draw(self) -> None:
        if not self.size.width:
            # Not laid out yet.
            return
        found = self._found()
        ids = [status.job.job_id for status in found]
        if self._selected not in ids:
            self._selected = ids[0] if ids else ""
        self.query_one("#header", Static).update(
            header_text(self._board, self.size.width - 2, self._broken)
        )
        self._draw_table(found)
        self._draw_panels()

    def _draw_table(self, found: Sequence[JobStatus]) -> None:
        columns, rows = job_table(found)
        flagged = [is_flagged(status) for status in found]
        cells = [[escaped(cell) for cell in row] for row in rows]
        # The table puts a space on either side of a cell, and a bar beside itself.
        room = self.size.width - _ROUND_CELLS
        kept = fitting_columns(columns, cells, room)
        kept = kept or [index for index, column in enumerate(columns) if not column.rank]
        drawn = (room, kept, cells, flagged)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        widths = column_widths(columns, cells, kept, room)
        table: DataTable[Text] = self.query_one(DataTable)
        with self.prevent(DataTable.RowHighlighted):
            table.clear(columns=True)
            for index in kept:
                table.add_column(columns[index].name, width=widths[index])
            for row, status, look in zip(cells, found, flagged, strict=True):
                shown = [_cell(row[index], columns[index], widths[index], look) for index in kept]
                table.add_row(*shown, key=status.job.job_id)
            ids = [status.job.job_id for status in found]
            if self._selected in ids:
                table.move_cursor(row=ids.index(self._selected))

    def _draw_panels(self) -> None:
        job, market = self.query_one("#job", Static), self.query_one("#market", Static)
        status = self._status()
        if status is None:
            job.update("no jobs; hand one over with: spotline submit FILE")
            market.update("")
            return
        width = self.size.width
        of_job, of_market = (width * 3 // 5 - 3, width * 2 // 5 - 4)
        if width < _NARROW:
            of_job = of_market = width - 2
        points = self._points.get(status.job.job_id, ())
        job.update(job_panel(status, points, width=of_job, height=17))
        market.update(market_panel(status.offering_id, self._quotes, width=of_market))

    # --- keys ---------------------------------------------------------------------------------

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The arrows choose a job."""
        chosen = event.row_key.value or ""
        if chosen and chosen != self._selected:
            self._selected, self._quotes = chosen, ()
            self._draw_panels()
            self.look()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter shows all of a job."""
        self.action_show_job()

    def action_show_job(self) -> None:
        """Everything of the selected job."""
        status = self._status()
        if status is not None:
            self._show(status, "job", fact_lines(status_facts(status), self._detail_width))

    def action_explain(self) -> None:
        """Why the selected job holds what it holds."""
        status = self._status()
        if status is not None:
            self.run_worker(self._explain(status), group="explain", exclusive=True)

    async def _explain(self, status: JobStatus) -> None:
        screen = self._show(status, "why", ["worked out again from the log ..."])
        width = self._detail_width
        try:
            explanation = await self._feed.explanation(status.job.job_id)
        except FeedBroken as error:
            lines = fact_lines([("no answer", str(error))], width)
        else:
            lines = explanation_lines(explanation, width)
        screen.tell("\n".join(lines))

    def action_show_events(self) -> None:
        """What has happened to the selected job."""
        status = self._status()
        if status is not None:
            self.run_worker(self._show_events(status), group="events", exclusive=True)

    async def _show_events(self, status: JobStatus) -> None:
        try:
            events = await self._feed.events(status.job.job_id)
        except FeedBroken as error:
            said = fact_lines([("no answer", str(error))], self._detail_width)
            self._show(status, "events", said)
            return
        # The newest first: it is what is looked for.
        lines = [happening_line(event) for event in reversed(events)] or ["nothing yet"]
        self._show(status, "events", lines)

    @property
    def _detail_width(self) -> int:
        return max(20, self.size.width - 4)

    def _show(self, status: JobStatus, what: str, lines: Sequence[str]) -> DetailScreen:
        title = f"{what}: {status.job.job_id}  {escaped(status.job.name)}"
        screen = DetailScreen(title, "\n".join(lines))
        self.push_screen(screen)
        return screen

    def action_turn(self) -> None:
        """Where there is no room for both: the market instead of the job, and back."""
        self.screen.toggle_class("jobs", "markets")

    def action_find(self) -> None:
        """Ask for what to look for."""
        find = self.query_one("#find", Input)
        find.display = True
        find.focus()

    def action_found(self) -> None:
        """Show all jobs again."""
        find = self.query_one("#find", Input)
        find.value = ""
        find.display = False
        self._wanted = ""
        self.query_one(DataTable).focus()
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the table while somebody types."""
        self._wanted = event.value.strip().lower()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep what was found, and go back to the table."""
        self.query_one("#find", Input).display = bool(event.value)
        self.query_one(DataTable).focus()


def _searched(status: JobStatus) -> Mapping[str, None]:
    from spotline.cli.status_view import status_phase

    job = status.job
    return dict.fromkeys((job.job_id, job.name, job.tenant, status_phase(status)))


def _cell(text: str, column: Column, width: int, flagged: bool) -> Text:
    if column.kind is Kind.SENTENCE:
        text = shortened(text, width)
    style = "bold red" if flagged else ""
    return Text(text, style=style, justify="right" if column.kind is Kind.NUMBER else "left")
