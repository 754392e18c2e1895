"""Which pages there are, in the order of the navigation."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.app import Page
from spotline.adapters.page.making.jobs import jobs_page

PAGES: Sequence[Page] = (Page(path="/jobs", template="jobs.html", build=jobs_page, name="Jobs"),)
