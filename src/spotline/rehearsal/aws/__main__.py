"""`python -m spotline.rehearsal.aws serve ...`: the rehearsed cloud as a process; `bill STATE`: its bill."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from spotline.rehearsal.aws.control import said_bill
from spotline.rehearsal.aws.opening import Making
from spotline.rehearsal.aws.serving import Serving, serve_world
from spotline.rehearsal.aws.state_log import BrokenLog
from spotline.rehearsal.aws.weather import Weather, calm

_OK, _WRONG = 0, 2


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT, or print a bill; gives the exit code."""
    parser = argparse.ArgumentParser(prog="spotline.rehearsal.aws")
    commands = parser.add_subparsers(dest="command", required=True)
    bill = commands.add_parser("bill", help="Print the bill of a rehearsal's folder as JSON.")
    bill.add_argument("state", type=Path)
    _add_serving(commands.add_parser("serve", help="Serve a rehearsal over HTTP on loopback."))
    said = parser.parse_args(arguments)
    try:
        if said.command == "bill":
            json.dump(said_bill(said.state), sys.stdout)
            sys.stdout.write("\n")
            return _OK
        asyncio.run(_serve(_serving(said)))
    except (ValueError, OSError, BrokenLog) as error:
        sys.stderr.write(f"{error}\n")
        return _WRONG
    return _OK


def _add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--market", type=Path, help="Market file; not needed to go on.")
    parser.add_argument("--state", type=Path, required=True, help="Folder of the rehearsal.")
    parser.add_argument("--fail", type=float, default=0.0, help="Share of calls that fail.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0, help="Market seconds per second.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--config-out", type=Path, help="Where spotline.yaml is written.")
    parser.add_argument("--duration", type=float, default=0.0, help="Wall seconds; 0: no end.")
    parser.add_argument("--calm", action="store_true", help="Draw nothing but failing calls.")
    parser.add_argument("--user-data", type=Path, help="What launch templates give instances.")
    parser.add_argument("--instance-command", default="", help="What each instance runs here.")


def _serving(said: argparse.Namespace) -> Serving:
    user_data = b"" if said.user_data is None else said.user_data.read_bytes()
    making = Making(
        seed=said.seed,
        market_s_per_s=said.speed,
        weather=calm(said.fail) if said.calm else Weather(fail_share=said.fail),
        user_data=base64.b64encode(user_data).decode(),
    )
    return Serving(
        state=said.state,
        making=making,
        market=said.market,
        port=said.port,
        config_out=said.config_out or said.state / "spotline.yaml",
        duration_s=said.duration,
        instance_command=said.instance_command,
    )


async def _serve(serving: Serving) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve_world(serving, stop, ready=_say)


def log_to_stderr() -> None:
    """Keep the log out of the output, where its starter reads one line and maybe no more."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def _say(ready: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(main(sys.argv[1:]))
