#!/usr/bin/env bash
# Is the browser there that `make test-web` drives? Says how to get it where it is not, and exits with 2.
set -euo pipefail
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
if [ -z "$browser" ] || ! [ -x "$browser" ]; then
    printf '%s\n' >&2 \
        "test-web: Chromium is needed, found none${CHROMIUM:+ at $CHROMIUM}" \
        "  Debian, Ubuntu:  sudo apt-get install chromium" \
        "  elsewhere:       install Chromium or Chrome, and say CHROMIUM=/path/to/it make test-web"
    exit 2
fi
