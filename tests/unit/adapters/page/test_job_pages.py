"""The pages of jobs and decisions are made of every job of a log, at every kind of moment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.applications import Starlette

from spotline.adapters.page.app import Frame, Pages
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import pages_with
from spotline.adapters.page.sources import PageSources, Workbench
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.page.applied import Applied
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.outlook import JobOutlook
from spotline.replay.explain import LogExplainer, RecordedEntries
from spotline.replay.handlers import selector_options
from tests.fakes.page_log import small_entries, small_log
from tests.fakes.recorded_run import SETTINGS


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    status_code: int
    text: str


class Client:
    """Asks an application in this process."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def get(self, address: str) -> Answer:
        return asyncio.run(self._got(address))

    async def _got(self, address: str) -> Answer:
        path, _, query = address.replace("&amp;", "&").partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
        }
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent)
        return Answer(sent[0]["status"], body.decode())


class Explaining:
    """Explains decisions of the small run."""

    def __init__(self) -> None:
        self._entries = RecordedEntries(small_entries())
        self._explainer = LogExplainer(selector_options(SETTINGS))

    async def explain(self, query: DecisionQuery, *, token: str = "") -> DecisionExplanation:
        return self._explainer.explain(self._entries, query)


EXPECTED = JobOutlook(
    slot=2,
    futures=100,
    on_time_probability_ppm=990_000,
    expected_cost_micro_usd=5_000_000,
    cost_p10_micro_usd=4_000_000,
    cost_p50_micro_usd=5_000_000,
    cost_p90_micro_usd=6_000_000,
    finish_p10_ns=1 << 62,
    finish_p50_ns=1 << 62,
    finish_p90_ns=0,
    expected_utility_micro_usd=7_000_000,
)


class Expecting:
    """Expects the same of every job."""

    async def outlook(self, job_id: str, at: int | None, *, token: str = "") -> JobOutlook | None:
        await asyncio.sleep(0)
        if at == 0:
            raise SpotlineError("the beginning is gone")
        return EXPECTED


class ExpectingBeside:
    """Knows what is expected of all but the last of the jobs that are asked for."""

    def known(self, job_ids: Sequence[str], at: int | None) -> Mapping[str, JobOutlook | None]:
        return dict.fromkeys(job_ids[:-1], EXPECTED)


@pytest.fixture(scope="module")
def told() -> list[Applied]:
    return list(small_log())


@pytest.fixture(scope="module")
def client(told: list[Applied]) -> Iterator[Client]:
    desk, bench = PageDesk(), Workbench()
    desk.read(told)
    sources = PageSources(
        explainer=Explaining(),
        outlooks=Expecting(),
        outlooks_wait=True,
        listed=ExpectingBeside(),
        desk=desk,
        bench=bench,
    )
    pages = Pages(desk, pages_with(sources), Frame(source="a run", recorded=True))
    yield Client(Starlette(routes=pages.routes()))
    bench.close()
    desk.close()


@pytest.fixture(scope="module")
def job_ids(told: list[Applied]) -> list[str]:
    return list(dict.fromkeys(each.event.job_id for each in told if each.kind == "job.admitted"))


def test_a_jobs_page_is_made_at_every_slot_and_density(client: Client, job_ids: list[str]) -> None:
    for job_id in job_ids:
        for query in ("", "?at=20", "?at=250&feed=feed", "?feed=raw", "?feed=compact&page=1"):
            answer = client.get(f"/jobs/{job_id}{query}")
            assert answer.status_code == 200
            assert "style=" not in answer.text
            assert 'id="outlook"' in answer.text


def test_the_same_place_in_the_log_gives_the_same_page(
    client: Client, job_ids: list[str], told: list[Applied]
) -> None:
    desk = PageDesk()
    desk.read(told)
    bench = Workbench()
    sources = PageSources(
        explainer=Explaining(), outlooks=Expecting(), outlooks_wait=True, desk=desk, bench=bench
    )
    again = Pages(desk, pages_with(sources), Frame(source="a run", recorded=True))
    other = Client(Starlette(routes=again.routes()))
    for path in (f"/jobs/{job_ids[0]}?at=25", f"/jobs/{job_ids[0]}/otherwise"):
        assert other.get(path).text == client.get(path).text
    bench.close()
    desk.close()


def test_ids_are_unique_on_a_page(client: Client, job_ids: list[str]) -> None:
    for feed in ("compact", "feed", "raw"):
        text = client.get(f"/jobs/{job_ids[0]}?feed={feed}").text
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert len(ids) == len(set(ids))


