"""Ends what an agent leaves behind when it is killed: ranks would train on beside their successors.

It is a process of its own, below the agent, and waits for the end of its standard input, which the
agent holds. `python -m spotline.agent.warden INSTANCE_ID [SHUTDOWN_COMMAND]`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import IO

from spotline.agent.processes import processes_of, send_signal

# What an agent writes before it ends by itself: the warden then has nothing to do.
ORDERLY = b"."

_EVERY_S = 0.02
_MOST_KILLS = 500


def start_warden(instance_id: str, shutdown_command: str) -> subprocess.Popen[bytes]:
    """Start the warden of an agent; `dismiss_warden` ends it."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "spotline.agent.warden", instance_id, shutdown_command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def dismiss_warden(warden: subprocess.Popen[bytes]) -> None:
    """Tell the warden that the agent ends by itself."""
    if warden.stdin is not None:
        try:
            warden.stdin.write(ORDERLY)
            warden.stdin.close()
        except BrokenPipeError:
            pass  # it was killed before
    warden.wait()


def watch_over(agent: IO[bytes], instance_id: str, shutdown_command: str) -> None:
    """Wait for the agent's end; unless it ended by itself, kill its processes and shut down."""
    if agent.read().endswith(ORDERLY):
        return
    for _ in range(_MOST_KILLS):
        left = processes_of(f"{instance_id}/")
        if not left:
            break
        send_signal(left, signal.SIGKILL)
        time.sleep(_EVERY_S)
    if shutdown_command:
        subprocess.run(["sh", "-c", shutdown_command], check=False)  # noqa: S603, S607


if __name__ == "__main__":
    # A signal to the agent's process group must not end the warden first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_over(sys.stdin.buffer, sys.argv[1], sys.argv[2])
