"""A program is told in time, saves once for a notice, and knows when to stop."""

import json
import os
import signal
import time

import pytest

from spotline.trainer import EXIT_TO_RESUME, attach
from tests.fakes.agent_files import AgentFiles, AgreeingThreads, run_ranks


@pytest.fixture
def job(tmp_path):
    return AgentFiles(tmp_path / "run")


@pytest.fixture(autouse=True)
def own_sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def save(session, step, content=b"weights"):
    with session.checkpoint(step=step, done=float(step)) as saving:
        if saving.writes:
            (saving.path / "model.bin").write_bytes(content)
    return saving


def notice(notice_id="n-1", in_s=60.0, **more):
    deadline_s = time.time() + in_s
    return {"notice_id": notice_id, "kind": "spot", "deadline_s": deadline_s, **more}


def told(session, step):
    """What a boundary says, with files that are read again at once."""
    session._board._looked_s = float("-inf")
    return session.should_checkpoint(step)


class TestOutside:
    def test_nothing_happens(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        handler = signal.getsignal(signal.SIGTERM)

        session = attach(environ={})

        assert not session.inside
        assert session.resume() is None
        assert session.result() is None
        assert session.get_preemption_info() is None
        assert not any(session.should_checkpoint(step) for step in range(1, 5))
        assert not session.should_stop
        session.report(step=1, done=1)
        session.exit_if_stopped()
        assert not session.take_sigterm()
        assert session.finish(tmp_path / "absent", step=1, done=1) is None
        assert signal.getsignal(signal.SIGTERM) is handler
        assert list(tmp_path.iterdir()) == []

    def test_what_is_written_without_a_place_is_thrown_away(self):
        saving = save(attach(environ={}), 1)

        assert saving.committed is None
        assert not saving.path.exists()

    def test_a_place_makes_the_same_program_resume(self, tmp_path):
        first = attach(environ={}, checkpoint_uri=str(tmp_path), interval_s=1e-9)
        assert first.should_checkpoint(1)
        save(first, 1)

        assert attach(environ={}, checkpoint_uri=str(tmp_path)).resume().step == 1


class TestAttaching:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("WORLD_SIZE", "two"), ("RANK", "-1"), ("SPOTLINE_GENERATION", "1.5")),
            *(("SPOTLINE_GRACE_S", "soon"), ("SPOTLINE_CHECKPOINT_INTERVAL_S", "nan")),
        ],
    )
    def test_a_wrong_variable_is_named(self, job, name, value):
        with pytest.raises(ValueError, match=f"{name} must be .*{value}"):
            attach(environ=job.environ() | {name: value})

    def test_wrong_parameters_are_named(self, job):
        with pytest.raises(ValueError, match="agree_every must be >= 1, was 0"):
            attach(environ=job.environ(), agree_every=0)
        with pytest.raises(ValueError, match=r"interval_s must be > 0, was 0"):
            attach(environ=job.environ(), interval_s=0)

    def test_allocation_says_who_we_are(self, job):
        job.allocate({"instance_id": "i-a", "node_rank": 0}, {"instance_id": "i-b", "node_rank": 1})

        place = attach(environ=job.environ(rank=3, world_size=4, nnodes=2)).allocation

        assert (place.generation, place.node_rank, place.nnodes) == (1, 1, 2)
        assert (place.rank, place.local_rank, place.world_size) == (3, 1, 4)
        assert place.instance_ids == ("i-a", "i-b")

    def test_several_ranks_without_a_group_are_told_what_to_do(self, job):
        session = attach(environ=job.environ(world_size=2))

        with pytest.raises(RuntimeError, match="call init_process_group first"):
            session.should_checkpoint(1)


