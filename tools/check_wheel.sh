#!/usr/bin/env bash
# Build the wheel with the given interpreter, install it with its locked dependencies in a clean
# environment, and call it there.
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
"$scratch/venv/bin/python" -m pip install --quiet --require-hashes --only-binary :all: \
    -r requirements/runtime.txt
"$scratch/venv/bin/python" -m pip install --quiet --no-deps "$wheel"
"$scratch/venv/bin/python" -m pip check
cd "$scratch" # away from the checkout, so that nothing but the wheel can be imported
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