def test_what_takes_long_is_loaded_after_the_page(client: Client, job_ids: list[str]) -> None:
    loads = 0
    for job_id in job_ids:
        for at in (0, 19, 25, 40):
            answer = client.get(f"/jobs/{job_id}?at={at}")
            found = re.search(r'id="outlook" hx-get="([^"]+)"', answer.text)
            if found is None:
                continue
            loads += 1
            part = client.get(found.group(1)).text
            assert "hx-get" not in part
            assert ("the beginning is gone" in part) == (at == 0)
            # Of a job that is over, what was expected as it began is drawn, and no more.
            assert ("99.0 %" in part) == (at != 0 and "It is over" not in part)
            assert bool(re.search("100 (sampled )?futures", part)) == (at != 0)
    assert loads


def test_what_is_expected_of_listed_jobs_is_filled_in_as_it_comes(
    client: Client, job_ids: list[str]
) -> None:
    page = client.get("/jobs?at=22&sort=slack").text
    found = re.search(r'id="expecting"[^>]* hx-get="([^"]+)"', page)
    assert found is not None
    assert found.group(1) == "/jobs/expected?at=22&amp;sort=slack"
    assert "99.0 %" not in page

    part = client.get(found.group(1)).text

    filled = re.findall(r'id="p-([0-9a-f]+)" hx-swap-oob="true">99.0 %', part)
    waiting = re.search(r"P\(on time\) of 1 of (\d+) open jobs", part)
    assert waiting is not None
    assert len(filled) == int(waiting.group(1)) - 1 > 0
    assert set(filled) < set(job_ids)
    # It asks the same again until all is said; of a list without open jobs nothing is asked.
    assert f'hx-get="{found.group(1)}"' in part
    assert "expecting" not in client.get("/jobs?phase=completed").text


def test_what_other_rules_would_have_cost_is_told(client: Client, job_ids: list[str]) -> None:
    for job_id in job_ids:
        text = client.get(f"/jobs/{job_id}/otherwise").text
        assert ("Uniform Progress" in text and "bound" in text) or "cannot be told" in text


def test_how_far_a_job_was_from_what_anybody_could_do_is_told(
    client: Client, job_ids: list[str]
) -> None:
    told = [client.get(f"/jobs/{job_id}/otherwise").text for job_id in job_ids]
    certified = [text for text in told if 'id="rule-certified"' in text]
    assert certified
    assert all("no rule that does not know the future" in text for text in certified)


def test_rules_and_the_certified_bound_are_loaded_after_money_and_policies(client: Client) -> None:
    for page, part, words in (
        ("/money", "/money/rules", "Uniform Progress"),
        ("/policies", "/policies/bound", "earned without luck"),
    ):
        # Of a run without bills there is nothing on the page of money to compare.
        assert page == "/money" or f'hx-get="{part}"' in client.get(page).text
        answer = client.get(part)
        assert answer.status_code == 200
        assert words in answer.text
        assert "hx-get" not in answer.text
    assert "Of none of the jobs" in client.get("/money/rules?tenant=nobody").text
    assert "none" in client.get("/policies/bound?at=0").text


def test_every_decision_has_a_page_and_its_reasons(
    client: Client, job_ids: list[str], told: list[Applied]
) -> None:
    decided = [each.event for each in told if each.kind == "decision"]
    for event in decided[::19]:
        path = f"/jobs/{event.job_id}/decisions/{event.slot}"
        page = client.get(f"{path}?revision={event.revision}")
        assert page.status_code == 200
        assert 'hx-trigger="load"' in page.text
        why = client.get(f"{path}/why?revision={event.revision}").text
        assert "it comes out the same" in why
        assert "From the quote to the bill" in why
        whole = client.get(f"{path}?revision={event.revision}&why=yes").text
        assert "it comes out the same" in whole
        assert 'hx-trigger="load"' not in whole


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/nobody", 404),
        ("/jobs/{job}?feed=loud", 400),
        ("/jobs/{job}?page=none", 400),
        ("/jobs/{job}/decisions/99999", 404),
        ("/jobs/{job}/decisions/first", 400),
        ("/jobs/{job}/decisions/1?revision=x", 400),
        ("/jobs/nobody/otherwise", 404),
    ],
)
def test_what_there_is_not_is_refused_in_words(
    client: Client, job_ids: list[str], path: str, status: int
) -> None:
    answer = client.get(path.format(job=job_ids[0]))

    assert answer.status_code == status
    assert 'class="notice bad"' in answer.text


def test_without_sources_the_pages_say_so(told: list[Applied], job_ids: list[str]) -> None:
    desk = PageDesk()
    desk.read(told)
    pages = Pages(desk, pages_with(PageSources()), Frame(source="a run", recorded=True))
    alone = Client(Starlette(routes=pages.routes()))
    assert "not known here" in alone.get(f"/jobs/{job_ids[0]}?at=25").text
    event = next(each.event for each in told if each.kind == "decision")
    path = f"/jobs/{event.job_id}/decisions/{event.slot}"
    assert "spotline explain" in alone.get(path).text
    assert "nobody is there who explains" in alone.get(f"{path}/why").text
    assert "cannot be told" in alone.get(f"/jobs/{job_ids[0]}/otherwise").text
    desk.close()
