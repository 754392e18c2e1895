"""Are the images of others named by digest? And where a registry answers: name them so.

`python -m tools.supply.pin --check` looks at the files alone (`make docker-lint`). Without it
(`make pin-images`) the registry of each image is asked what its tag stands for now, and the
Dockerfiles and compose files are rewritten; what an image holds is then to be looked up and written
into deploy/images.toml, which the check insists on.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from tools.supply.images import ROOT, Image, files, named, problems, table, used
from tools.supply.registry import RegistryError, digest_of


def check(root: Path, today: date) -> list[str]:
    """What is wrong with the images that a deployment names."""
    return list(problems(used(root), table(root), today))


def pin(root: Path, ask: Callable[[Image], str]) -> list[str]:
    """Rewrite every file with the digests of today; say what moved.

    Raises
    ------
    RegistryError
        A registry did not answer; then nothing was written.
    """
    digests = {image.name: ask(image) for image in {image for _, image in used(root)}}
    moved = []
    for path in files(root):
        text = before = path.read_text()
        for image in named(path, text):
            to = Image(name=image.name, digest=digests[image.name])
            if to != image:
                # A tag ends where it ends: v3.0.1 is no part of v3.0.10.
                text = re.sub(rf"{re.escape(image.pinned)}(?![\w.@-])", to.pinned, text)
                moved.append(f"{path.relative_to(root)}: {to.pinned}")
        if text != before:
            path.write_text(text)
    return moved


def main() -> None:
    """Check or pin; exit 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="ask no registry, write nothing")
    arguments = parser.parse_args()
    if not arguments.check:
        try:
            moved = pin(ROOT, digest_of)
        except RegistryError as error:
            sys.exit(f"nothing was written: {error}")
        print("\n".join(moved) or "every image is what its tag stands for")
    found = check(ROOT, datetime.now(UTC).date())
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        pinned = sum(1 for _, image in used(ROOT) if image.digest)
        print(f"images: {pinned} of {len(used(ROOT))} uses are by digest, the others dated")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
