"""`run:` in a job file: what it means, and what each mistake is answered with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.files.job_file import (
    parse_job_file,
    parse_stated_job,
    read_job_file,
    read_stated_job,
)
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.grpc.kit.filling_in import name_submission
from spotline.application.allocator.messages import Submission
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.jobs.run import (
    DataReads,
    DataSet,
    EnvironmentVariable,
    Launcher,
    OnStall,
    ProgressReading,
    ProgressSource,
    RunPackage,
)
from spotline.domain.jobs.run_limits import run_problems
from spotline.domain.units import NS_PER_S
from tests.depth import examples

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
NOW_NS = 1_772_323_200 * NS_PER_S

BASE = {
    "tenant": "research",
    "work": "300M tokens",
    "deadline": {"hard": "36h"},
    "instances": {"min": 1, "max": 4},
    "throughput": {"*": {"alpha_per_hour": "9M"}},
    "checkpoint": {"location": "s3://checkpoints/one"},
    "run": {"command": "python train.py"},
}


def job_of(run: object = None, **changes: object) -> Job:
    content = {**BASE, **changes}
    if run is not None:
        content["run"] = run
    found = parse_job_file(yaml.safe_dump(content), now_ns=NOW_NS)
    assert isinstance(found, Job)
    return found


def problems(run: object = None, **changes: object) -> dict[str, str]:
    """Each mistake: field -> what was expected and found."""
    with pytest.raises(BadFile) as caught:
        job_of(run, **changes)
    return {
        one.field: f"expected {one.expected}, found {one.found}" for one in caught.value.mistakes
    }


# --- what it means ----------------------------------------------------------------------------


def test_the_documented_example_is_complete_and_valid() -> None:
    path = EXAMPLES / "train.yaml"

    job = read_job_file(path, now_ns=NOW_NS)

    assert isinstance(job, Job)
    run = job.run
    assert run is not None
    assert run.command == (*("train.py", "--model", "granite-3.1-8b", "--learning-rate", "1e-4"),)
    assert run.launcher is Launcher.TORCHRUN
    assert run.environment == (EnvironmentVariable(name="TOKENIZERS_PARALLELISM", value="false"),)
    assert run.secrets == ("HF_TOKEN",)
    assert (run.ranks_per_instance, run.grace_s) == (8, 60)
    assert run.progress == ProgressReading(
        source=ProgressSource.OUTPUT, pattern=r"tokens seen: (?P<done>\d+)"
    )
    assert run.data == (
        DataSet(uri="s3://corpora/support-chat", size_gb=12.0, reads=DataReads.EVERY_EPOCH),
    )
    assert (job.work.amount, job.work.unit) == (3e8, "tokens")
    assert job.throughputs[0].alpha == 9e6
    assert (job.checkpoint.interval_s, job.checkpoint.size_gb) == (900, 7.0)
    assert job.awaits_exit
    assert job.egress_budget_micro_usd == 5_000_000
    assert (job.value_micro_usd, job.value_from_quote) == (0, True)
    assert read_stated_job(path).workdir == EXAMPLES.absolute()


def test_a_program_says_when_it_has_ended_and_a_job_without_one_need_not() -> None:
    assert job_of().awaits_exit
    without = {key: value for key, value in BASE.items() if key != "run"}
    found = parse_job_file(yaml.safe_dump(without), now_ns=NOW_NS)
    assert not found.awaits_exit
    assert found.run is None


@pytest.mark.parametrize(
    ("run", "launcher", "words"),
    [
        ({"command": "python a.py | tee log"}, None, ("sh", "-c", "python a.py | tee log")),
        ({"command": "a\nb\n"}, None, ("sh", "-c", "a\nb\n")),
        ({"command": ["python", "a.py", 3, 1.5]}, None, ("python", "a.py", "3", "1.5")),
        ({"command": "torchrun a.py --x 'b c'"}, Launcher.TORCHRUN, ("a.py", "--x", "b c")),
        ({"command": ["torchrun", "a.py"]}, Launcher.TORCHRUN, ("a.py",)),
        ({"command": "a.py -x", "launcher": "torchrun"}, Launcher.TORCHRUN, ("a.py", "-x")),
        (
            {"command": "torchrun a.py", "launcher": "plain"},
            Launcher.PLAIN,
            ("sh", "-c", "torchrun a.py"),
        ),
        ({"command": "torchrun -m pkg.train"}, Launcher.TORCHRUN, ("-m", "pkg.train")),
    ],
)
def test_a_command_is_a_line_or_words_and_torchrun_a_launcher(run, launcher, words) -> None:
    found = job_of(run).run

    assert (found.launcher, found.command) == (launcher, words)


@pytest.mark.parametrize(
    ("stated", "reading"),
    [
        ("sdk", ProgressReading()),
        (
            {"output": "(?P<done>.)"},
            ProgressReading(source=ProgressSource.OUTPUT, pattern="(?P<done>.)"),
        ),
        (
            {"file": "out/metrics.jsonl", "field": "tokens"},
            ProgressReading(source=ProgressSource.FILE, pattern="tokens", path="out/metrics.jsonl"),
        ),
    ],
)
def test_progress_is_read_in_one_of_three_ways(stated, reading) -> None:
    assert job_of({"command": "x", "progress": stated}).run.progress == reading


def test_what_is_not_stated_is_not_on_the_wire() -> None:
    run = job_of().run

    assert (run.launcher, run.progress, run.package) == (None, None, None)
    assert (run.ranks_per_instance, run.grace_s, run.data) == (0, 0, ())


def test_a_draft_may_say_how_it_is_run() -> None:
    content = {key: BASE[key] for key in ("tenant", "deadline", "checkpoint", "run")}
    text = yaml.safe_dump(content | {"model": "granite-3.1-8b", "tokens": "1.5B tokens"})

    draft = parse_job_file(text, now_ns=NOW_NS)

    assert isinstance(draft, JobDraft)
    assert draft.tokens == 1.5e9
    assert draft.run.command == ("sh", "-c", "python train.py")
    assert draft.awaits_exit
    assert draft.value_from_quote


def test_a_folder_of_checkpoints_and_of_the_program_is_taken_from_that_of_the_file(
    tmp_path,
) -> None:
    path = tmp_path / "job.yaml"
    run = {"command": "x", "workdir": "src"}
    content = {**BASE, "run": run, "checkpoint": {"location": "checkpoints"}}
    path.write_text(yaml.safe_dump(content))

    stated = read_stated_job(path)

    assert stated.workdir == tmp_path / "src"
    assert stated.resolved(now_ns=NOW_NS).checkpoint.location == str(tmp_path / "checkpoints")


# --- deadlines, and what a request is ---------------------------------------------------------


def test_a_deadline_counts_from_the_market_time_of_the_submission() -> None:
    hard = job_of().deadline
    soft = job_of(deadline={"soft": "2d", "worthless_after": "3d12h"}).deadline

    at_ns = NOW_NS + 36 * 3600 * NS_PER_S
    assert hard == Deadline(
        kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns, after_s=36 * 3600
    )
    assert (soft.after_s, soft.expires_after_s) == (2 * 86_400, 3 * 86_400 + 12 * 3600)
    assert soft.at_ns == NOW_NS + soft.after_s * NS_PER_S
    assert soft.expires_ns == NOW_NS + soft.expires_after_s * NS_PER_S


def test_a_file_is_the_same_request_whatever_the_time_and_another_with_another_program() -> None:
    text = yaml.safe_dump({**BASE, "run": {"command": "x", "workdir": "."}})
    stated = parse_stated_job(text, where="job.yaml", folder=Path())
    one, other = (RunPackage(sha256=digit * 64, uri="s3://x", size_bytes=1) for digit in ("1", "2"))

    now = stated.resolved(now_ns=NOW_NS, package=one)
    later = stated.resolved(now_ns=NOW_NS + 10**12, package=one)
    changed = stated.resolved(now_ns=NOW_NS, package=other)

    assert now.job_id == later.job_id
    assert replace(later, deadline=now.deadline) == now
    assert now.run.package == one
    assert changed.job_id != now.job_id


def test_without_a_market_a_deadline_needs_a_time() -> None:
    stated = parse_stated_job(yaml.safe_dump(BASE), where="job.yaml", folder=Path())

    with pytest.raises(BadFile, match=r"deadline.hard: expected a time .* no market here"):
        stated.resolved()


def test_halves_of_a_deadline_must_fit_when_one_of_them_is_a_time() -> None:
    found = problems(deadline={"soft": "2d", "worthless_after": "2026-03-01T06:00:00Z"})

    assert "deadline.at_ns for a soft deadline" in found["deadline.expires_ns"]


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "field", "said"),
    [
        ({}, "run.command", "this field, found nothing"),
        ({"command": ""}, "run.command", "a line for a shell, or a list of words"),
        ({"command": []}, "run.command", "a line for a shell, or a list of words"),
        ({"command": [["a"]]}, "run.command", "of text and numbers"),
        ({"command": "torchrun"}, "run.command", "what torchrun is to start after it"),
        ({"command": "torchrun a.py | tee"}, "run.command", "that needs no shell, with torchrun"),
        ({"command": "torchrun 'a.py"}, "run.command", "found no closing quotation"),
        (
            {"command": "torchrun --nproc_per_node=8 a.py"},
            "run.command",
            "run.ranks_per_instance says how many",
        ),
        ({"command": "x", "comand": "y"}, "run.comand", "did you mean command?"),
        ({"command": "x", "env": {"1A": "x"}}, "run.env.1A", "a variable's name of letters"),
        ({"command": "x", "env": {"SPOTLINE_X": 1}}, "run.env.SPOTLINE_X", "does not set itself"),
        ({"command": "x", "env": {"A": [1]}}, "run.env.A", "text, a number, true or false"),
        ({"command": "x", "env": {"A": "v" * 8193}}, "run.env.A", "at most 8,192 characters"),
        ({"command": "x", "secrets": ["a b"]}, "run.secrets[0]", "a variable's name of letters"),
        (
            {"command": "x", "secrets": "KEY"},
            "run.secrets",
            "a list, found another value (not shown: it may be a secret)",
        ),
        (
            {"command": "x", "env": {"A": 1}, "secrets": ["A"]},
            "run.secrets",
            "names that are not in run.env, found A in both",
        ),
        ({"command": "x", "launcher": "mpirun"}, "run.launcher", "one of plain or torchrun"),
        ({"command": "x", "ranks_per_instance": 65}, "run.ranks_per_instance", "<= 64 (processes)"),
        ({"command": "x", "grace_s": "2h"}, "run.grace_s", "<= 3,600 (seconds), found '2h'"),
        ({"command": "x", "progress": "guess"}, "run.progress", "sdk, {output: REGULAR"),
        ({"command": "x", "progress": {}}, "run.progress", "sdk, {output: REGULAR"),
        ({"command": "x", "progress": {"file": "a"}}, "run.progress", "found file"),
        (
            {"command": "x", "progress": {"output": "(?P<done>.)", "field": "x"}},
            "run.progress",
            "found field, output",
        ),
        (
            {"command": "x", "progress": {"output": "step (.*)"}},
            "run.progress.output",
            "with a group (?P<done>...)",
        ),
        (
            {"command": "x", "progress": {"output": "(?P<done>"}},
            "run.progress.output",
            "a regular expression (",
        ),
        (
            {"command": "x", "progress": {"file": "../a", "field": "b"}},
            "run.progress.file",
            "a path below the working directory, found '../a'",
        ),
    ],
)
def test_a_mistake_is_answered_with_field_and_expectation(run, field, said) -> None:
    found = problems(run)

    assert field in found
    assert said in found[field]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"checkpoint": {"interval_s": 60}}, "checkpoint.location", "a folder or URL that every"),
        ({"checkpoint": None}, "checkpoint.location", "as run is stated, found nothing"),
        ({"awaits_exit": False}, "awaits_exit", "as Spotline sees its program end, found False"),
        ({"data": [{"gb": 1}]}, "data[0].uri", "this field, found nothing"),
        ({"data": [{"uri": "x", "gb": "much"}]}, "data[0].gb", "or a size such as 500MB"),
        ({"data": [{"uri": "x", "reads": "twice"}]}, "data[0].reads", "one of once or every_epoch"),
        ({"egress_usd": 0}, "egress_usd", "a number > 0 (USD), found 0"),
    ],
)
def test_a_mistake_beside_it_is_answered_with_field_and_expectation(changes, field, said) -> None:
    found = problems(**changes)

    assert field in found
    assert said in found[field]


def test_all_texts_of_it_together_are_bounded() -> None:
    values = {f"V{index}": "x" * 8000 for index in range(9)}

    found = problems({"command": "x", "env": values})

    assert "at most 65,536 bytes of text" in found["run"]


# --- files, messages and back -----------------------------------------------------------------

WORDS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x00"), max_size=12
)
LINES = WORDS.filter(lambda text: text.strip())
NAMES = st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK"}
)
PROGRESS = (
    st.just("sdk")
    | st.just({"output": "step (?P<done>[0-9]+)"})
    | st.fixed_dictionaries({"file": st.just("a/b.jsonl"), "field": NAMES})
)
RUNS = st.fixed_dictionaries(
    {
        "command": LINES.filter(lambda line: line.split()[0] != "torchrun")
        | st.lists(LINES, min_size=1)
    },
    optional={
        "image": NAMES,
        "setup": LINES,
        "env": st.dictionaries(NAMES.map("E{}".format), WORDS | st.integers() | st.booleans()),
        "secrets": st.lists(NAMES.map("S{}".format), max_size=3),
        "ranks_per_instance": st.integers(1, 64),
        "progress": PROGRESS,
        "grace_s": st.sampled_from([1, "90s", "1h", 3600]),
    },
)
FILES = st.fixed_dictionaries(
    {key: st.just(value) for key, value in BASE.items() if key not in ("run", "deadline")}
    | {
        "run": RUNS,
        "deadline": st.sampled_from(
            [
                {"hard": "36h"},
                {"hard": "2026-03-04T00:00:00Z"},
                {"soft": "2d", "worthless_after": "3d"},
                {"soft": "1d", "worthless_after": "2026-03-09T00:00:00Z"},
            ]
        ),
    },
    optional={
        "value_usd": st.integers(0, 10**6),
        "budget_usd": st.integers(1, 10**6),
        "egress_usd": st.integers(1, 10**6),
        "data": st.lists(
            st.fixed_dictionaries(
                {"uri": st.just("s3://x/y")},
                optional={
                    "gb": st.sampled_from([0, 1.5, "7GB", "500MB"]),
                    "reads": st.just("once"),
                },
            ),
            max_size=2,
        ),
    },
)
PACKAGES = st.none() | st.just(RunPackage(sha256="a" * 64, uri="s3://x/packages", size_bytes=9))


@settings(max_examples=examples(150), deadline=None)
@given(FILES, PACKAGES)
def test_a_job_of_a_file_goes_through_a_message_unchanged(content, package) -> None:
    stated = parse_stated_job(
        yaml.safe_dump(content, allow_unicode=True), where="x", folder=Path("/work")
    )
    job = stated.resolved(now_ns=NOW_NS, package=package)

    message = to_message(Submission(job=job))
    name_submission(message)
    read = from_message(Submission, message)

    assert read.job == job
    assert [*run_problems(job.run, job.checkpoint)] == []


def test_after_how_long_a_program_is_stalled_is_a_duration():
    run = job_of({"command": "python train.py", "stalled_after": "45m", "on_stall": "restart"}).run

    assert run is not None
    assert run.stalled_after_s == 2_700
    assert run.on_stall is OnStall.RESTART
    silent = job_of().run
    assert silent is not None
    assert (silent.stalled_after_s, silent.on_stall) == (0, None)
    assert from_message(type(run), to_message(run)) == run


@pytest.mark.parametrize(
    ("stated", "where"),
    [
        ({"stalled_after": "0s"}, "run.stalled_after"),
        ({"stalled_after": "31d"}, "run.stalled_after"),
        ({"stalled_after": "soon"}, "run.stalled_after"),
        ({"on_stall": "panic"}, "run.on_stall"),
    ],
)
def test_what_a_stall_may_be_is_bounded(stated, where):
    assert list(problems({"command": "python train.py", **stated})) == [where]
