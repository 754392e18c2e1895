"""The newest complete checkpoint wins, wherever checkpoints lie."""

import hashlib
import json
import uuid

import fsspec
import pytest

from spotline.trainer import CheckpointUnusable, attach
from spotline.trainer.checkpoints import CheckpointName, to_remove
from spotline.trainer.stores import FolderStore, UrlStore, open_store
from tests.fakes.agent_files import AgentFiles


class Place:
    """A store, and hands that do what disks and people do to its files."""

    def __init__(self, uri, scratch, job):
        self.uri = uri
        self.job = job
        self.store = open_store(uri, scratch)
        self.fs, self.root = fsspec.core.url_to_fs(uri)

    def save(self, generation, step, kind="periodic", content=b"weights", done=0.0):
        name = CheckpointName(generation=generation, step=step, kind=kind)
        folder = self.store.staging(name)
        (folder / "inner").mkdir(parents=True)
        (folder / "model.bin").write_bytes(content * step)
        (folder / "inner" / "state.json").write_text(json.dumps({"step": step}))
        return self.store.commit(name, done=done, position={"row": step})

    def path(self, name, file=""):
        return f"{self.root}/checkpoints/{name}/{file}".rstrip("/")

    def read(self, name, file):
        return self.fs.cat_file(self.path(name, file))

    def write(self, name, file, content):
        self.fs.makedirs(self.path(name), exist_ok=True)
        self.fs.pipe_file(self.path(name, file), content)

    def names(self):
        return [name.text for name in self.store.names()]

    def session(self, generation=9):
        self.job.generation = generation
        return attach(environ=self.job.environ(SPOTLINE_CHECKPOINT_URI=self.uri))

    def faults(self):
        return [
            (event["step"], event["fault"], event["detail"])
            for event in self.job.events("checkpoint")
            if "fault" in event
        ]


@pytest.fixture(params=["folder", "file://", "memory://"])
def place(request, tmp_path):
    uris = {
        "folder": str(tmp_path / "store"),
        "file://": f"file://{tmp_path}/store",
        "memory://": f"memory://{uuid.uuid4()}",
    }
    return Place(uris[request.param], tmp_path / "scratch", AgentFiles(tmp_path / "run"))


def test_a_checkpoint_is_found_as_it_was_committed(place):
    committed = place.save(3, 40, "preemption", done=40.5)

    found = place.session().resume()

    assert (found.path / "model.bin").read_bytes() == b"weights" * 40
    assert json.loads((found.path / "inner" / "state.json").read_text()) == {"step": 40}
    assert (found.generation, found.step, found.kind, found.done) == (3, 40, "preemption", 40.5)
    assert found.position == {"row": 40}
    assert found.sha256 == committed.sha256
    assert found.uri == committed.uri
    assert found.size_bytes == committed.size_bytes == 7 * 40 + len('{"step": 40}')
    assert place.faults() == []


def test_the_marker_holds_what_sha256sum_would_say(place):
    place.save(1, 2, done=7.0)

    marker = json.loads(place.read("00000001-0000000002", "COMMITTED"))

    digests = {
        name: hashlib.sha256(place.read("00000001-0000000002", name)).hexdigest()
        for name in ("inner/state.json", "model.bin")
    }
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    assert {name: row["sha256"] for name, row in marker["files"].items()} == digests
    assert marker["files"]["model.bin"]["bytes"] == 14
    assert marker["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    assert {name: marker[name] for name in ("generation", "step", "done", "kind", "position")} == {
        **{"generation": 1, "step": 2, "done": 7.0},
        **{"kind": "periodic", "position": {"row": 2}},
    }


def test_nothing_is_found_where_nothing_is(place):
    assert place.session().resume() is None
    assert place.job.events() == []


def test_newest_is_by_generation_and_then_by_step(place):
    for generation, step in ((2, 5), (1, 900), (2, 30)):
        place.save(generation, step)

    found = place.session().resume()

    assert (found.generation, found.step) == (2, 30)


