#!/usr/bin/env bash
# Create (or bring up to date) the virtual environment from the lock. Safe to repeat.
# Further words are options of pip.
set -euo pipefail
venv=$1
lock=$2
shift 2
python=${PYTHON:-python3}

refuse() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

command -v "$python" > /dev/null ||
    refuse "$python not found: install Python 3.11 or newer, or say make PYTHON=/path/to/python3"
"$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' ||
    refuse "$("$python" --version) is too old: Spotline needs Python 3.11 or newer" \
        "another one is named by make PYTHON=/path/to/python3.12"
"$python" -c 'import ensurepip, venv' 2> /dev/null ||
    refuse "$python has no venv module (on Debian and Ubuntu: apt-get install python3-venv)"

# A broken environment (moved, or its interpreter gone) is replaced, not repaired.
if ! "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "setup: installing $(grep -c '==' "$lock") locked packages into $venv (about a minute the first time)"
# Wheels only: a source build would fetch build dependencies that no hash vouches for. pip would compile
# 12,000 modules one after the other, three quarters of a minute: they are compiled below, on all processors.
"$venv/bin/python" -m pip install --quiet --no-compile --require-hashes --only-binary :all: "$@" -r "$lock" ||
    refuse "the locked packages could not be installed; pip's message above says which and why"
"$venv/bin/python" -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
# Not the tests of packages, which nobody imports; what is for other Pythons does not compile, and need not.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m compileall -qq -j 0 -x '/tests?/' "$site" || true
echo "setup: done, $venv/bin/spotline is ready"
