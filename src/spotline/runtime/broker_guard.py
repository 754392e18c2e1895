"""The process between an embedded broker and its owner, so that neither outlives the other.

Started as a plain script, it needs nothing but the standard library. Its stdin is a pipe from the
owner: the end of file, by a close or by the owner's death of any kind, stops the server.

    broker_guard.py SERVER CONFIG LOG LOCK_FD [STORE_TO_REMOVE]
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading

_STOP_S = 10.0
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the server until it ends or the owner does; print its pid, then its exit code."""
    server_path, config_path, log_path, lock_fd, *to_remove = arguments
    # A terminal's Ctrl-C reaches the owner; it alone says when the server may go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(log_path, "ab") as log:
        server = subprocess.Popen(  # noqa: S603 - the owner names its own binary
            [server_path, "-c", config_path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # The server holds the store's lock itself: it is free when the server is gone.
            pass_fds=(int(lock_fd),),
            preexec_fn=_end_with_parent,
        )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    _tell(server.pid)
    watch = threading.Thread(target=_stop_at_end_of_file, args=(server,), daemon=True)
    watch.start()
    code = server.wait()
    _tell(code)
    # The owner may still read the log of a server that failed.
    watch.join()
    for path in to_remove:
        shutil.rmtree(path, ignore_errors=True)
    return code


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop_at_end_of_file(server: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 64):
        pass
    server.terminate()
    try:
        server.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()


def _tell(number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), f"{number}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
