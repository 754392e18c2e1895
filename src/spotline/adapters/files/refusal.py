"""What a server refuses, in the words of the file that it was sent from.

A server names fields as its messages do, `job.throughputs[0].alpha`; the owner of the file wrote
`throughput.p4d.24xlarge.alpha_per_hour`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spotline.adapters.files.job_fields import rows
from spotline.adapters.files.mistake import BadFile, Mistake, mistake_of
from spotline.adapters.files.pipeline_file import pipeline_field
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.placement.submission import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedField:
    """What a server says of a request.

    Attributes
    ----------
    field
        Path of the message's field at fault, empty where none is.
    message
        A sentence; it may begin with the field.
    earliest_deadline
        The earliest deadline that could be met, ISO 8601; empty where that is not the matter.
    """

    field: str
    message: str
    earliest_deadline: str = ""


Sent = Job | JobDraft | Pipeline

_FIELD = re.compile(r"(?:job|draft|pipeline|jobs\[(?P<index>\d+)\])\.(?P<path>.+)")
_INDEX = re.compile(r"\[(\d+)\]")


def in_the_files_words(refusal: RefusedField, sent: Sequence[tuple[str, Sent]]) -> BadFile | None:
    """Say a refusal as a mistake in one of the files that were sent.

    Parameters
    ----------
    sent
        Path and content of each file, in the request's order.

    Returns
    -------
    BadFile
        The mistake, with the file it is in.
    None
        The refusal is of nothing that a file says, such as an option of the command.
    """
    match = _FIELD.fullmatch(refusal.field)
    index = int(match["index"] or 0) if match is not None else 0
    if match is None or index >= len(sent):
        return None
    path, content = sent[index]
    field = field_in_file(match["path"], content)
    if not field:
        return None
    sentence = refusal.message.removeprefix(refusal.field).lstrip(": ")
    return BadFile(path, [_mistake(field, sentence, refusal.earliest_deadline, content)])


def field_in_file(wire: str, content: Sent) -> str:
    """The file's path of a field of the message that `content` was sent as; empty without one."""
    if isinstance(content, Pipeline):
        return pipeline_field(wire)
    indices = [int(index) for index in _INDEX.findall(wire)]
    steps = _INDEX.sub(".[]", wire).split(".")
    for length in range(len(steps), 0, -1):
        known = ".".join(steps[:length]).replace(".[]", "[]")
        if known in _PATHS:
            break
    else:
        return ""
    path = _PATHS[known]
    if content.deadline.kind is DeadlineKind.SOFT and path == "deadline.hard":
        path = "deadline.soft"
    chosen = {
        "throughput": [throughput.offering for throughput in content.throughputs],
        "fine_tuning.options": [
            option.name for option in (content.options if isinstance(content, JobDraft) else ())
        ],
        "run.env": [variable.name for variable in (content.run.environment if content.run else ())],
    }
    if not indices:
        return path
    index = indices[0]
    for group, names in chosen.items():
        if path == group or path.startswith(f"{group}."):
            name = names[index] if index < len(names) else "<where>"
            below = path.removeprefix(group).removeprefix(".<where>")
            return f"{group}.{name}{below}"
    return path.replace("[]", f"[{index}]") if "[]" in path else f"{path}[{index}]"


def _paths() -> dict[str, str]:
    found: dict[str, str] = {}
    for path, row in rows():
        # Several fields may end up in the same one of a message: the first stands for them.
        found.setdefault(row.wire, path)
    found.pop("", None)
    return found


_PATHS = _paths()
# Words of messages that no file has.
_RENAMED = {wire: path for wire, path in _PATHS.items() if "_" in wire and "." not in wire}


def _mistake(field: str, sentence: str, earliest: str, content: Sent) -> Mistake:
    sentence = re.sub(r"[a-z]\w+", lambda word: _RENAMED.get(word[0], word[0]), sentence)
    if earliest:
        found = f"one that {sentence}" if sentence.startswith("cannot ") else sentence
        return Mistake(field=field, expected=f"a deadline of {earliest} or later", found=found)
    said = mistake_of(sentence, field=field)
    if said.found != sentence:
        inner = field_in_file(said.field, content)
        return Mistake(field=inner or field, expected=said.expected, found=said.found)
    return Mistake(field=field, expected="another value", found=f"one that is refused: {sentence}")