class TestPeriodic:
    def test_is_due_when_the_interval_is_over(self, job):
        session = attach(environ=job.environ(), interval_s=1e-9)

        assert session.should_checkpoint(1)
        saving = save(session, 1)
        assert saving.committed.kind == "periodic"
        assert not attach(environ=job.environ(), interval_s=3600).should_checkpoint(1)

    def test_interval_comes_from_the_environment(self, job):
        often = job.environ(SPOTLINE_CHECKPOINT_INTERVAL_S="1e-9")

        assert attach(environ=often).should_checkpoint(1)

    def test_is_told_with_all_that_the_agent_needs(self, job):
        session = attach(environ=job.environ(), interval_s=1e-9)
        session.report(step=1, done=10)
        session.report(step=2, done=20, tokens_per_s=5.0)
        save(session, 2)

        progress = [(event["step"], event["done"]) for event in job.events("progress")]
        (event,) = job.events("checkpoint")
        assert progress == [(1, 10), (2, 20)]
        assert job.events("progress")[1]["tokens_per_s"] == 5.0
        assert event["checkpoint_kind"] == "periodic"
        assert event["uri"] == str(job.checkpoints / "checkpoints/00000001-0000000002")
        assert (event["step"], event["done"], event["size_bytes"]) == (2, 2.0, 7)
        assert len(event["sha256"]) == 64
        assert 0 < event["save_s"] < 60
        assert (event["rank"], event["generation"]) == (0, 1)
        assert abs(event["at_s"] - time.time()) < 60

    def test_progress_is_told_five_times_a_second_and_never_lost(self, job):
        session = attach(environ=job.environ())
        for step in range(1, 200):
            session.report(step=step, done=step)

        with pytest.raises(SystemExit):
            session.exit_to_resume()
        steps = [event["step"] for event in job.events("progress")]
        assert steps[0] == 1
        assert steps[-1] == 199
        assert len(steps) < 100

    def test_old_ones_go(self, job):
        session = attach(environ=job.environ(), interval_s=1e-9)
        for step in range(1, 6):
            assert session.should_checkpoint(step)
            save(session, step)

        kept = sorted(path.name for path in (job.checkpoints / "checkpoints").iterdir())
        assert kept == ["00000001-0000000004", "00000001-0000000005"]

    def test_another_generations_newer_ones_stay(self, job):
        job.generation = 3
        newer = attach(environ=job.environ(), interval_s=1e-9)
        save(newer, 7)
        job.generation = 2
        late = attach(environ=job.environ(), interval_s=1e-9)
        for step in range(90, 94):
            save(late, step)

        assert (job.checkpoints / "checkpoints/00000003-0000000007").is_dir()
        assert late.resume().generation == 3

    def test_a_line_that_was_cut_short_spoils_no_other(self, job, monkeypatch, capsys):
        session = attach(environ=job.environ())
        whole = os.write
        monkeypatch.setattr(os, "write", lambda handle, line: whole(handle, line[:20]))
        session.report(step=1, done=1)
        monkeypatch.setattr(os, "write", whole)
        session.report(step=2, done=2)
        with pytest.raises(SystemExit):
            session.exit_to_resume()

        assert "progress was not told" in capsys.readouterr().err
        lines = (job.folder / "events.jsonl").read_text().splitlines()
        assert len(lines) == 2
        assert json.loads(lines[1])["step"] == 2


class TestNotices:
    def test_a_notice_says_who_goes_and_when(self, job):
        job.allocate("i-a", "i-b")
        job.notice(
            notice("n-2", in_s=90, instance_ids=["i-a"]),
            notice("n-1", in_s=60, instance_ids=["i-b"]),
        )

        session = attach(environ=job.environ(world_size=4, nnodes=2))
        before_s = time.time()
        info = session.get_preemption_info()
        after_s = time.time()

        assert info.notice_ids == ("n-1", "n-2")
        assert info.instance_ids == ("i-a", "i-b")
        assert info.ranks == (0, 1, 2, 3)
        assert info.kind == "spot"
        assert info.deadline_s - after_s <= info.lead_s <= info.deadline_s - before_s
        assert abs(info.deadline_s - before_s - 60) < 30

    def test_saves_once_and_trains_on(self, job):
        session = attach(environ=job.environ())
        job.notice(notice())

        assert told(session, 1)
        assert save(session, 1).committed.kind == "preemption"
        assert not told(session, 2)
        assert not session.should_stop
        job.notice(notice(), notice("n-2"))
        assert told(session, 3)

    def test_a_withdrawn_notice_is_none(self, job):
        session = attach(environ=job.environ())
        job.notice(notice())
        job.notice()

        assert not told(session, 1)
        assert session.get_preemption_info() is None

    def test_a_save_that_would_not_be_finished_is_not_tried(self, job, capsys):
        session = attach(environ=job.environ(), interval_s=3600)
        session._writer.times.add(20.0)
        session.report(step=4, done=44.0)
        job.notice(notice(in_s=5))

        assert not told(session, 4)
        assert not told(session, 5)
        (event,) = job.events("checkpoint")
        assert (event["fault"], event["step"], event["done"]) == ("skipped", 4, 44.0)
        assert "saves take up to 20.0 s" in event["detail"]
        assert "skipped" in capsys.readouterr().err

    def test_measured_saves_outlive_the_program(self, job):
        first = attach(environ=job.environ(), interval_s=1e-9)
        with first.checkpoint(step=1, done=1, began_s=time.monotonic() - 50) as saving:
            (saving.path / "model.bin").write_bytes(b"x")
        job.generation = 2
        job.notice(notice(in_s=30))

        assert not told(attach(environ=job.environ()), 2)

    def test_what_is_saved_already_is_not_saved_again(self, job):
        session = attach(environ=job.environ(), interval_s=1e-9)
        assert session.should_checkpoint(1)
        save(session, 1)
        job.notice(notice())

        assert not told(session, 1)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"notice_id": "n-1"}, "notice.json must be a list"),
            ([{"notice_id": "n-1"}], r"notice.json \[0\] must have notice_id and deadline_s"),
            ([{"notice_id": "n-1", "deadline_s": "soon"}], "deadline_s"),
            (["n-1"], r"\[0\] must have"),
        ],
    )
    def test_a_file_that_is_not_by_the_contract_is_named(self, job, content, words):
        job.write("notice.json", content)

        with pytest.raises(ValueError, match=words):
            attach(environ=job.environ()).get_preemption_info()


