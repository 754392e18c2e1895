"""A training program's environment needs nothing of Spotline's own."""

import subprocess
import sys

from tests.fakes.agent_files import python_environ

PROGRAM = """
import sys
before = set(sys.modules)
from spotline.trainer import attach
attach()
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(loaded - set(sys.stdlib_module_names)))
print(sorted(name for name in sys.modules if name.startswith("spotline.")
             and not name.startswith("spotline.trainer")))
"""


def test_the_library_loads_the_standard_library_alone():
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=python_environ(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.splitlines() == ["['spotline']", "[]"]