def cut(place, name):
    content = place.read(name, "model.bin")
    place.write(name, "model.bin", content[: len(content) // 2])


def flip(place, name):
    content = place.read(name, "model.bin")
    place.write(name, "model.bin", content[:-1] + b"?")


def lose(place, name):
    place.fs.rm_file(place.path(name, "inner/state.json"))


def unmark(place, name):
    place.fs.rm_file(place.path(name, "COMMITTED"))


def cut_marker(place, name):
    place.write(name, "COMMITTED", place.read(name, "COMMITTED")[:100])


def forge_marker(place, name):
    forged = place.read(name, "COMMITTED").replace(b'"bytes": 210', b'"bytes": 209')
    place.write(name, "COMMITTED", forged.replace(b'"sha256": "', b'"sha256": "0', 1))


def take_marker_of_another(place, name):
    place.write(name, "COMMITTED", place.read("00000002-0000000020", "COMMITTED"))


def name_a_file_elsewhere(place, name):
    text = place.read(name, "COMMITTED").replace(b'"model.bin"', b'"../model.bin"')
    marker = json.loads(text)
    lines = "".join(f"{row['sha256']}  {file}\n" for file, row in sorted(marker["files"].items()))
    marker["sha256"] = hashlib.sha256(lines.encode()).hexdigest()
    place.write(name, "COMMITTED", json.dumps(marker).encode())


@pytest.mark.parametrize(
    ("breaks", "fault", "detail"),
    [
        (cut, "damaged", "model.bin must have 210 bytes, has 105"),
        (flip, "damaged", "model.bin must have SHA-256"),
        (lose, "damaged", "inner/state.json"),
        (unmark, "incomplete", "has no COMMITTED"),
        (cut_marker, "damaged", "COMMITTED cannot be read"),
        (forge_marker, "damaged", "COMMITTED: sha256 must be"),
        (take_marker_of_another, "damaged", "COMMITTED is of"),
        (name_a_file_elsewhere, "damaged", "names '../model.bin'"),
    ],
)
def test_a_broken_checkpoint_is_passed_over_and_told_of(place, breaks, fault, detail, capsys):
    for step in (10, 20, 30):
        place.save(2, step)
    breaks(place, "00000002-0000000030")

    found = place.session().resume()

    assert found.step == 20
    ((step, said, why),) = place.faults()
    assert (step, said) == (30, fault)
    assert detail in why
    assert f"00000002-0000000030 {fault}" in capsys.readouterr().err


def test_resuming_goes_back_as_far_as_it_must(place):
    for step in (10, 20, 30):
        place.save(2, step)
    cut(place, "00000002-0000000030")
    unmark(place, "00000002-0000000020")

    assert place.session().resume().step == 10
    assert [fault[:2] for fault in place.faults()] == [(30, "damaged"), (20, "incomplete")]


def test_a_result_is_not_trained_on_from(place):
    place.save(2, 20)
    place.save(2, 30, "final")
    session = place.session()

    assert session.resume().step == 20
    assert session.result().step == 30


def test_a_result_that_is_broken_is_none(place):
    place.save(2, 30, "final")
    flip(place, "00000002-0000000030-f")

    assert place.session().result() is None


def test_the_same_step_of_a_generation_stays_as_it_was(place):
    first = place.save(2, 20)
    again = place.save(2, 20, content=b"other")

    assert again.sha256 == first.sha256
    assert place.names() == ["00000002-0000000020"]


def test_what_was_put_without_a_marker_is_written_over(place):
    place.save(2, 20)
    cut(place, "00000002-0000000020")
    unmark(place, "00000002-0000000020")

    place.save(2, 20, content=b"other")

    assert (place.session().resume().path / "model.bin").read_bytes() == b"other" * 20


@pytest.mark.parametrize("kind", ["nothing", "marker", "link"])
def test_what_cannot_be_trusted_is_not_committed(place, kind):
    name = CheckpointName(generation=1, step=1, kind="periodic")
    folder = place.store.staging(name)
    folder.mkdir(parents=True)
    if kind == "marker":
        (folder / "COMMITTED").write_text("{}")
    if kind == "link":
        (folder / "model.bin").symlink_to("/etc/hostname")

    with pytest.raises(ValueError, match=r"must hold a file|may be named COMMITTED|plain files"):
        place.store.commit(name, done=1, position=None)
    assert place.names() == []


def test_foreign_folders_are_none_of_ours(place):
    place.write("notes", "README", b"mine")
    place.write("00000001-0000000001-x", "COMMITTED", b"{}")
    place.save(1, 1)

    assert place.names() == ["00000001-0000000001"]
    assert place.session().resume().step == 1


def test_a_killed_writer_leaves_nothing_behind(tmp_path):
    job = AgentFiles(tmp_path / "run")
    place = Place(str(tmp_path / "store"), tmp_path / "scratch", job)
    place.save(1, 1)
    staged = place.store.staging(CheckpointName(generation=1, step=2, kind="periodic"))
    staged.mkdir()
    (staged / "model.bin").write_bytes(b"half")

    assert place.session(generation=2).resume().step == 1
    assert [fault[:2] for fault in place.faults()] == [(2, "incomplete")]
    assert not staged.exists()
    assert place.session(generation=3).resume().step == 1
    assert len(place.faults()) == 1


def test_a_program_killed_while_it_removed_leaves_nothing_behind(tmp_path):
    place = Place(str(tmp_path / "store"), tmp_path / "scratch", AgentFiles(tmp_path / "run"))
    place.save(1, 1)
    half = tmp_path / "store" / "checkpoints" / ".removing-00000001-0000000000" / "inner"
    half.mkdir(parents=True)
    (half / "state.json").write_text("{}")

    assert place.session(generation=2).resume().step == 1

    assert [path.name for path in (tmp_path / "store" / "checkpoints").iterdir()] == place.names()
    assert place.faults() == []


def names(*texts):
    return [CheckpointName.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("complete", "removed"),
    [
        ((), ()),
        (("1-1", "1-2"), ()),
        (("1-1", "1-2", "2-1"), ("1-1",)),
        (("1-1-p", "1-2-p", "1-3"), ("1-1-p",)),
        (("1-1-p", "1-2", "1-3"), ("1-1-p",)),
        (("1-1", "1-2-p", "1-3", "2-1-p"), ("1-2-p",)),
        (("1-1", "1-2", "1-3-f", "2-1", "2-2-p"), ("1-1",)),
        (("1-1-f", "1-2-f", "1-3-f"), ()),
    ],
)
def test_kept_are_two_and_one_for_a_preemption(complete, removed):
    def full(text):
        generation, step, *kind = text.split("-")
        return "-".join((generation.zfill(8), step.zfill(10), *kind))

    assert to_remove(names(*map(full, complete))) == names(*map(full, removed))


def test_names_sort_as_they_count():
    texts = [name.text for name in names("00000002-0000000010", "00000010-0000000002-p")]

    assert texts == sorted(texts)
    assert CheckpointName.parse("2-10") is None


def test_urls_that_cannot_be_opened_name_the_variable(tmp_path):
    with pytest.raises(ValueError, match=r"SPOTLINE_CHECKPOINT_URI must be .* 'nowhere://x'"):
        open_store("nowhere://x", tmp_path)


def test_folders_need_no_fsspec(tmp_path):
    assert isinstance(open_store("relative/folder", tmp_path), FolderStore)
    assert isinstance(open_store("memory://x", tmp_path), UrlStore)


def test_an_instance_that_does_not_see_the_checkpoint_says_so(tmp_path):
    with pytest.raises(CheckpointUnusable, match="has no COMMITTED"):
        FolderStore(tmp_path).fetch(CheckpointName(generation=1, step=1, kind="periodic"))
