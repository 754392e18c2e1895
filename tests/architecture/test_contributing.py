"""What CONTRIBUTING.md tells a newcomer is so: paths, commands, and the lists it speaks of."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import get_args

import pytest

import spotline.adapters.grpc
import spotline.api.v1
import spotline.domain.events
import spotline.domain.forecasting
import spotline.domain.policies
from spotline.adapters.ledger.tables import METADATA, SCHEMA_VERSION
from spotline.bootstrap.clouds import CLOUDS
from spotline.cli.main import COMMANDS
from spotline.contracts.bus_access import FOLLOWERS
from spotline.contracts.subjects import BATCH_KIND, DEAD_LETTER_KIND, KINDS, OUTPUT_KIND
from spotline.domain.events.event import Event
from spotline.domain.forecasting.registry import forecaster_factory, forecaster_names
from spotline.domain.policies import lives
from spotline.domain.policies.registry import POOL
from tests.fakes.trace_edges import TABLE

# Rooms and rows stand for one service each.
SERVICE = "<service>"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
RPC = re.compile(r"^  rpc (\w+)\(", re.MULTILINE)
MESSAGE = re.compile(r"((?:^//.*\n)+)message (\w+)", re.MULTILINE)
SUBJECT = re.compile(r"Subject: ([a-z.]+?)\.?(?:<|\s|$)")
ROW = re.compile(r"^\| an? (?P<change>[^|]+) \|(?P<place>[^|]+)\|(?P<touch>[^|]+)\|$", re.MULTILINE)


def text_of(repository: Path) -> str:
    return (repository / "CONTRIBUTING.md").read_text()


def quoted(text: str) -> list[str]:
    """Everything in backticks, inline and in blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    bare = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [
        *(line for block in blocks for line in block.splitlines()),
        *re.findall(r"`([^`]+)`", bare),
    ]


def missing_paths(root: Path, text: str) -> list[str]:
    """Paths that the text names and that are not there."""
    services = sorted(path.parent.name for path in root.glob("services/*/__main__.py"))
    named = {
        word.rstrip("/")
        for word in quoted(text)
        if re.fullmatch(r"(src|tests|protos|services|docs|tools)/[\w./*<>-]*", word)
    }
    absent = []
    for name in sorted(named):
        candidates = [name.replace(SERVICE, service) for service in services]
        if not any(any(root.glob(candidate)) for candidate in candidates):
            absent.append(name)
    return absent


def missing_targets(root: Path, text: str) -> list[str]:
    """Make targets that the text names and that the Makefile does not have."""
    known = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = {match[1] for word in quoted(text) for match in re.finditer(r"^make ([a-z-]+)", word)}
    return sorted(named - known)


def broken_links(page: Path) -> list[str]:
    """Links of a page to files of this repository that are not there."""
    targets = [target.partition("#")[0] for target in LINK.findall(page.read_text())]
    return [
        target
        for target in targets
        if target and "://" not in target and not (page.parent / target).exists()
    ]


def classes_of(package) -> Iterator[type]:
    """The public classes that are defined in the modules of a package."""
    for info in iter_modules(package.__path__, package.__name__ + "."):
        module = import_module(info.name)
        for name, found in inspect.getmembers(module, inspect.isclass):
            if found.__module__ == info.name and not name.startswith("_"):
                yield found


def methods(repository: Path) -> Iterator[tuple[str, str]]:
    """Every gRPC method of the protos, as service and method."""
    for path in sorted((repository / "protos/spotline/api/v1").glob("*_service.proto")):
        text = path.read_text()
        for block in re.finditer(r"^service (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            for method in RPC.findall(block[2]):
                yield block[1], method


# --- what the page names ----------------------------------------------------------------------


def test_every_path_that_is_named_exists(repository):
    assert missing_paths(repository, text_of(repository)) == []


def test_every_make_target_that_is_named_exists(repository):
    assert missing_targets(repository, text_of(repository)) == []


@pytest.mark.parametrize(
    "text", ["`src/spotline/domain/policys/`", "`services/<service>/manual.md`", "`docs/no.yaml`"]
)
def test_a_path_that_is_not_there_is_found(repository, text):
    assert missing_paths(repository, text) == [text.strip("`/")]


def test_a_target_that_is_not_there_is_found(repository):
    assert missing_targets(repository, "```sh\nmake chekc  # all\n```") == ["chekc"]


def test_all_nine_changes_have_their_row_and_files_of_a_row_are_in_its_place(repository):
    rows = list(ROW.finditer(text_of(repository)))

    assert [row["change"].strip() for row in rows] == [
        "policy",
        "cloud",
        "event",
        "gRPC method",
        "field of the job file",
        "forecaster",
        "metric",
        "command",
        "column of the ledger",
    ]
    for row in rows:
        (place, *_) = re.findall(r"`([^`]+)`", row["place"])
        for name in re.findall(r"`(\w+\.py)`", row["touch"]):
            assert any(repository.glob(f"{place}{name}")), f"{place}{name}"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/adr/README.md"]
)
def test_links_lead_somewhere(repository, page):
    assert broken_links(repository / page) == []


def test_every_decision_is_in_the_list_of_decisions(repository):
    pages = {path.name for path in (repository / "docs/adr").glob("[0-9]*.md")}
    listed = LINK.findall((repository / "docs/adr/README.md").read_text())

    assert listed == sorted(pages)


# --- the lists that the rows speak of ---------------------------------------------------------