class TestStops:
    def test_sigterm_is_a_flag_until_the_boundary(self, job):
        session = attach(environ=job.environ())
        assert not session.should_checkpoint(1)
        os.kill(os.getpid(), signal.SIGTERM)

        assert not session.should_stop  # not yet: nothing was saved
        assert session.should_checkpoint(2)
        assert save(session, 2).committed.kind == "preemption"
        assert session.should_stop
        assert not session.should_checkpoint(3)
        with pytest.raises(SystemExit) as ended:
            session.exit_if_stopped()
        assert ended.value.code == EXIT_TO_RESUME == 75

    @pytest.mark.parametrize(("state", "generation"), [("stop", 1), ("run", 2)])
    def test_the_allocation_stops_it_too(self, job, state, generation):
        session = attach(environ=job.environ())
        job.allocate("i-a", state=state, generation=generation)

        assert told(session, 1)
        assert session.should_stop

    def test_a_program_that_saves_nothing_is_told_too(self, job):
        session = attach(environ=job.environ(SPOTLINE_CHECKPOINT_URI=""))
        os.kill(os.getpid(), signal.SIGTERM)

        assert session.should_stop

    def test_no_time_within_the_grace_means_no_save(self, job):
        session = attach(environ=job.environ(SPOTLINE_GRACE_S="5"))
        session._writer.times.add(20.0)
        os.kill(os.getpid(), signal.SIGTERM)

        assert not session.should_checkpoint(1)
        assert session.should_stop
        assert job.events("checkpoint")[0]["fault"] == "skipped"


class TestResuming:
    def test_is_told_with_the_digest_and_the_seconds(self, job):
        saved = save(attach(environ=job.environ(), interval_s=1e-9), 8).committed
        job.generation = 2

        found = attach(environ=job.environ()).resume()

        (event,) = job.events("resumed")
        assert event["sha256"] == found.sha256 == saved.sha256
        assert event["done"] == 8.0
        assert event["generation"] == 2
        assert 0 <= event["load_s"] < 60

    def test_the_result_is_committed_as_one(self, job, tmp_path):
        model = tmp_path / "model"
        (model / "inner").mkdir(parents=True)
        (model / "inner" / "weights").write_bytes(b"w")
        session = attach(environ=job.environ())

        result = session.finish(model, step=9, done=9.0)

        assert result.kind == "final"
        assert (result.path / "inner" / "weights").read_bytes() == b"w"
        assert (model / "inner" / "weights").exists()
        assert job.events("checkpoint")[0]["checkpoint_kind"] == "final"

    def test_a_result_that_is_not_there_fails_the_program(self, job, tmp_path):
        with pytest.raises(FileNotFoundError):
            attach(environ=job.environ()).finish(tmp_path / "absent", step=9, done=9.0)
        assert job.events("checkpoint")[0]["fault"] == "not_written"


