"""Write the bills of materials of a deployment, in CycloneDX 1.6: `make sbom`.

`python.cdx.json` and `python-clouds.cdx.json` are requirements/runtime.txt and clouds.txt: what pip
installs into the images, with the hashes that it checks, the licences and the dependencies that the
installed packages declare. `images.cdx.json` is what a deployment runs: our image, and those of
others, with what they hold (deploy/images.toml).

No time and no serial number: the same lock on the same platform gives the same bytes. What a lock has
for other platforms is not installed here; it stands there without licence, and is named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotline import __version__
from tools.supply.images import ROOT, Described, Image, table, used

SPEC = "1.6"
LOCKS: Mapping[str, str] = {
    "python.cdx.json": "requirements/runtime.txt",
    "python-clouds.cdx.json": "requirements/clouds.txt",
}
IMAGES = "images.cdx.json"
_LICENCE = "Apache-2.0"
_SERVICES = "services"

Json = dict[str, Any]


class SbomError(Exception):
    """A bill of materials cannot be made, or is not what CycloneDX demands."""


def main() -> None:
    """Write them; exit 1 where one is not valid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist/sbom")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    try:
        installed = packages_of(Path(sys.executable))
        for name, lock in LOCKS.items():
            document = of_lock(ROOT / lock, installed)
            (arguments.output / name).write_text(valid(document))
            print(f"{arguments.output / name}: {len(document['components'])} packages of {lock}")
            if unknown := without_licence(document):
                print(f"  no licence known here: {', '.join(unknown)}")
        document = of_images([image for _, image in used(ROOT)], table(ROOT), _services(ROOT))
        (arguments.output / IMAGES).write_text(valid(document))
        print(f"{arguments.output / IMAGES}: {len(document['components'])} images")
    except SbomError as error:
        sys.exit(str(error))


# --- Python packages ----------------------------------------------------------------------------


def packages_of(python: Path) -> Json:
    """What is installed beside an interpreter, as cyclonedx-py finds it."""
    return _cyclonedx("environment", str(python))


def of_lock(lock: Path, installed: Json) -> Json:
    """The packages of a lock with hashes; licences and dependencies are of what is installed.

    Raises
    ------
    SbomError
        The lock cannot be read, or has a package without a hash.
    """
    known = {_key(component): component for component in installed["components"]}
    components, refs = [], {}
    for found in _cyclonedx("requirements", str(lock))["components"]:
        same = known.get(_key(found))
        component = _package(found, same)
        if same is not None:
            refs[same["bom-ref"]] = component["bom-ref"]
        components.append(component)
    graph = {row["ref"]: row.get("dependsOn", ()) for row in installed["dependencies"]}
    below = {
        ours: sorted(refs[other] for other in graph.get(theirs, ()) if other in refs)
        for theirs, ours in refs.items()
    }
    dependencies = [
        {"ref": component["bom-ref"], "dependsOn": below.get(component["bom-ref"], [])}
        for component in components
    ]
    (own,) = (
        graph[component["bom-ref"]] for key, component in known.items() if key[0] == "spotline"
    )
    direct = [refs[other] for other in own if other in refs]
    return _document(_spotline("spotline", "application"), components, dependencies, direct)


def without_licence(document: Json) -> list[str]:
    """The packages whose licence is not known."""
    return [found["name"] for found in document["components"] if not found.get("licenses")]


def _package(found: Json, installed: Json | None) -> Json:
    purl = f"pkg:pypi/{_normal(found['name'])}@{found['version']}"
    references = found.get("externalReferences", ())
    hashes = [one for reference in references for one in reference.get("hashes", ())]
    if not hashes:
        raise SbomError(f"{found['name']} {found['version']}: the lock has no hash of it")
    component = {
        "bom-ref": purl,
        "type": "library",
        "name": found["name"],
        "version": found["version"],
        "purl": purl,
        # Of every file that the lock allows: a wheel for each platform, and the source.
        "externalReferences": [
            {
                "type": "distribution",
                "url": purl,
                "hashes": sorted(hashes, key=lambda one: str(one["content"])),
            }
        ],
    }
    if installed is not None and installed.get("licenses"):
        component["licenses"] = installed["licenses"]
    return component


def _key(component: Json) -> tuple[str, str]:
    return _normal(component["name"]), str(component.get("version", ""))


