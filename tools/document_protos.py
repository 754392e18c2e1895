"""Write docs/api/services.md and docs/api/messages.md from the comments and types of `protos/`.

python -m tools.document_protos            write them
python -m tools.document_protos --check    exit 1 where they are not as written
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "api"
PACKAGE = ".spotline.api.v1."
_MADE = (
    "<!-- Made by `python -m tools.document_protos` from protos/; a test holds it to them. -->\n"
)
_SERVICES = f"""# gRPC services

{_MADE}
What each server answers. [Writing a client](../clients.md) has addresses, tokens, request ids, errors and limits;
[Who may do what](../access.md) has which role may call a method. Messages that several services and the event log share are
in [Messages and events](messages.md). Money is integer micro-USD, times are nanoseconds since the epoch.
"""
_MESSAGES = f"""# Messages and events

{_MADE}
What services and the event log share, file by file. A message whose comment names a subject is an event; which
subjects a client may follow, and their headers, is in [asyncapi.yaml](../asyncapi.yaml).
"""
# The places of parts in a descriptor, by which source information names them.
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_FIELD, _NESTED, _NESTED_ENUM = 2, 3, 4
_METHOD, _VALUE = 2, 2
_SCALARS = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True)
class _Source:
    """A proto file with the comments of its parts."""

    file: FileDescriptorProto
    comments: dict[tuple[int, ...], str] = field(default_factory=dict)

    @property
    def has_services(self) -> bool:
        return bool(self.file.service)

    def comment(self, *path: int) -> str:
        """What is said above a part, in one line a paragraph."""
        paragraphs = self.comments.get(path, "").strip().split("\n\n")
        return "\n\n".join(re.sub(r"\s+", " ", text).strip() for text in paragraphs)


def documents() -> dict[Path, str]:
    """The pages as they should be.

    Raises
    ------
    subprocess.CalledProcessError
        protoc refused a proto file.
    """
    sources = _sources()
    homes = {
        name: "services.md" if source.has_services else "messages.md"
        for source in sources
        for name in _names(source.file)
    }
    pages = {}
    for name, head in (("services.md", _SERVICES), ("messages.md", _MESSAGES)):
        parts = [head]
        for source in sources:
            if source.has_services == (name == "services.md"):
                parts += _file(source, _Links(name, homes))
        pages[PAGES / name] = "\n".join(parts).rstrip() + "\n"
    return pages


@dataclass(frozen=True)
class _Links:
    """Where the section of a message is, seen from a page."""

    page: str
    homes: dict[str, str]

    def to(self, type_name: str) -> str:
        name = type_name.removeprefix(PACKAGE)
        if name not in self.homes:
            return f"`{name.removeprefix('.')}`"
        home = "" if self.homes[name] == self.page else self.homes[name]
        return f"[{name}]({home}#{re.sub(r'[^a-z0-9_]', '', name.lower())})"


def _sources() -> list[_Source]:
    """All proto files, read by protoc in a process of its own: in one with ortools it aborts."""
    protos = ROOT / "protos"
    names = sorted(path.relative_to(protos).as_posix() for path in protos.rglob("*.proto"))
    made = subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={protos}"),
            *("--include_source_info", "--descriptor_set_out=/dev/stdout", *names),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    return [
        _Source(
            file,
            {
                tuple(place.path): place.leading_comments
                for place in file.source_code_info.location
                if place.leading_comments
            },
        )
        for file in sorted(FileDescriptorSet.FromString(made.stdout).file, key=lambda f: f.name)
    ]


def _names(file: FileDescriptorProto) -> Iterator[str]:
    for message in file.message_type:
        yield from _names_in(message, "")
    yield from (enum.name for enum in file.enum_type)


def _names_in(message: DescriptorProto, outer: str) -> Iterator[str]:
    name = f"{outer}{message.name}"
    yield name
    yield from (f"{name}.{enum.name}" for enum in message.enum_type)
    for inner in message.nested_type:
        if not inner.options.map_entry:
            yield from _names_in(inner, f"{name}.")


def _file(source: _Source, linked: _Links) -> Iterator[str]:
    if not (source.file.service or source.file.message_type or source.file.enum_type):
        return
    for number, service in enumerate(source.file.service):
        yield from _service(source, linked, service, (_SERVICE, number))
    if not source.has_services:
        yield f"## {Path(source.file.name).name}\n"
    for number, enum in enumerate(source.file.enum_type):
        yield from _enum(source, enum, enum.name, (_ENUM, number))
    for number, message in enumerate(source.file.message_type):
        yield from _message(source, linked, message, "", (_MESSAGE, number))


def _service(
    source: _Source, linked: _Links, service: ServiceDescriptorProto, path: tuple[int, ...]
) -> Iterator[str]:
    yield f"## {service.name}\n"
    yield f"{source.comment(*path)}\n"
    yield "| method | takes | answers | does |\n|---|---|---|---|"
    for number, method in enumerate(service.method):
        takes = ("stream of " if method.client_streaming else "") + linked.to(method.input_type)
        answers = ("stream of " if method.server_streaming else "") + linked.to(method.output_type)
        meaning = _cell(source.comment(*path, _METHOD, number))
        yield f"| `{method.name}` | {takes} | {answers} | {meaning} |"
    yield ""


def _message(
    source: _Source,
    linked: _Links,
    message: DescriptorProto,
    outer: str,
    path: tuple[int, ...],
) -> Iterator[str]:
    name = f"{outer}{message.name}"
    yield f"### {name}\n"
    if comment := source.comment(*path):
        yield f"{comment}\n"
    if message.field:
        yield "| no. | field | type | meaning |\n|---|---|---|---|"
        for number, part in enumerate(message.field):
            meaning = _cell(source.comment(*path, _FIELD, number))
            kind = _type(message, part, linked)
            yield f"| {part.number} | `{part.name}` | {kind} | {meaning} |"
        yield ""
    for number, enum in enumerate(message.enum_type):
        yield from _enum(source, enum, f"{name}.{enum.name}", (*path, _NESTED_ENUM, number))
    for number, inner in enumerate(message.nested_type):
        if not inner.options.map_entry:
            yield from _message(source, linked, inner, f"{name}.", (*path, _NESTED, number))


def _enum(
    source: _Source, enum: EnumDescriptorProto, name: str, path: tuple[int, ...]
) -> Iterator[str]:
    yield f"### {name}\n"
    if comment := source.comment(*path):
        yield f"{comment}\n"
    yield "| no. | value | meaning |\n|---|---|---|"
    for number, value in enumerate(enum.value):
        yield f"| {value.number} | `{value.name}` | {_cell(source.comment(*path, _VALUE, number))} |"
    yield ""


def _type(message: DescriptorProto, part: FieldDescriptorProto, linked: _Links) -> str:
    for inner in message.nested_type:
        if inner.options.map_entry and part.type_name.endswith(f"{message.name}.{inner.name}"):
            key, value = inner.field
            return f"map of {_single(key, linked)} to {_single(value, linked)}"
    single = _single(part, linked)
    if part.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {single}"
    if part.proto3_optional:
        return f"optional {single}"
    if part.HasField("oneof_index"):
        return f"{single}, one of `{message.oneof_decl[part.oneof_index].name}`"
    return single


def _single(part: FieldDescriptorProto, linked: _Links) -> str:
    return linked.to(part.type_name) if part.type_name else _SCALARS[part.type]


def _cell(text: str) -> str:
    # A bracket that is none of ours would be read as a link, and a bar as the end of the cell.
    return re.sub(r"\n+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    differ = 0
    for path, text in documents().items():
        written: Any = path.read_text(encoding="utf-8") if path.exists() else None
        if written == text:
            continue
        differ = 1
        if not check:
            path.write_text(text, encoding="utf-8")
    return differ if check else 0


if __name__ == "__main__":
    raise SystemExit(main())
