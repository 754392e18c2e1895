"""Telling others by HTTP: what is posted, what is still to be, and the posting itself."""
