"""A job file that was pasted into a page."""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.files.job_file import parse_stated_job
from spotline.adapters.files.mistake import BadFile, bad_file
from spotline.application.page.acts import ActRefused
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job

_WHERE = "job file"


def job_of_text(text: str, tenant: str, now_ns: int | None) -> Job | JobDraft:
    """The job that a text states, as a tenant's where it says of none whose it is.

    Nothing that it names is read: paths in it would be the server's.

    Raises
    ------
    ActRefused
        It is no job file, or needs files beside it; names every mistake.
    """
    try:
        stated = parse_stated_job(text, where=_WHERE, folder=Path())
        if stated.workdir is not None:
            raise bad_file(
                _WHERE,
                "run.workdir",
                "no folder here: `spotline submit` packs it on the machine where it is",
                "one",
            )
        run, location = stated.file.run, stated.checkpoint_location
        stated_place = "" if stated.file.checkpoint is None else stated.file.checkpoint.location
        if run is not None and location != stated_place:
            raise bad_file(_WHERE, "checkpoint.location", "a URL or an absolute folder", "another")
        return stated.of_tenant(tenant).resolved(now_ns=now_ns)
    except BadFile as error:
        wrong = [
            f"line {mistake.line}: {mistake}" if mistake.line else str(mistake)
            for mistake in error.mistakes
        ]
        message = wrong[0] if len(wrong) == 1 else f"{len(wrong)} things are wrong with the file"
        raise ActRefused(Reason.FIELD_INVALID, message, wrong if len(wrong) > 1 else ()) from error
