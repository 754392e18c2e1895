"""The page's state at any slot before is that of a log that ended there."""
