import io
import os
import subprocess
import sys

from spotline.agent.processes import MARKER
from spotline.agent.warden import ORDERLY, dismiss_warden, start_warden, watch_over


def test_an_orderly_end_leaves_everything_to_the_agent(tmp_path):
    watch_over(io.BytesIO(ORDERLY), "i-1", f"touch {tmp_path}/shut")

    assert not (tmp_path / "shut").exists()


def test_what_a_killed_agent_leaves_is_killed_and_the_instance_shut_down(tmp_path):
    instance_id = f"test-{os.getpid()}-{tmp_path.name}"
    left, other = (
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            env={**os.environ, MARKER: marker},
        )
        for marker in (f"{instance_id}/3/1.0", f"{instance_id}0/3/1.0")
    )

    try:
        watch_over(io.BytesIO(b""), instance_id, f"touch {tmp_path}/shut")

        assert left.wait(timeout=60) == -9
        assert other.poll() is None
        assert (tmp_path / "shut").exists()
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def test_a_warden_goes_when_it_is_dismissed(tmp_path):
    warden = start_warden("i-1", f"touch {tmp_path}/shut")

    dismiss_warden(warden)

    assert warden.returncode == 0
    assert not (tmp_path / "shut").exists()


def test_a_warden_that_was_killed_is_no_reason_to_fail():
    warden = start_warden("i-1", "")
    warden.kill()
    warden.wait()

    dismiss_warden(warden)