class TestFailures:
    def test_a_mistake_of_the_program_is_told_and_raised(self, job):
        session = attach(environ=job.environ())

        def fail():
            with session.checkpoint(step=1, done=1):
                raise KeyError("weights")

        with pytest.raises(KeyError, match="weights"):
            fail()
        assert "KeyError" in job.events("checkpoint")[0]["detail"]
        assert list((job.checkpoints / "checkpoints").iterdir()) == []

    def test_a_disk_that_fails_is_told_and_training_goes_on(self, job):
        session = attach(environ=job.environ())

        with session.checkpoint(step=1, done=1) as saving:
            raise OSError(5, "Input/output error")

        assert saving.committed is None
        assert saving.fault == "not_written"
        assert "Input/output error" in job.events("checkpoint")[0]["detail"]


class TestRanks:
    def sessions(self, job, ranks, **options):
        threads = AgreeingThreads(ranks)
        return threads, [
            attach(
                environ=job.environ(rank=rank, world_size=ranks, nnodes=ranks),
                agreement=threads.of(rank),
                **options,
            )
            for rank in range(ranks)
        ]

    def test_a_notice_that_one_rank_sees_is_saved_for_once_by_all(self, job):
        _, (first, second) = self.sessions(job, 2)
        job.notice(notice())
        # The other instance's file comes later.
        second._board._notices = attach(environ={})._board._notices
        late = first._board._notices

        def work(rank):
            session = (first, second)[rank]
            said = [told(session, 1)]
            save(session, 1)
            said.append(told(session, 2))
            if rank == 1:
                session._board._notices = late
            said.append(told(session, 3))
            return said

        assert run_ranks(2, work) == [[True, False, False]] * 2

    def test_a_stop_that_one_rank_hears_stops_all_at_the_same_step(self, job):
        _, sessions = self.sessions(job, 3)

        def work(rank):
            session = sessions[rank]
            for step in range(1, 10):
                if rank == 2 and step == 4:
                    session._board.stop.set()
                if told(session, step):
                    save(session, step)
                if session.should_stop:
                    return step, session.should_stop
            return None

        assert run_ranks(3, work) == [(4, True)] * 3

    def test_all_hold_the_checkpoint_that_rank_0_wrote(self, job):
        _, sessions = self.sessions(job, 2)

        savings = run_ranks(2, lambda rank: save(sessions[rank], 1))

        assert [saving.writes for saving in savings] == [True, False]
        assert savings[0].committed.sha256 == savings[1].committed.sha256
        assert len(job.events("checkpoint")) == 1

    def test_every_rank_may_write_its_part(self, job):
        _, sessions = self.sessions(job, 2)

        def work(rank):
            with sessions[rank].checkpoint(step=1, done=1) as saving:
                (saving.path / f"rank-{rank}").write_text(str(rank))
            return sessions[rank].resume()

        found = run_ranks(2, work)

        assert found[0] == found[1]
        assert sorted(path.name for path in found[0].path.iterdir()) == [
            *("COMMITTED", "rank-0", "rank-1")
        ]

    def test_a_rank_that_cannot_write_its_part_spoils_it_for_all(self, job):
        _, sessions = self.sessions(job, 2)

        def work(rank):
            with sessions[rank].checkpoint(step=1, done=1) as saving:
                (saving.path / f"rank-{rank}").write_text(str(rank))
                if rank == 1:
                    raise OSError(28, "No space left on device")
            return saving.committed, saving.fault

        assert run_ranks(2, work) == [(None, "not_written")] * 2
        assert list((job.checkpoints / "checkpoints").iterdir()) == []

    def test_agreeing_every_few_steps_costs_that_much_less(self, job):
        threads, sessions = self.sessions(job, 2, agree_every=4, interval_s=3600)

        run_ranks(2, lambda rank: [told(sessions[rank], step) for step in range(1, 13)])

        assert threads.counts == [3, 3]

    def test_rows_of_a_step_are_shared_out(self, job):
        _, sessions = self.sessions(job, 2)

        shares = [session.samples(3, global_batch=4, rows=100) for session in sessions]

        assert shares == [[12, 14], [13, 15]]
        assert sessions[0].accumulation(global_batch=16, per_rank=2) == 4
