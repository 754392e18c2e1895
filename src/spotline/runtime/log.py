"""Structured logs: one event per line, JSON on a pipe, readable on a terminal."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TextIO, cast

import structlog
from structlog.typing import Processor

_LEVELS = logging.getLevelNamesMapping()


def configure_logging(
    level: str = "info", *, json_lines: bool | None = None, file: Path | None = None
) -> None:
    """Write events of `level` and above to stderr; what is below costs next to nothing.

    gRPC then says errors alone there, unless `GRPC_VERBOSITY` states more. To be called before the
    first of its servers and channels.

    Parameters
    ----------
    level
        `debug` (one line per handled message), `info`, `warning` or `error`.
    json_lines
        None: JSON unless stderr is a terminal.
    file
        Where to append JSON lines instead; errors go to stderr all the same.

    Raises
    ------
    ValueError
        No such level.
    OSError
        The file cannot be written to.
    """
    number = _LEVELS.get(level.upper())
    if number is None:
        raise ValueError(f"log_level must be debug, info, warning or error, was {level!r}")
    # Else a line, and none of ours, for each connection that speaks no TLS: strangers fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    unasked = file is not None or not sys.stderr.isatty()
    as_json = unasked if json_lines is None else json_lines
    last: Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        # Its own way shows the variables of each frame, passwords and tokens among them.
        else structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    )
    # Open as long as the process: its loggers write to it.
    lines = None if file is None else file.open("a", encoding="utf-8", buffering=1)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if as_json else []),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Stderr()))
        if lines is None
        else lambda *_: _FileLogger(lines),
        cache_logger_on_first_use=True,
    )
    # What libraries say on the standard logger is kept to what matters.
    logging.basicConfig(
        level=max(number, logging.WARNING), stream=lines or sys.stderr, force=lines is not None
    )


class _Stderr:
    """What stderr is when something is written.

    Loggers are kept: one made while a caller had put a stream of its own in stderr's place would
    raise in whatever says something once that is closed.
    """

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _FileLogger:
    """A logger that writes to a file, and what is an error to stderr, too."""

    def __init__(self, lines: TextIO) -> None:
        self._lines = lines

    def info(self, line: str) -> None:
        self._lines.write(f"{line}\n")

    debug = warning = msg = info

    def error(self, line: str) -> None:
        self._lines.write(f"{line}\n")
        sys.stderr.write(f"{line}\n")

    exception = critical = fatal = error
