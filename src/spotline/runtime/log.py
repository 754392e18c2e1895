"""Structured logs: one event per line, JSON on a pipe, readable on a terminal."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

_LEVELS = logging.getLevelNamesMapping()


def configure_logging(level: str = "info", *, json_lines: bool | None = None) -> None:
    """Write events of `level` and above to stderr; what is below costs next to nothing.

    Parameters
    ----------
    level
        `debug` (one line per handled message), `info`, `warning` or `error`.
    json_lines
        None: JSON unless stderr is a terminal.

    Raises
    ------
    ValueError
        No such level.
    """
    number = _LEVELS.get(level.upper())
    if number is None:
        raise ValueError(f"the log level must be debug, info, warning or error, was {level!r}")
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    last: Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if as_json else []),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # What libraries say on the standard logger is kept to what matters.
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)
