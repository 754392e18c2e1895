#!/usr/bin/env bash
# Build the wheel with the given interpreter, install it with its locked dependencies in a clean
# environment, and call it and every service there, as an image does.
set -euo pipefail
cd "$(dirname "$0")/.."
build_python=$1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1

# From a copy: setuptools would leave build/ and egg-info in the checkout.
mkdir "$scratch/source"
cp -r pyproject.toml README.md LICENSE src "$scratch/source/"
rm -rf "$scratch"/source/src/*.egg-info
"$build_python" -m pip wheel --quiet --no-deps --no-build-isolation \
    --wheel-dir "$scratch/dist" "$scratch/source"
wheel=$(ls "$scratch"/dist/spotline-*.whl)
echo "built $(basename "$wheel"), $(du -k "$wheel" | cut -f1) KiB"

"${PYTHON:-python3}" -m venv "$scratch/venv"
# It is called once: what is not imported need not be compiled.
"$scratch/venv/bin/python" -m pip install --quiet --no-compile --require-hashes --only-binary :all: \
    -r requirements/runtime.txt
"$scratch/venv/bin/python" -m pip install --quiet --no-compile --no-deps "$wheel"
"$scratch/venv/bin/python" -m pip check
mkdir "$scratch/app"
cp -r services "$scratch/app/"
cd "$scratch/app" # away from the checkout, so that nothing but wheel and services can be imported
"$scratch/venv/bin/spotline" --version
"$scratch/venv/bin/python" - << 'CHECK'
import importlib.metadata
import importlib.resources

said = importlib.metadata.metadata("spotline")
if not importlib.resources.files("spotline").joinpath("py.typed").is_file():
    raise SystemExit("no py.typed in the wheel: type checkers would ignore its annotations")
if said["License-Expression"] != "Apache-2.0" or "LICENSE" not in (said.get_all("License-File") or ()):
    raise SystemExit("the wheel does not name its license, or does not carry it")
print("typed, licensed", said["License-Expression"])
CHECK

# What finds Faust's transport is the entry point of an installed package, no module on a path.
"$scratch/venv/bin/python" -c '
from importlib.metadata import entry_points
(nats,) = entry_points(group="faust.transports", name="nats")
nats.load()
import spotline.adapters.analytics.worker
'
# A setting that no service takes ends each one after all it imports at start.
for folder in services/*/; do
    service=$(basename "$folder")
    [ -f "$folder/__main__.py" ] || continue
    status=0
    said=$(SPOTLINE_PARTITION=none "$scratch/venv/bin/python" -m "services.$service" 2>&1) || status=$?
    if [ "$status" != 2 ] || [[ "$said" != *SPOTLINE_PARTITION* ]]; then
        echo "services.$service: expected exit 2 and a word on SPOTLINE_PARTITION, got $status: $said" >&2
        exit 1
    fi
    echo "services.$service starts"
done
