"""The audit on the disk: chains of records, in files of the store."""
