import json

import pytest

from spotline.adapters.grpc.agent.messages import CheckpointNews, RestartNews, WorkNews
from spotline.agent.listening import Listener, ListenerPorts
from spotline.agent.notices import PLATFORM, LocalNotice, NoticesInForce
from spotline.agent.progress import LineTail
from spotline.agent.timing import MarketTime
from spotline.domain.events.training import CheckpointFault, CheckpointKind, NoticeAction
from spotline.domain.jobs.run import ProgressReading, ProgressSource
from tests.fakes.agent_parts import SteppedClock

WALL_S = 1_000_000.0


class Instance:
    """Listens to one generation after the other, as the agent of an instance does."""

    def __init__(self, folder):
        self.clock = SteppedClock(WALL_S)
        self.folder = folder
        self.posted = []
        market = MarketTime(self.clock, 60.0)
        board = NoticesInForce(
            instance_id="i-1",
            file=folder / "notice.json",
            post=self.posted.append,
            clock=self.clock,
            market=market,
        )
        self.ports = ListenerPorts(
            clock=self.clock, market=market, board=board, post=self.posted.append
        )
        self.events = LineTail(folder / "events.jsonl")

    def listen(self, generation=1, *, reports=True, **reading) -> Listener:
        return Listener(
            generation=generation,
            reading=ProgressReading(**reading),
            events=self.events,
            work_dir=self.folder,
            since_s=self.clock.wall_s(),
            reports=reports,
            every_s=2.0,
            ports=self.ports,
        )

    def event(self, kind, *, generation=1, **fields):
        at_s = self.clock.wall_s()
        line = {"kind": kind, "generation": generation, "at_s": at_s, "rank": 0, **fields}
        with (self.folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, kind):
        return [news for news in self.posted if isinstance(news, kind)]


@pytest.fixture
def instance(tmp_path):
    return Instance(tmp_path)


def test_first_progress_says_what_the_restart_cost(instance):
    listener = instance.listen()
    instance.clock.advance(1.5)
    instance.event("resumed", sha256="ab", load_s=0.5, done=40)
    instance.clock.advance(0.5)
    instance.event("progress", step=5, done=50)
    instance.clock.advance(1.0)

    listener.look()

    assert instance.posted == [
        WorkNews(
            generation=1,
            done=50.0,
            step=5,
            checkpointed=40.0,
            restart=RestartNews(restart_s=120, load_s=30, resumed_done=40.0, resumed_sha256="ab"),
        )
    ]


def test_work_is_told_at_most_every_few_seconds_and_at_the_end(instance):
    listener = instance.listen()
    for step in range(1, 9):
        instance.event("progress", step=step, done=10.0 * step)
        listener.look()
        instance.clock.advance(0.5)
    instance.event("progress", step=9, done=90.0)
    listener.look(final=True)
    listener.look(final=True)

    told = instance.of(WorkNews)
    assert [news.step for news in told] == [1, 5, 9]
    assert [news.restart is not None for news in told] == [True, False, False]
    assert told[-1].rate_per_hour == pytest.approx(80 / (4 * 60) * 3600)


def test_only_the_first_member_tells_work(instance):
    listener = instance.listen(reports=False)
    instance.event("progress", step=1, done=1)

    listener.look(final=True)

    assert instance.posted == []


def test_a_checkpoint_is_told_at_once_and_answers_a_notice(instance):
    listener = instance.listen()
    board = instance.ports.board
    board.running(True)
    told = LocalNotice(notice_id="n-1", instance_ids=("i-1",), deadline_s=WALL_S + 60)
    board.tell(PLATFORM, [told])
    instance.clock.advance(1)
    instance.event(
        "checkpoint", step=3, done=30, uri="u/1-3-p", sha256="ab", save_s=0.75, size_bytes=9
    )

    listener.look()

    assert instance.of(CheckpointNews) == [
        CheckpointNews(
            generation=1,
            step=3,
            done=30.0,
            uri="u/1-3-p",
            sha256="ab",
            size_bytes=9,
            kind=CheckpointKind.PREEMPTION,
            save_s=45,
        )
    ]
    answers = [news.action for news in instance.posted if hasattr(news, "action")]
    assert answers == [NoticeAction.FORWARDED, NoticeAction.SAVED]


