#!/usr/bin/env bash
# Run make targets one by one; print one line each, the output of those that fail, and how to run
# them again. Exits 1 when any failed.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for name in "$@"; do
    start=$SECONDS
    if make "$name" > "$log" 2>&1; then
        printf 'ok    %-14s %3d s\n' "$name" $((SECONDS - start))
    else
        printf 'FAIL  %-14s %3d s\n' "$name" $((SECONDS - start))
        sed 's/^/      /' "$log"
        failed+=("$name")
    fi
done

if ((${#failed[@]})); then
    printf '\n%d of %d checks failed. Run again:\n' "${#failed[@]}" $#
    printf '  make %s\n' "${failed[@]}"
    exit 1
fi
printf '\nall %d checks passed\n' $#
