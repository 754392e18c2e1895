"""The table of access against the protos it speaks of."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from google.protobuf.descriptor import FileDescriptor

import spotline.api.v1
from spotline.contracts.access import GRPC_ACTIONS, HTTP_ACTIONS, ROLE_MEANINGS, Does, Role
from tools.document_access import DOCUMENT, page


def _methods() -> set[str]:
    found: set[str] = set()
    for module in pkgutil.iter_modules(spotline.api.v1.__path__):
        if not module.name.endswith("_pb2"):
            continue
        file: FileDescriptor = importlib.import_module(f"spotline.api.v1.{module.name}").DESCRIPTOR
        for service in file.services_by_name.values():
            found |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    return found


def test_every_method_of_every_service_has_its_row() -> None:
    assert set(GRPC_ACTIONS) == _methods()


def test_every_role_is_explained() -> None:
    assert set(ROLE_MEANINGS) == set(Role)


@pytest.mark.parametrize("name", sorted(GRPC_ACTIONS))
def test_who_only_reads_changes_nothing(name: str) -> None:
    action = GRPC_ACTIONS[name]

    assert action.does is Does.READ or Role.VIEWER not in action.roles


def test_the_page_on_access_is_the_table() -> None:
    # `python -m tools.document_access` writes it.
    assert DOCUMENT.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("role", sorted(Role, key=lambda role: role.value))
def test_what_is_got_over_http_is_read_only_and_no_instances(role: Role) -> None:
    for name, action in HTTP_ACTIONS.items():
        assert action.does is Does.READ or name.startswith("POST ")
        assert role is not Role.INSTANCE or role not in action.roles
