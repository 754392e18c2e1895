"""Assessments as files that stand alone: a page, and JSON."""
