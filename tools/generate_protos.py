"""Generate the Python of `protos/` into a source tree, or check that what is there is up to date.

protoc runs as a subprocess: in one process with ortools it aborts. The path of each proto file
equals its package path, so the generated imports are right as they come.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGE = Path("spotline/api/v1")
SERVICE = re.compile(r"^service\s", re.MULTILINE)
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(target: Path) -> None:
    """Write modules, gRPC stubs and type stubs below `target`.

    Raises
    ------
    SystemExit
        There is no proto file, or protoc refused one; its message has been printed.
    """
    protos = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / PACKAGE).glob("*.proto"))
    if not protos:
        sys.exit(f"no .proto file in {PROTOS / PACKAGE}")
    with_services = [name for name in protos if SERVICE.search((PROTOS / name).read_text())]
    protoc(target, "python", "mypy", protos=protos)
    if with_services:
        protoc(target, "grpc_python", "mypy_grpc", protos=with_services)


def protoc(target: Path, *outputs: str, protos: list[str]) -> None:
    """Run protoc in a process of its own, with the plugins of this interpreter's environment."""
    plugins = Path(sys.executable).parent
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}"),
        f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
        *(
            f"--{output}_out={'quiet:' if output.startswith('mypy') else ''}{target}"
            for output in outputs
        ),
        *protos,
    ]
    if subprocess.run(command, check=False, cwd=ROOT).returncode:
        sys.exit("protoc refused the protos, see above")


def generated_files(tree: Path) -> dict[str, Path]:
    """Names and paths of the generated files of a tree."""
    return {
        path.name: path for pattern in GENERATED for path in sorted((tree / PACKAGE).glob(pattern))
    }


def differences(fresh: Path, committed: Path) -> list[str]:
    """One line per generated file that is missing, stale or left over."""
    new, old = generated_files(fresh), generated_files(committed)
    found = [f"missing: {PACKAGE / name}" for name in sorted(new.keys() - old.keys())]
    found += [f"left over: {PACKAGE / name}" for name in sorted(old.keys() - new.keys())]
    found += [
        f"stale: {PACKAGE / name}"
        for name in sorted(new.keys() & old.keys())
        if not filecmp.cmp(new[name], old[name], shallow=False)
    ]
    return found


def main() -> None:
    """Parse the command line and generate or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="root of the Python sources, e.g. src")
    parser.add_argument("--check", action="store_true", help="change nothing, fail on drift")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        if arguments.check:
            if found := differences(fresh, arguments.tree):
                sys.exit(
                    "\n".join([*found, "generated code differs from protos/: run make protos"])
                )
            return
        for path in generated_files(arguments.tree).values():
            path.unlink()
        for name, path in generated_files(fresh).items():
            destination = arguments.tree / PACKAGE / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, destination)


if __name__ == "__main__":
    main()
