"""Who calls, as a service of its own."""
