"""OperationsService: how the system is, and what a person can do about it."""