def test_every_policy_is_in_the_pool_and_in_the_dispatch():
    kinds = {
        policy.policy_id: getattr(getattr(policy, "params", None), "kind", None) for policy in POOL
    }
    dispatch = inspect.getsource(import_module(lives.__name__))
    modules = {policy.__class__.__module__.rpartition(".")[2] for policy in POOL}

    assert len(lives.KINDS) == len(set(lives.KINDS)), "two policies have one KIND"
    assert {name for name, kind in kinds.items() if kind not in lives.KINDS} == set()
    for module in modules:
        assert f"{module}.choose(" in dispatch, f"lives.live has no line for {module}"
    classes = {type(policy) for policy in POOL}
    forgotten = {
        found.__name__
        for found in classes_of(spotline.domain.policies)
        if is_dataclass(found) and hasattr(found, "choose") and found not in classes
    }
    assert forgotten == set(), "not in registry.POOL"


def test_every_forecaster_is_in_the_registry():
    registered = {forecaster_factory(name) for name in forecaster_names()}
    forgotten = {
        found.__name__
        for found in classes_of(spotline.domain.forecasting)
        if getattr(found, "model_id", "") and found not in registered
    }

    assert forgotten == set()


def test_every_cloud_has_its_line_and_settings_that_are_variables(repository):
    folders = {
        path.parent.name for path in (repository / "src/spotline/adapters/clouds").glob("*/*.py")
    }

    assert folders == set(CLOUDS), "not in bootstrap/clouds.py"
    for plugin in CLOUDS.values():
        assert is_dataclass(plugin.settings)
        assert plugin.settings.__dataclass_params__.frozen


def test_every_message_with_a_subject_is_an_event_of_that_kind(repository):
    stated = {
        name: SUBJECT.search(" ".join(comment.replace("//", "").split()))
        for path in sorted((repository / "protos/spotline/api/v1").glob("*.proto"))
        for comment, name in MESSAGE.findall(path.read_text())
    }
    of_protos = {name: match[1] for name, match in stated.items() if match}

    assert of_protos.pop("DeadLettered") == DEAD_LETTER_KIND
    assert of_protos.pop("EventBatch") == BATCH_KIND
    assert of_protos.pop("OutputChunk") == OUTPUT_KIND
    assert of_protos == {event.__name__: kind for event, kind in KINDS.items()}


def test_every_dataclass_of_an_event_message_is_an_event(repository):
    events = set(get_args(Event))
    subjects = {
        name
        for path in (repository / "protos/spotline/api/v1").glob("*.proto")
        for comment, name in MESSAGE.findall(path.read_text())
        if "Subject:" in comment
    }
    forgotten = {
        found.__name__
        for found in classes_of(spotline.domain.events)
        if found.__name__ in subjects and found not in events
    }

    assert forgotten == set(), "not in domain/events/event.py"


def test_every_grpc_method_is_served_listed_and_on_its_card(repository):
    listed = {row["method"]: row["to"] for row in TABLE["calls"]}
    served = set()
    for service in (repository / "src/spotline/adapters/grpc").iterdir():
        for module in sorted(service.glob("*servicer.py")):
            dotted = ".".join(module.relative_to(repository / "src").with_suffix("").parts)
            for _, found in inspect.getmembers(import_module(dotted), inspect.isclass):
                parts = [part for part in found.__mro__ if part.__module__.startswith("spotline.")]
                served |= {
                    (base.__name__.removesuffix("Servicer"), name)
                    for base in parts
                    if base.__module__.endswith("_pb2_grpc")
                    for part in parts
                    if not part.__module__.endswith("_pb2_grpc")
                    for name in vars(part)
                }
    for service, method in methods(repository):
        assert (service, method) in served, f"no servicer implements {service}/{method}"
        answers = listed.get(f"{spotline.api.v1.__name__}.{service}/{method}")
        assert answers, f"{service}/{method} has no row in docs/trace-edges.yaml"
        card = (repository / f"services/{answers}/README.md").read_text()
        words = {
            word
            for line in card.splitlines()
            if "gRPC" in line
            for word in re.findall(r"\w+", line)
        }
        assert method in words, f"{method} is not on the card of services/{answers}"


def test_every_module_that_registers_a_command_is_in_the_list(repository):
    modules = {
        path.stem
        for path in (repository / "src/spotline/cli").glob("*.py")
        if re.search(r"^def register\(app: typer\.Typer\)", path.read_text(), re.MULTILINE)
    }

    assert sorted(COMMANDS) == sorted(modules)


def test_a_service_has_one_name_in_folder_room_spec_and_compose_file(repository):
    compose = (repository / "docker-compose.yml").read_text()
    folders = {path.parent.name for path in repository.glob("services/*/__main__.py")}
    publishers = set()

    assert folders >= FOLLOWERS
    # What follows the log without a place in it takes no turns: it has no handler.
    for service in folders - FOLLOWERS:
        spec = import_module(f"spotline.application.{service}.handler").SPEC
        assert spec.service == service
        publishers |= {service} if spec.produces else set()
        assert re.search(rf"^  {service}:$", compose, re.MULTILINE)
    assert publishers == {row["from"] for row in TABLE["messages"]}


def test_a_ledger_of_other_columns_has_another_version():
    columns = " ".join(
        sorted(str(column) for table in METADATA.tables.values() for column in table.columns)
    )
    found = SCHEMA_VERSION, hashlib.sha256(columns.encode()).hexdigest()[:16]

    # An older ledger under the same number is opened, not migrated, and fails at the first read.
    assert found == (5, "5df81baaed65df2c"), "raise SCHEMA_VERSION in tables.py and note both here"
