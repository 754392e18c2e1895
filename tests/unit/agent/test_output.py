import asyncio
from pathlib import Path

import pytest

from spotline.adapters.grpc.agent.messages import MOST_PIECE_BYTES, OutputPiece
from spotline.agent.output import LocalLog, OutputSpool, RankOutput
from spotline.agent.secrets import Masker
from spotline.agent.timing import RetryPauses
from tests.fakes.agent_parts import BrokenCalls, SteppedClock, refused, unreachable


def piece(index: int, text: str = "x\n") -> OutputPiece:
    return OutputPiece(generation=1, rank=0, index=index, text=text, ts_ns=1)


def output_into(spool: OutputSpool, **fields) -> RankOutput:
    known = {"generation": 1, "rank": 0, "masker": Masker(), "clock": SteppedClock()}
    return RankOutput(spool=spool, **{**known, **fields})


async def all_of(spool: OutputSpool) -> list[OutputPiece]:
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                await spool.emptied()
            return found
        except TimeoutError:
            batch = await spool.batch()
            found += batch
            spool.sent(batch)


async def test_whole_lines_are_sent_and_the_rest_when_the_rank_ends():
    spool = OutputSpool()
    output = output_into(spool)

    output.feed(b"one\ntw")
    output.flush()
    output.feed(b"o\nthree")
    output.flush()
    output.close()

    pieces = await all_of(spool)
    assert [said.text for said in pieces] == ["one\n", "two\n", "three"]
    assert [said.index for said in pieces] == [0, 1, 2]
    assert output.last_words == "one\ntwo\nthree"


async def test_pieces_hold_at_most_64_kib_and_no_half_letter():
    spool = OutputSpool()
    output = output_into(spool)
    text = "a" + "ä€😀" * 40_000

    data = text.encode()
    for start in range(0, len(data), 1001):
        output.feed(data[start : start + 1001])
    output.feed(("\n" + "line\n" * 30_000).encode())
    output.close()

    pieces = await all_of(spool)
    assert "".join(said.text for said in pieces) == text + "\n" + "line\n" * 30_000
    assert max(said.size_bytes for said in pieces) <= MOST_PIECE_BYTES
    assert all(said.text.endswith("line\n") for said in pieces[-2:])


async def test_bytes_that_are_no_text_are_replaced():
    spool = OutputSpool()
    output = output_into(spool)

    output.feed(b"\xff" * 30_000 + b"\n")
    output.close()

    assert {c for said in await all_of(spool) for c in said.text} == {
        "\N{REPLACEMENT CHARACTER}",
        "\n",
    }


async def test_lines_are_heeded_masked_also_those_of_a_progress_bar():
    heeded = []
    output = output_into(OutputSpool(), heed=heeded.append, masker=Masker(["key"]))

    output.feed(b"10%\r20%\rk")
    output.feed(b"ey\r\nlast")
    output.close()

    assert [line for line in heeded if line] == ["10%", "20%", "***", "last"]


async def test_a_full_spool_keeps_the_newest_and_says_what_it_dropped():
    spool = OutputSpool(most_bytes=30)
    for index in range(5):
        spool.add(piece(index, text=f"{index}" * 9 + "\n"))

    pieces = await all_of(spool)

    assert [said.index for said in pieces] == [2, 3, 4]
    assert pieces[0].text == "[spotline: 20 bytes of output before this were dropped]\n222222222\n"
    assert spool.dropped_bytes == 20


async def test_output_waits_for_the_control_plane_and_a_refused_batch_is_left():
    spool = OutputSpool()
    spool.add(piece(0))
    send = BrokenCalls(unreachable(), unreachable(), refused())

    async with asyncio.TaskGroup() as tasks:
        pauses = RetryPauses(lambda: 0.0)
        sending = tasks.create_task(spool.deliver(send, SteppedClock(), pauses))
        await spool.emptied()
        spool.add(piece(1))
        await spool.emptied()
        sending.cancel()

    assert len(send.tried) == 4
    assert send.done == [[piece(1)]]


def test_a_piece_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="text must have <= 65536 bytes, had 65538"):
        piece(0, text="ä" * (MOST_PIECE_BYTES // 2 + 1))


def test_local_log_begins_again_when_it_is_full(tmp_path):
    log = LocalLog(tmp_path / "sub" / "1-0.log", most_bytes=10)
    for line in (b"12345678\n", b"abcdefgh\n", b"ABCDEFGH\n"):
        log.write(line)
    log.close()

    assert (tmp_path / "sub" / "1-0.log").read_bytes() == b"ABCDEFGH\n"
    assert (tmp_path / "sub" / "1-0.log.1").read_bytes() == b"abcdefgh\n"


async def test_a_full_disk_ends_the_file_and_not_the_output():
    spool = OutputSpool()
    output = output_into(spool, file=LocalLog(Path("/dev/full")))

    output.feed(b"one\n")
    output.feed(b"two\n")
    output.close()

    assert "".join(said.text for said in await all_of(spool)) == "one\ntwo\n"