def test_a_damaged_checkpoint_found_on_resuming_answers_no_notice(instance):
    listener = instance.listen()
    board = instance.ports.board
    board.running(True)
    told = LocalNotice(notice_id="n-1", instance_ids=("i-1",), deadline_s=WALL_S + 60)
    board.tell(PLATFORM, [told])
    instance.event("checkpoint", step=3, sha256="ab", fault="damaged", detail="bytes differ")

    listener.look()

    (news,) = instance.of(CheckpointNews)
    assert (news.fault, news.sha256) == (CheckpointFault.DAMAGED, "")
    assert news.detail == "bytes differ"
    assert [n.action for n in instance.posted if hasattr(n, "action")] == [NoticeAction.FORWARDED]
    instance.event("progress", step=4, done=1)
    listener.look(final=True)
    assert instance.of(WorkNews)[-1].checkpointed is None


def test_the_newest_checkpoint_counts_over_generations(instance):
    first = instance.listen()
    instance.event("checkpoint", step=9, done=90, uri="u", sha256="a")
    instance.event("progress", step=9, done=90)
    first.look(final=True)
    second = instance.listen(generation=2)
    instance.event("progress", generation=1, step=10, done=100)  # a late line of the one before
    instance.event("resumed", generation=2, sha256="b", done=60)
    instance.event("progress", generation=2, step=7, done=70)
    second.look(final=True)
    instance.event("checkpoint", generation=2, step=8, done=80, uri="u", sha256="c")
    instance.event("progress", generation=2, step=8, done=80)
    second.look(final=True)

    told = [(n.generation, n.done, n.checkpointed) for n in instance.of(WorkNews)]
    assert told == [(1, 90.0, 90.0), (2, 70.0, 60.0), (2, 80.0, 80.0)]


def test_an_unreadable_line_is_passed_over(instance):
    listener = instance.listen()
    with (instance.folder / "events.jsonl").open("w") as file:
        file.write('{"kind": "progress"}\nnot json\n')
    instance.event("progress", step=1, done=1)

    listener.look(final=True)

    assert [news.done for news in instance.of(WorkNews)] == [1.0]


def test_output_is_read_only_where_the_job_says_so(instance):
    reading = {"source": ProgressSource.OUTPUT, "pattern": r"done=(?P<done>\S+)"}
    listener, other = instance.listen(**reading), instance.listen()
    instance.event("progress", step=1, done=999)
    for line in ("loss 1", "done=1.5k", "done=what"):
        listener.heed_line(line)
        other.heed_line(line)

    listener.look(final=True)
    other.look(final=True)

    assert [news.done for news in instance.of(WorkNews)] == [1500.0]


def test_a_file_is_read_from_what_this_generation_appends(instance):
    (instance.folder / "metrics.jsonl").write_text('{"n": 1}\n')
    reading = {"source": ProgressSource.FILE, "pattern": "n", "path": "metrics.jsonl"}
    listener = instance.listen(**reading)
    listener.look(final=True)
    assert instance.posted == []

    with (instance.folder / "metrics.jsonl").open("a") as file:
        file.write('{"n": 2}\n{"n": 3}')
    listener.look(final=True)

    assert [news.done for news in instance.of(WorkNews)] == [3.0]


def test_a_notice_begins_a_new_stretch(instance):
    listener = instance.listen()
    for step in range(1, 8):
        instance.event("progress", step=step, done=step)
        listener.look()
        if step == 4:
            listener.disturb()
        instance.clock.advance(1.0 if step < 4 else 10.0)

    rates = [round(news.rate_per_hour, 2) for news in instance.of(WorkNews)]
    assert rates == [0.0, 60.0, 0.0, 6.0, 6.0]


def test_a_file_that_cannot_be_read_says_nothing(instance):
    (instance.folder / "metrics.jsonl").mkdir()
    reading = {"source": ProgressSource.FILE, "pattern": "n", "path": "metrics.jsonl"}

    listener = instance.listen(**reading)
    listener.look()
    listener.look(final=True)

    assert instance.posted == []
