#!/usr/bin/env bash
# Resolve the dependencies of pyproject.toml into requirements/, with hashes, for every platform and
# for Python 3.11 to 3.13. Pins that still fit are kept; pass --upgrade to move them.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8
# As tools/setup_train.sh installs it.
TORCH_VERSION=2.13.0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"

# No index line is written: whoever installs uses the index their own pip is set up with.
compile() {
    "$scratch/venv/bin/uv" pip compile pyproject.toml "$@" \
        --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock"
}

# What a deployment may have. Trainers are no part of one: they run in environments of their own.
deployed=(--extra aws --extra kubernetes --extra postgresql)

# Resolved once with everything, so that the files agree with each other. The committed pins are the
# starting point.
cat requirements/lock.txt requirements/clouds.txt requirements/train.txt \
    > "$scratch/all.txt" 2> /dev/null || true
echo "torch==$TORCH_VERSION" > "$scratch/torch.txt"
compile --group dev "${deployed[@]}" --extra train --constraints "$scratch/torch.txt" \
    --output-file "$scratch/all.txt" "$@"
pins="$scratch/pins.txt"
grep -oE '^[A-Za-z0-9._-]+==[^ ;]+( ;[^\\]*)?' "$scratch/all.txt" > "$pins"

# Everything a checkout needs: runtime and development.
compile --constraints "$pins" --group dev --output-file requirements/lock.txt
# What an image or a clean installation needs.
compile --constraints "$pins" --output-file requirements/runtime.txt
# The same with the clients of the real clouds, and PostgreSQL's driver.
compile --constraints "$pins" "${deployed[@]}" --output-file requirements/clouds.txt
# A training environment: Spotline, its trainers and what runs tests, but torch. Torch's builds (CPU,
# CUDA of some version, ROCm) have the same name and other bytes on every index, and each brings
# packages of its own: a hash of one would refuse all others. tools/setup_train.sh adds torch by version.
{
    echo "# Without torch and what it brings: tools/setup_train.sh installs torch==$TORCH_VERSION,"
    echo "# or what TORCH names."
    compile --constraints "$pins" --extra train --extra aws --group test --output-file "$scratch/train.txt" \
        > /dev/null
    awk '/^[^ #]/ { kept = !/^(torch|triton|nvidia-[^=]*|cuda-[^=]*)==/ } kept || /^#/' \
        "$scratch/train.txt"
} > requirements/train.txt
# What builds the documents: nothing of Spotline runs there, so it need not agree with the others.
"$scratch/venv/bin/uv" pip compile --group docs --output-file requirements/docs.txt \
    --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" "$@"
# What builds the wheel, from the lock of a checkout.
{
    echo "# Cut out of lock.txt by: make lock"
    awk '/^[^ #]/ { kept = /^setuptools==/ } /^[^#]/ && kept' requirements/lock.txt
} > requirements/build.txt