def _normal(name: str) -> str:
    """A project's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _cyclonedx(*words: str) -> Json:
    command = (sys.executable, "-m", "cyclonedx_py", *words)
    # Validated when it is whole; nothing of the index that pip uses here gets into it.
    options = ("--output-reproducible", "--short-PURLs", "--no-validate", "--spec-version", SPEC)
    done = subprocess.run((*command, *options), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"cyclonedx-py {' '.join(words)}: {done.stderr.strip()}")
    answer: Json = json.loads(done.stdout)
    return answer


# --- images -------------------------------------------------------------------------------------


def of_images(
    images: Iterable[Image], known: Mapping[str, Described], services: Sequence[str]
) -> Json:
    """The images that a deployment runs: ours, and those of others with what they hold."""
    others = [_image(image, known.get(image.name)) for image in sorted(set(images), key=_named)]
    ours = [_our_image(service) for service in services]
    bases = [other["bom-ref"] for other in others if other["name"] == "python"]
    dependencies = [{"ref": image["bom-ref"], "dependsOn": bases} for image in ours]
    dependencies += [{"ref": image["bom-ref"], "dependsOn": []} for image in others]
    return _document(
        _spotline("spotline-deployment", "application"), [*ours, *others], dependencies
    )


def _our_image(service: str) -> Json:
    wheel = _spotline("spotline", "library") | {"bom-ref": f"spotline in {service}"}
    return {
        "bom-ref": f"image spotline-{service}",
        "type": "container",
        "name": f"spotline-{service}",
        "version": __version__,
        "description": f"services/Dockerfile with SERVICE={service}; all but its last layer is shared",
        # What pip installs beside it is a document of its own.
        "externalReferences": [{"type": "bom", "url": next(iter(LOCKS))}],
        "components": [wheel],
    }


def _image(image: Image, known: Described | None) -> Json:
    repository, name = image.repository, image.repository.rpartition("/")[2]
    url = quote(repository, safe="")
    version = image.digest or image.tag
    purl = f"pkg:oci/{name}@{quote(version, safe='')}?repository_url={url}&tag={image.tag}"
    component: Json = {
        "bom-ref": purl,
        "type": "container",
        "name": name,
        "version": image.tag,
        "purl": purl,
    }
    if image.digest:
        digest = image.digest.partition(":")[2]
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if known is not None and known.unpinned_because:
        component["description"] = f"not by digest: {known.unpinned_because}"
    if known is not None and known.image.digest == image.digest and known.holds:
        component["externalReferences"] = [{"type": "evidence", "url": known.source}]
        component["components"] = [_held(part, purl) for part in known.holds]
    return component


def _held(part: Mapping[str, str], image: str) -> Json:
    component: Json = {
        "bom-ref": f"{part['purl']} in {image}",
        "type": "operating-system" if part["name"] in ("alpine", "debian") else "application",
        "name": part["name"],
        "version": part["version"],
        "purl": part["purl"],
    }
    if licence := part.get("licence"):
        component["licenses"] = [{"license": {"id": licence}}]
    return component


def _named(image: Image) -> str:
    return image.pinned


def _services(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / _SERVICES).glob("*/__main__.py"))


# --- documents ----------------------------------------------------------------------------------


def valid(document: Json) -> str:
    """The text of a document.

    Raises
    ------
    SbomError
        It is not what CycloneDX demands, or two of its components are told apart by nothing.
    """
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    refs = [component["bom-ref"] for component in document["components"]]
    if len(set(refs)) != len(refs):
        raise SbomError("two components have one bom-ref")
    # Here, not above: it builds a grammar of addresses for a second as it is imported.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.from_version(SPEC)).validate_str(text)
    if error is not None:
        raise SbomError(f"not CycloneDX {SPEC}: {error}")
    return text


def _document(
    subject: Json,
    components: Sequence[Json],
    dependencies: Sequence[Json],
    direct: Iterable[str] = (),
) -> Json:
    below = sorted({*direct, *_roots(dependencies)})
    rows = [*dependencies, {"ref": subject["bom-ref"], "dependsOn": below}]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {
            "component": subject,
            "properties": [{"name": "cdx:reproducible", "value": "true"}],
        },
        "components": sorted(components, key=lambda component: str(component["bom-ref"])),
        "dependencies": sorted(rows, key=lambda row: str(row["ref"])),
    }


def _roots(dependencies: Sequence[Json]) -> list[str]:
    """What nothing else needs: extras of the subject, or what it runs."""
    needed = {ref for row in dependencies for ref in row["dependsOn"]}
    return [row["ref"] for row in dependencies if row["ref"] not in needed]


def _spotline(name: str, kind: str) -> Json:
    return {
        "bom-ref": f"{name} {__version__}",
        "type": kind,
        "name": name,
        "version": __version__,
        "licenses": [{"license": {"id": _LICENCE}}],
    }


if __name__ == "__main__":
    main()
