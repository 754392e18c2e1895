"""Which rules decide: equal versions promise equal decisions on equal inputs."""

DECISION_VERSION = 1
"""Raised with every change after which a recorded input leads to another decision, and only then.

Version 1 are the decisions of Spotline 0.1.0. A log says with which version it was decided, and is
verified only by releases of the same.
"""
