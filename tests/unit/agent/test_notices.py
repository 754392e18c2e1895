import json
import os

import pytest

from spotline.adapters.grpc.agent.messages import NoticeNews
from spotline.agent.notices import PLATFORM, LocalNotice, NoticeFolder, NoticesInForce
from spotline.agent.timing import MarketTime
from spotline.contracts.errors import ContractError
from spotline.domain.events.training import CheckpointFault, NoticeAction
from tests.fakes.agent_parts import SteppedClock

WALL_S = 1_000_000.0


class Board:
    def __init__(self, folder):
        self.clock = SteppedClock(WALL_S)
        self.answers: list[NoticeNews] = []
        self.file = folder / "run" / "notice.json"
        self.board = NoticesInForce(
            instance_id="i-1",
            file=self.file,
            post=self.answers.append,
            clock=self.clock,
            market=MarketTime(self.clock, 60.0),
        )

    @property
    def told(self):
        return json.loads(self.file.read_text())

    @property
    def said(self):
        return [(answer.notice_id, answer.action, answer.after_s) for answer in self.answers]


@pytest.fixture
def board(tmp_path):
    return Board(tmp_path)


def notice(notice_id="n-1", *instances: str, in_s: float = 120.0, **fields) -> LocalNotice:
    return LocalNotice(
        notice_id=notice_id,
        instance_ids=instances or ("i-1",),
        deadline_s=WALL_S + in_s,
        **fields,
    )


def test_notices_are_passed_on_and_removed_when_they_are_withdrawn(board):
    assert board.told == []

    assert board.board.tell(PLATFORM, [notice("n-1"), notice("n-2", "i-2", "i-3")])
    assert not board.board.tell(PLATFORM, [notice("n-1"), notice("n-2", "i-2", "i-3")])
    assert board.told == [
        {
            "notice_id": "n-1",
            "kind": "interruption",
            "instance_ids": ["i-1"],
            "deadline_s": WALL_S + 120,
        },
        {
            "notice_id": "n-2",
            "kind": "interruption",
            "instance_ids": ["i-2", "i-3"],
            "deadline_s": WALL_S + 120,
        },
    ]

    board.board.tell(PLATFORM, [notice("n-2", "i-2", "i-3")])
    assert [said["notice_id"] for said in board.told] == ["n-2"]


@pytest.mark.parametrize("first", ["machine", PLATFORM])
@pytest.mark.parametrize("same_id", [True, False])
def test_machine_and_platform_tell_one_interruption_once(board, first, same_id):
    local = notice("n-1" if same_id else "cloud-7", in_s=100.0)
    tellings = {"machine": local, PLATFORM: notice("n-1", in_s=130.0)}
    second = ({*tellings} - {first}).pop()
    board.board.running(True)

    assert board.board.tell(first, [tellings[first]])
    assert not board.board.tell(second, [tellings[second]])

    (told,) = board.told
    assert told["notice_id"] == tellings[first].notice_id
    assert told["deadline_s"] == WALL_S + 100  # the machine knows it in its own time
    assert board.said == [("n-1", NoticeAction.FORWARDED, 0)]
    board.board.tell("machine", [])
    assert len(board.told) == 1
    board.board.tell(PLATFORM, [])
    assert board.told == []


def test_a_notice_of_another_member_is_no_notice_of_this_one(board):
    board.board.tell("machine", [notice("cloud-7")])
    assert board.board.tell(PLATFORM, [notice("n-1", "i-2")])

    assert len(board.told) == 2


def test_a_notice_is_forwarded_once_there_is_a_program(board):
    board.board.tell(PLATFORM, [notice()])
    assert board.said == []

    board.clock.advance(2.0)
    board.board.running(True)
    board.board.running(False)
    board.board.running(True)

    assert board.said == [("n-1", NoticeAction.FORWARDED, 120)]


def test_the_outcome_is_told_once_in_market_seconds(board):
    board.board.running(True)
    board.board.saved(WALL_S - 1)
    board.board.tell(PLATFORM, [notice()])
    board.board.saved(WALL_S - 1)  # begun and done before it came
    board.board.saved(WALL_S + 2.5)
    board.board.saved(WALL_S + 9)
    board.board.not_saved(WALL_S + 10, CheckpointFault.SKIPPED)

    assert board.said == [
        ("n-1", NoticeAction.FORWARDED, 0),
        ("n-1", NoticeAction.SAVED, 150),
    ]


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        (CheckpointFault.SKIPPED, NoticeAction.SKIPPED),
        (CheckpointFault.NOT_WRITTEN, NoticeAction.NOT_SAVED),
    ],
)
def test_what_was_not_saved_says_why(board, fault, action):
    board.board.running(True)
    board.board.tell(PLATFORM, [notice()])

    board.board.not_saved(WALL_S + 1, fault)

    assert board.said[1:] == [("n-1", action, 60)]


def test_a_save_after_the_deadline_came_too_late(board):
    board.board.running(True)
    board.board.tell(PLATFORM, [notice(in_s=5.0)])

    board.board.saved(WALL_S + 6)

    assert board.said[1:] == [("n-1", NoticeAction.NOT_SAVED, 360)]


def test_an_outcome_waits_for_the_platforms_own_name(board):
    board.board.running(True)
    board.board.tell("machine", [notice("cloud-7")])
    board.board.saved(WALL_S + 1)
    assert board.said == []

    board.clock.advance(3.0)
    board.board.tell(PLATFORM, [notice("n-1")])

    assert [(name, action) for name, action, _ in board.said] == [
        ("n-1", NoticeAction.FORWARDED),
        ("n-1", NoticeAction.SAVED),
    ]


def test_the_folder_is_read_as_it_changes(tmp_path):
    folder = NoticeFolder(tmp_path, "i-1")
    file = tmp_path / "notice.json"
    assert folder.read() == ()

    for text in ("", "null", "[]"):
        file.write_text(text)
        assert folder.read() == ()
    file.write_text(json.dumps({"notice_id": "a", "kind": "rebalance", "deadline_s": 5}))
    assert folder.read() == (
        LocalNotice(notice_id="a", instance_ids=("i-1",), deadline_s=5.0, kind="rebalance"),
    )
    aside = tmp_path / "aside"
    aside.write_text(json.dumps([{"notice_id": "b", "deadline_s": 5}]))
    os.utime(aside, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    aside.replace(file)
    assert [said.notice_id for said in folder.read()] == ["b"]
    file.unlink()
    assert folder.read() == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[5]", "expected an object with notice_id, kind and deadline_s, found 5"),
        ('{"notice_id": "a"}', "deadline_s: expected wall seconds since the epoch, found None"),
    ],
)
def test_a_broken_notice_names_file_and_field(tmp_path, text, message):
    (tmp_path / "notice.json").write_text(text)

    with pytest.raises(ContractError, match=rf"notice\.json.*{message}"):
        NoticeFolder(tmp_path, "i-1").read()


def test_a_disk_that_is_full_delays_the_file_and_ends_nothing(board, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spotline.agent.notices.write_whole", full)
    board.board.tell(PLATFORM, [notice()])
    assert board.told == []
    monkeypatch.undo()

    board.board.tell("machine", [])

    assert [said["notice_id"] for said in board.told] == ["n-1"]
