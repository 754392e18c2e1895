"""Job files as commands take them: from paths and standard input, at the market's time, packed."""

# What packs and what knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from spotline.cli.calls import EXIT_BAD_INPUT, EXIT_REFUSED, answered, fail

if TYPE_CHECKING:
    from spotline.adapters.files.job_file import StatedJob
    from spotline.adapters.files.mistake import BadFile
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job
    from spotline.domain.jobs.run import RunPackage

STDIN = "-"
_STDIN_NAME = Path("stdin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyJob:
    """A job that can be sent: the file it is from, and its package where it has one."""

    file: Path
    job: Job | JobDraft
    archive: Path | None = None

    @property
    def package(self) -> RunPackage | None:
        """What is to be stored before it is submitted."""
        return None if self.job.run is None else self.job.run.package


def stated_jobs(files: Sequence[Path], *, as_json: bool) -> list[tuple[Path, StatedJob]]:
    """Read all files (`-` is standard input); ends the command with every mistake in any of them."""
    from spotline.adapters.files.mistake import BadFile

    if sum(str(file) == STDIN for file in files) > 1:
        fail(EXIT_BAD_INPUT, "-: expected standard input once, found it twice", as_json=as_json)
    read: list[tuple[Path, StatedJob]] = []
    bad: list[BadFile] = []
    for file in files:
        try:
            read.append(_stated(file))
        except BadFile as error:
            bad.append(error)
    if bad:
        _fail_files(bad, as_json=as_json)
    return read


def _stated(file: Path) -> tuple[Path, StatedJob]:
    from spotline.adapters.files.job_file import parse_stated_job, read_stated_job
    from spotline.adapters.files.yaml_file import ONE_DOCUMENT, decoded

    if str(file) != STDIN:
        return file, read_stated_job(file)
    content = sys.stdin.buffer.read(ONE_DOCUMENT.most_bytes + 1)
    where = str(_STDIN_NAME)
    text = decoded(content, where=where, limits=ONE_DOCUMENT)
    return _STDIN_NAME, parse_stated_job(text, where=where, folder=Path())


def owned_jobs(
    stated: Sequence[tuple[Path, StatedJob]], address: str, *, as_json: bool
) -> list[tuple[Path, StatedJob]]:
    """The files, as the token's tenant's where they do not say whose they are."""
    if not any(job.needs_tenant for _, job in stated):
        return list(stated)
    tenant = tenant_of_token(address, as_json=as_json)
    return [(file, job.of_tenant(tenant)) for file, job in stated]


def tenant_of_token(address: str, *, as_json: bool) -> str:
    """The tenant of the token that is shown at an address, empty where it is of none."""
    from spotline.adapters.grpc.identity.client import IdentityClient
    from spotline.adapters.identity.endpoints import client_identity

    # Who shows no token is of no tenant, and need not be asked.
    if client_identity(address) is None:
        return ""

    async def ask() -> str:
        async with IdentityClient(address) as client:
            caller = await client.who_am_i()
            return "" if caller is None else caller.tenant

    return answered(ask(), as_json=as_json)


def market_ns(
    stated: Sequence[tuple[Path, StatedJob]], address: str, *, as_json: bool
) -> int | None:
    """Market time where a deadline counts from it, None where none does."""
    from spotline.adapters.grpc.allocator.client import JobClient

    if not any(job.needs_clock for _, job in stated):
        return None

    async def ask() -> int | None:
        async with JobClient(address) as client:
            clock = (await client.market()).clock
            return None if clock is None else clock.market_ns

    now_ns = answered(ask(), as_json=as_json)
    if now_ns is None:
        message = (
            "no market is open yet that says from when a deadline counts; try again when one is"
        )
        fail(EXIT_REFUSED, message, as_json=as_json)
    return now_ns


def planned_jobs(
    stated: Sequence[tuple[Path, StatedJob]], now_ns: int | None, *, as_json: bool
) -> list[ReadyJob]:
    """The jobs as they would be submitted now, without what would be packed for them."""
    from spotline.adapters.files.mistake import BadFile, bad_file

    ready: list[ReadyJob] = []
    bad: list[BadFile] = []
    for file, job in stated:
        try:
            if job.workdir is not None and not job.workdir.is_dir():
                raise bad_file(job.where, "run.workdir", "a folder", f"none at {job.workdir}")
            ready.append(ReadyJob(file=file, job=job.resolved(now_ns=now_ns)))
        except BadFile as error:
            bad.append(error)
    if bad:
        _fail_files(bad, as_json=as_json)
    return ready


@contextmanager
def packed_jobs(
    stated: Sequence[tuple[Path, StatedJob]],
    now_ns: int | None,
    *,
    package_mb: float,
    as_json: bool,
) -> Iterator[list[ReadyJob]]:
    """The jobs with their working directories packed, but not stored yet.

    Ends the command with every mistake in any of them.
    """
    from spotline.adapters.files.mistake import BadFile
    from spotline.adapters.files.packing import packed_job

    ready: list[ReadyJob] = []
    bad: list[BadFile] = []
    with ExitStack() as stack:
        for file, job in stated:
            try:
                most_bytes = round(package_mb * 1e6)
                packing = packed_job(job, now_ns, most_bytes=most_bytes)
                whole, archive = stack.enter_context(packing)
                ready.append(ReadyJob(file=file, job=whole, archive=archive))
            except BadFile as error:
                bad.append(error)
        if bad:
            _fail_files(bad, as_json=as_json)
        yield ready


def store_packages(ready: Sequence[ReadyJob], *, as_json: bool) -> None:
    """Put every package where its job says that it is; ends the command where one cannot be."""
    from spotline.adapters.files.mistake import BadFile
    from spotline.adapters.files.packing import store

    bad: list[BadFile] = []
    for job in ready:
        if job.archive is not None and job.package is not None:
            try:
                store(job.archive, job.package, where=str(job.file))
            except BadFile as error:
                bad.append(error)
    if bad:
        _fail_files(bad, as_json=as_json)


def _fail_files(bad: Sequence[BadFile], *, as_json: bool) -> NoReturn:
    """End the command with all that is wrong with files of the user's."""
    problems = [
        {"file": error.path, **mistake.as_json()} for error in bad for mistake in error.mistakes
    ]
    message = "\n".join(str(error) for error in bad)
    fail(EXIT_BAD_INPUT, message, as_json=as_json, problems=problems)
