"""What a deployment is made of: images by digest, and bills of materials that are whole."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import shutil
import sys
import threading
from datetime import date
from pathlib import Path

import pytest

from tests.fakes.strict_yaml import read_yaml
from tools.supply import pin, sbom
from tools.supply.images import Described, Image, TableError, named, problems, table, used
from tools.supply.registry import RegistryError, digest_of

DIGEST = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64
TABLE = f"""\
[[image]]
name = "base:1"
digest = "{DIGEST}"
source = "https://example.org/base"
holds = [{{ name = "python", version = "3.12.1", purl = "pkg:generic/python@3.12.1" }}]

[[image]]
name = "extra/tracer:1.0"
unpinned_until = 2026-12-31
unpinned_because = "no registry was reached"
"""


@pytest.fixture
def root(tmp_path) -> Path:
    """A deployment of one Dockerfile and one compose file."""
    (tmp_path / "services").mkdir()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "services/Dockerfile").write_text(
        f"ARG BASE_IMAGE=base:1@{DIGEST}\nFROM ${{BASE_IMAGE}} AS build\nFROM build\n"
    )
    (tmp_path / "docker-compose.yml").write_text(
        "services:\n  tracer:\n    image: ${TRACER:-extra/tracer:1.0}\n"
    )
    (tmp_path / "deploy/images.toml").write_text(TABLE)
    return tmp_path


def changed(root: Path, file: str, old: str, new: str) -> None:
    path = root / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# --- images by digest ---------------------------------------------------------------------------


def test_every_image_is_named_by_digest_or_stands_in_the_dated_list(repository):
    # Whether a date is over is for `make docker-lint` to say: no test fails by the calendar.
    assert list(problems(used(repository), table(repository), date.min)) == []
    assert {image.name for _, image in used(repository) if image.digest} == {
        "python:3.12-slim",
        "nats:2.15-alpine",
    }


def test_no_image_of_a_compose_file_is_overlooked(repository):
    for path in sorted(
        {*repository.glob("deploy/compose/*.yml"), repository / "docker-compose.yml"}
    ):
        services = read_yaml(path)["services"].values()
        images = [service["image"] for service in services if "image" in service]

        found = [image.pinned for image in named(path, path.read_text())]

        assert [re.sub(r"^\$\{\w+:-|\}$", "", image) for image in images] == found


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("services/Dockerfile", f"@{DIGEST}", "", "base:1 needs its digest"),
        ("services/Dockerfile", DIGEST, OTHER, "another digest"),
        ("services/Dockerfile", DIGEST, "sha256:12", "64 hex digits"),
        ("services/Dockerfile", "FROM build", "FROM debian:13", "debian:13 is not in"),
        (
            "services/Dockerfile",
            "FROM build\n",
            "COPY --from=busybox:1 /a /a\n",
            "busybox:1 is not",
        ),
        ("docker-compose.yml", "tracer:1.0", "tracer:1.0.1", "tracer:1.0 is named nowhere"),
        ("deploy/images.toml", "2026-12-31", "2026-10-31", "may go without a digest until"),
    ],
)
def test_an_image_that_may_become_another_is_named(root, file, old, new, complaint):
    assert pin.check(root, date(2026, 11, 23)) == []

    changed(root, file, old, new)

    assert any(complaint in problem for problem in pin.check(root, date(2026, 11, 23)))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "base:1"', 'name = "base"', "name must be NAME:TAG"),
        (DIGEST, "sha256:1", "digest must be"),
        ('source = "https://example.org/base"', "", "source must say"),
        (f'digest = "{DIGEST}"', "", "either digest or unpinned_until"),
        ("unpinned_until = 2026-12-31", 'unpinned_until = "soon"', "must be a date"),
        ("holds", "hold", "unknown field 'hold'"),
        ("extra/tracer:1.0", "base:1", "each image once"),
    ],
)
def test_a_table_of_images_is_read_strictly(root, old, new, complaint):
    changed(root, "deploy/images.toml", old, new)

    with pytest.raises(TableError, match=re.escape(complaint)):
        table(root)


def test_pinning_rewrites_what_moved_and_asks_for_what_it_holds(root):
    moved = pin.pin(root, lambda image: OTHER)

    assert moved == [
        f"docker-compose.yml: extra/tracer:1.0@{OTHER}",
        f"services/Dockerfile: base:1@{OTHER}",
    ]
    assert f"${{TRACER:-extra/tracer:1.0@{OTHER}}}" in (root / "docker-compose.yml").read_text()
    assert any("another digest" in problem for problem in pin.check(root, date(2026, 11, 23)))
    assert pin.pin(root, lambda image: OTHER) == []


def test_nothing_is_rewritten_where_one_registry_is_silent(root):
    before = (root / "services/Dockerfile").read_text()

    def ask(image: Image) -> str:
        if image.name == "base:1":
            return OTHER
        raise RegistryError("silent")

    with pytest.raises(RegistryError):
        pin.pin(root, ask)

    assert (root / "services/Dockerfile").read_text() == before


# --- registries ---------------------------------------------------------------------------------


class Registry(http.server.BaseHTTPRequestHandler):
    """Shows one manifest, to those who have asked for a token."""

    manifest = b'{"schemaVersion": 2}'
    said = ""

    def do_GET(self):
        address = "{}:{}".format(*self.server.server_address)
        if self.path == "/token?service=here&scope=repository%3Atracer%3Apull":
            return self._answer(200, json.dumps({"token": "a-token"}).encode())
        if self.headers.get("Authorization") != "Bearer a-token":
            challenge = (
                f'Bearer realm="http://{address}/token",'
                'service="here",scope="repository:tracer:pull"'
            )
            return self._answer(401, b"", {"WWW-Authenticate": challenge})
        lists = "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
        if self.path != "/v2/tracer/manifests/1.0" or not lists:
            return self._answer(404, b"")
        return self._answer(200, self.manifest, {"Docker-Content-Digest": self.said})

    def _answer(self, code, body, headers=()):
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_registry_is_asked_with_the_token_that_it_wants(registry, monkeypatch):
    expected = f"sha256:{hashlib.sha256(Registry.manifest).hexdigest()}"
    monkeypatch.setattr(Registry, "said", expected)

    assert digest_of(Image(name=f"{registry}/tracer:1.0"), scheme="http") == expected


def test_a_digest_that_is_not_that_of_the_manifest_is_not_believed(registry, monkeypatch):
    monkeypatch.setattr(Registry, "said", OTHER)

    with pytest.raises(RegistryError, match="its manifest has sha256:"):
        digest_of(Image(name=f"{registry}/tracer:1.0"), scheme="http")


def test_a_tag_that_a_registry_has_not_is_named(registry):
    with pytest.raises(RegistryError, match=r"tracer:2\.0: .*404"):
        digest_of(Image(name=f"{registry}/tracer:2.0"), scheme="http")


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("nats:2", "docker.io/library/nats"),
        ("prom/prometheus:v3", "docker.io/prom/prometheus"),
        ("quay.io/prom/prometheus:v3", "quay.io/prom/prometheus"),
        ("localhost:5000/prom:v3", "localhost:5000/prom"),
    ],
)
def test_an_image_without_a_registry_is_of_the_common_one(name, repository):
    assert Image(name=name).repository == repository


# --- bills of materials -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed() -> dict:
    return sbom.packages_of(Path(sys.executable))


def cut(repository: Path, into: Path, names: set[str]) -> Path:
    """Some packages of the lock of a deployment, as it has them."""
    text = (repository / "requirements/runtime.txt").read_text()
    rows = re.split(r"\n(?=\S)", text)
    into.write_text("\n".join(row for row in rows if row.partition("==")[0] in names) + "\n")
    return into


def test_a_package_has_its_hashes_licence_and_dependencies(repository, tmp_path, installed):
    lock = cut(repository, tmp_path / "lock.txt", {"cffi", "cryptography", "pycparser"})

    document = sbom.of_lock(lock, installed)

    found = {component["name"]: component for component in document["components"]}
    assert set(found) == {"cffi", "cryptography", "pycparser"}
    hashes = {
        one["content"]
        for component in found.values()
        for one in component["externalReferences"][0]["hashes"]
    }
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", lock.read_text()))
    assert sbom.without_licence(document) == []
    below = {row["ref"]: row["dependsOn"] for row in document["dependencies"]}
    refs = {name: component["bom-ref"] for name, component in found.items()}
    assert below[refs["cryptography"]] == [refs["cffi"]]
    assert below[refs["cffi"]] == [refs["pycparser"]]
    assert refs["cryptography"] in below[document["metadata"]["component"]["bom-ref"]]
    # The same lock gives the same bytes, and nothing of when or where it was made.
    text = sbom.valid(document)
    moved = shutil.copy(lock, tmp_path / "moved.txt")
    assert sbom.valid(sbom.of_lock(Path(moved), installed)) == text
    assert str(tmp_path) not in text
    assert not {"serialNumber", "timestamp"} & {*document, *document["metadata"]}


def test_a_package_without_a_hash_is_refused(tmp_path, installed):
    (tmp_path / "lock.txt").write_text("cffi==2.0.0\n")

    with pytest.raises(sbom.SbomError, match="no hash"):
        sbom.of_lock(tmp_path / "lock.txt", installed)


def test_every_image_is_written_down_with_what_it_holds(repository):
    services = [path.parent.name for path in repository.glob("services/*/__main__.py")]
    images = [image for _, image in used(repository)]

    document = sbom.of_images(images, table(repository), services)

    sbom.valid(document)
    found = {component["name"]: component for component in document["components"]}
    assert {f"spotline-{service}" for service in services} <= set(found)
    (broker,) = (image for image in images if image.name.startswith("nats:"))
    assert found["nats"]["hashes"] == [{"alg": "SHA-256", "content": broker.digest[7:]}]
    assert found["nats"]["components"][0]["name"] == "nats-server"
    assert found["prometheus"]["description"].startswith("not by digest")
    below = {row["ref"]: row["dependsOn"] for row in document["dependencies"]}
    assert below["image spotline-selector"] == [found["python"]["bom-ref"]]


def test_what_a_moved_digest_holds_is_not_claimed():
    image = Image(name="base:1", digest=OTHER)
    known = {"base:1": _described(DIGEST)}

    document = sbom.of_images([image], known, [])

    assert "components" not in document["components"][0]
    assert (
        "components"
        in sbom.of_images([Image(name="base:1", digest=DIGEST)], known, [])["components"][0]
    )


def _described(digest: str) -> Described:
    held = {"name": "python", "version": "3.12.1", "purl": "pkg:generic/python@3.12.1"}
    return Described(
        image=Image(name="base:1", digest=digest), source="https://example.org", holds=(held,)
    )


def test_what_is_not_cyclonedx_is_refused():
    with pytest.raises(sbom.SbomError, match="not CycloneDX"):
        sbom.valid(sbom.of_images([], {}, []) | {"specVersion": 1})
