#!/usr/bin/env bash
# Create (or bring up to date) the training environment: Spotline, the trainers that it has callbacks
# for, and pytest, from the lock; and torch, of which every index serves builds of its own.
# TORCH names another one, with the options that pip needs for it:
#   make setup-train TORCH="torch==2.13.0 --index-url URL"
set -euo pipefail
venv=$1
lock=$2
torch=${TORCH:-torch==2.13.0}

# The versions that Spotline was tried with; hashes for all but torch, which is checked by version.
PYTHON="${PYTHON:-python3}" tools/setup.sh "$venv" "$lock" --no-deps
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "setup: installing $torch (hundreds of MB the first time)"
# Unquoted: it may hold options. What the lock holds already stays; CUDA's libraries come along.
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install --quiet --only-binary :all: $torch
"$venv/bin/python" -m pip check
echo "setup: done, $venv trains"
