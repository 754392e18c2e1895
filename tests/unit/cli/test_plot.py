import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spotline.adapters.eventlog.manifest import LogStatus
from spotline.cli.main import app
from spotline.replay.jobs import generated_jobs
from tests.fakes.recorded_run import recorded_run, small_market, write_log

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    market = small_market(slots=48)
    folder = tmp_path_factory.mktemp("store") / "log"
    write_log(folder, recorded_run(market, generated_jobs(market, 2, 5)))
    return folder


def plot(*arguments):
    return CliRunner().invoke(app, ["plot", *map(str, arguments)], prog_name="spotline")


def test_a_log_is_drawn_beside_it_with_all_its_jobs(log):
    result = plot(log)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 jobs: 2 on time\n")
    assert result.stdout.endswith(f"drawn to {log.parent / 'jobs.png'}\n")
    assert (log.parent / "jobs.png").read_bytes().startswith(PNG_MAGIC)


def test_a_job_is_drawn_by_id_by_name_and_by_how_it_begins(log, tmp_path):
    listed = json.loads(plot(log, "--json", "--png", tmp_path / "all.png").stdout)
    first = listed["jobs"][0]
    drawn = []

    for arguments in (
        (first["job_id"], "--log", log),
        (first["name"], "--log", log),
        (log, "--job", first["job_id"][:8]),
    ):
        picture = tmp_path / f"{len(drawn)}.png"
        result = plot(*arguments, "--png", picture)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"{first['name']}: completed, for ")
        drawn.append(picture.read_bytes())

    assert drawn[0] == drawn[1] == drawn[2]
    assert drawn[0].startswith(PNG_MAGIC)


def test_the_json_says_what_the_text_says(log, tmp_path):
    name = json.loads(plot(log, "--json", "--png", tmp_path / "a.png").stdout)["jobs"][0]["name"]

    said = json.loads(plot(log, "--job", name, "--json", "--png", tmp_path / "a.png").stdout)
    text = plot(log, "--job", name, "--png", tmp_path / "a.png").stdout

    job = said["job"]
    assert f"for {job['cost_usd']:,.2f} USD" in text
    assert f"on-demand alone {job['otherwise_usd']['on_demand_only']:,.2f} USD" in text
    assert job["deadline"].endswith("Z")
    assert job["share_done"] == 1.0
    assert job["compared_to_its_end"] is True
    assert said["picture"] == str(tmp_path / "a.png")


def test_without_an_own_place_a_job_is_drawn_beside_the_log(log):
    job_id = json.loads(plot(log, "--json").stdout)["jobs"][1]["job_id"]

    assert plot(job_id, "--log", log).exit_code == 0
    assert (log.parent / f"job-{job_id[:12]}.png").is_file()


def test_the_log_of_a_system_that_still_runs_is_drawn(log, tmp_path):
    lines = (log / "entries.jsonl").read_bytes().splitlines(keepends=True)
    manifest = json.loads((log / "manifest.json").read_text())
    running = tmp_path / "log"
    running.mkdir()
    open_manifest = manifest | {"status": LogStatus.RUNNING.value, "last_seq": 0}
    (running / "manifest.json").write_text(json.dumps(open_manifest))
    (running / "entries.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:40])

    result = plot(running)

    assert result.exit_code == 0, result.output
    assert "open" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "--log", "{log}"], "JOB: expected a job of the log (fine-tune"),
        (["fine", "--log", "{log}"], "JOB: expected a job of the log"),
        (["{log}", "--job", "nobody"], "found 'nobody'"),
    ],
)
def test_a_job_that_is_not_there_is_refused(log, arguments, message):
    result = plot(*[word.format(log=log) for word in arguments])

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_importing_the_command_loads_no_heavy_library():
    code = (
        "import sys, spotline.cli.plot; "
        "print([m for m in ('numpy', 'pyarrow', 'matplotlib', 'numba') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
