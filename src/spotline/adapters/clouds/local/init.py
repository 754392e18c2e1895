"""The first process of an instance: it starts the command, and nothing below it survives it.

`python -m spotline.adapters.clouds.local.init FOLDER` reads `spec.json` of its folder, which it
removes since it may hold a token, and says in `end.json` how it ended. SIGTERM asks for the end:
the command gets it too and has its grace, then everything below is killed, also what made a session
of its own. Standard library only, and little of it: it is to start quickly and to stay small.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.console import CONSOLE, Console
from spotline.adapters.clouds.local.processes import Process

SPEC, BEGUN, END, LOCK = "spec.json", "begun.json", "end.json", "lock"
# Another first process of this instance is there already.
EXIT_TAKEN = 17
# How a command ends that could not be started: as a shell says it.
EXIT_NOT_STARTED = 127

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_HEARD = {signal.SIGTERM, signal.SIGCHLD}
# How often the share of the CPU is seen to, and how often new processes are looked for.
_TICK_S, _LOOK_S, _IDLE_S = 0.02, 0.1, 3600.0
# What is not used of the share is kept for this long.
_SAVED_S = 0.2
_END_S = 10.0
# When all has ended, what it wrote last is there: only another's process can hold the pipe.
_LAST_WORDS_S = 1.0


def write_aside(path: str, content: object) -> None:
    """Write JSON so that a reader sees all of it or nothing."""
    aside = f"{path}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.rename(aside, path)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _start_command(spec: dict[str, Any], output: int) -> int:
    """Start the command as its user, writing into `output`; it is killed if this process is."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        if spec["uid"] is not None:
            os.setgroups(spec["groups"])
            os.setgid(spec["gid"])
            os.setuid(spec["uid"])
        # After the user has changed, which takes it away.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(EXIT_NOT_STARTED)
        os.setpgid(0, 0)
        os.chdir(spec["cwd"])
        os.umask(0o077)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Python ignores these, and what is ignored stays so: pipelines would not end as in a shell.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{spec['argv'][0]}: {error}\n".encode())
    os._exit(EXIT_NOT_STARTED)


def own_process() -> Process:
    """The process that asks."""
    process = processes.process_of(os.getpid())
    assert process is not None, "it runs"  # noqa: S101 - what runs this line
    return process


class CpuShare:
    """Keeps what runs below to its share of the CPU: by a cgroup, else by stopping it in turns.

    `spared` is the pid of a process that is not counted and not stopped, 0 for none.
    """

    def __init__(self, spec: dict[str, Any], spared: int) -> None:
        self._own = own_process()
        self._group: str = spec["cgroup"]
        self._share: float = spec["cpu_share"]
        self._spared = spared
        self._below: list[Process] = []
        self._used: dict[Process, float] = {}
        self._credit_s = 0.0
        self._stopped = False
        self._seen_s = self._looked_s = time.monotonic()
        self._moved: set[Process] = set()

    @property
    def every_s(self) -> float:
        """How often `keep` must be called."""
        if self._group:
            return _LOOK_S if self._spared else _IDLE_S
        return _TICK_S if self._share else _IDLE_S

    def keep(self) -> None:
        """Measure what was used, and stop or continue what runs."""
        now_s = time.monotonic()
        if self._group:
            if self._spared:
                self._look()
                self._move()
        elif self._share:
            if now_s - self._looked_s >= _LOOK_S or not self._below:
                self._looked_s = now_s
                self._look()
            self._take_turns(now_s)

    def release(self) -> None:
        """Continue everything that was stopped."""
        self._signal(signal.SIGCONT)
        self._stopped = False

    def _look(self) -> None:
        self._below = [
            process for process in processes.descendants(self._own) if process[0] != self._spared
        ]

    def _move(self) -> None:
        for process in self._below:
            if process in self._moved:
                continue
            try:
                with open(self._group, "w", encoding="ascii") as file:
                    file.write(str(process[0]))
            except ProcessLookupError:
                continue
            self._moved.add(process)
        self._moved.intersection_update(self._below)

    def _take_turns(self, now_s: float) -> None:
        used = {process: processes.cpu_s(process) for process in self._below}
        spent_s = sum(
            max(0.0, used_s - self._used.get(process, 0.0)) for process, used_s in used.items()
        )
        self._used = used
        self._credit_s += self._share * (now_s - self._seen_s) - spent_s
        self._credit_s = min(self._credit_s, self._share * _SAVED_S)
        self._seen_s = now_s
        if self._credit_s <= 0:
            # Again for those that are new.
            self._signal(signal.SIGSTOP)
            self._stopped = True
        elif self._stopped:
            self.release()

    def _signal(self, number: int) -> None:
        for process in self._below:
            processes.send(process, number)


class Init:
    """Runs one instance to its end."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._folder, self._spec = folder, spec
        self._command = 0
        self._status: int | None = None
        self._stop_by_s: float | None = None

    def run(self) -> dict[str, Any]:
        """Start the command, wait for its end or for SIGTERM; says how it ended."""
        spec = self._spec
        if spec["cgroup"] and not spec["spare_command"]:
            with open(spec["cgroup"], "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        console = self._start()
        share = CpuShare(spec, self._command if spec["spare_command"] else 0)
        how = "exited"
        while self._status is None:
            if self._stop_by_s is not None and time.monotonic() >= self._stop_by_s:
                how = "killed"
                break
            self._hear(share)
            share.keep()
            self._reap()
        if how == "exited" and self._stop_by_s is not None:
            how = "stopped"
        self._end_all()
        console.join(_LAST_WORDS_S)
        return {"how": how, "status": self._status, "at_s": time.time()}

    def _start(self) -> threading.Thread:
        """Start the command, and what keeps its console within bounds."""
        console = Console(os.path.join(self._folder, CONSOLE))
        reading, writing = os.pipe()
        self._command = _start_command(self._spec, writing)
        os.close(writing)
        thread = threading.Thread(target=console.follow, args=(reading,), daemon=True)
        thread.start()
        return thread

    def _hear(self, share: CpuShare) -> None:
        wait_s = share.every_s
        if self._stop_by_s is not None:
            wait_s = min(wait_s, max(0.0, self._stop_by_s - time.monotonic()))
        heard = signal.sigtimedwait(_HEARD, wait_s)
        if heard is not None and heard.si_signo == signal.SIGTERM and self._stop_by_s is None:
            self._stop_by_s = time.monotonic() + self._spec["stop_grace_s"]
            share.release()
            self._ask(signal.SIGTERM)

    def _ask(self, number: int) -> None:
        if self._status is None:
            # It is our child and not reaped: the pid is its own.
            os.kill(self._command, number)

    def _reap(self) -> bool:
        """Take the ends of what has ended below; whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        """Kill everything below; what loses its parent becomes our child."""
        deadline_s = time.monotonic() + _END_S
        while self._reap() and time.monotonic() < deadline_s:
            for process in processes.descendants(own_process()):
                processes.send(process, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def main(folder: str) -> int:
    """Be the first process of the instance of `folder`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return EXIT_TAKEN
    end = os.path.join(folder, END)
    try:
        with open(os.path.join(folder, SPEC), encoding="utf-8") as file:
            spec = json.load(file)
        os.remove(os.path.join(folder, SPEC))
        write_aside(os.path.join(folder, BEGUN), own_process())
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        write_aside(end, Init(folder, spec).run())
    except OSError as error:
        write_aside(end, {"how": "failed", "problem": str(error), "at_s": time.time()})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
