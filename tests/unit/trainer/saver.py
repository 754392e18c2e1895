"""A program that saves as fast as it can, and may be killed within a save.

    python saver.py STEPS SIZE_BYTES
    python saver.py every-call

Its files say what they must hold. With `SIZE_BYTES` > 0 no file of its can grow beyond that, as on
a full disk. `every-call` dies at each of the calls by which a save reaches the disk.
"""

import itertools
import os
import pathlib
import resource
import shutil
import signal
import sys

from spotline.trainer import attach

FILES = 4
BLOCK = 40_000


def content(step, index):
    return f"{step}/{index};".encode() * (BLOCK // 4)


def holds(folder, step):
    """Whether all files are those that were saved at this step."""
    return all(
        (folder / "shards" / f"{index}.bin").read_bytes() == content(step, index)
        for index in range(FILES)
    )


def kill_at(call):
    """Die at the n-th of the calls that make a save durable."""
    seen = [0]

    def counting(real):
        def called(*words, **more):
            seen[0] += 1
            if seen[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **more)

        return called

    os.fsync = counting(os.fsync)
    pathlib.Path.rename = counting(pathlib.Path.rename)
    pathlib.Path.mkdir = counting(pathlib.Path.mkdir)
    os.unlink = counting(os.unlink)
    os.rmdir = counting(os.rmdir)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def train(session, step, steps):
    """Save after every step."""
    for _ in range(steps):
        step += 1
        if session.should_checkpoint(step):
            with session.checkpoint(step=step, done=step) as saving:
                (saving.path / "shards").mkdir()
                for index in range(FILES):
                    (saving.path / "shards" / f"{index}.bin").write_bytes(content(step, index))
            if saving.committed:
                say("saved", step)
    say("trained", step)


def die_at_every_call(store):
    """Save three times; then once again, killed at each call in turn, and say what is found."""
    session = attach(interval_s=1e-9)
    train(session, 0, 3)
    kept = store.with_name("kept")
    shutil.copytree(store, kept)
    for call in itertools.count(1):
        shutil.rmtree(store)
        shutil.copytree(kept, store)
        child = os.fork()
        if child == 0:
            kill_at(call)
            train(session, 3, 1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = attach().resume()
        say("killed", code, found.step, holds(found.path, found.step))
        if code == 0:
            return


def main():
    if sys.argv[1] == "every-call":
        die_at_every_call(pathlib.Path(os.environ["SPOTLINE_CHECKPOINT_URI"]))
        return
    steps, size_bytes = (int(word) for word in sys.argv[1:])
    session = attach(interval_s=1e-9)
    found = session.resume()
    step = found.step if found else 0
    say("ready", step)
    if size_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
    train(session, step, steps)


if __name__ == "__main__":
    main()
