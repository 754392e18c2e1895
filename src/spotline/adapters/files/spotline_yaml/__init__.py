"""The one file that says how an installation runs: `spotline.yaml` (docs/configuration.md)."""
