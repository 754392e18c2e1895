"""Spotline: deadline-aware scheduling of fine-tuning jobs over spot and on-demand instances."""

__version__ = "0.2.0"
