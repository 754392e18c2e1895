#!/usr/bin/env bash
# Create (or bring up to date) the environment that builds the documents, from a lock of its own: the
# site reads sources and pages as they stand, so nothing of Spotline is installed. Safe to repeat.
set -euo pipefail
venv=$1
lock=$2
python=${PYTHON:-python3}

# A broken environment (moved, or its interpreter gone) is replaced, not repaired.
if ! "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "setup: installing $(grep -c '==' "$lock") locked packages into $venv"
"$venv/bin/python" -m pip install --quiet --require-hashes --only-binary :all: -r "$lock"
echo "setup: done, $venv builds the documents"
