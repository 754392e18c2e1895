"""What proves a caller, what a server shows, and what a client needs to speak to it."""
