"""What somebody is to be told outside of pages and terminals: alerts, folded from the log."""
