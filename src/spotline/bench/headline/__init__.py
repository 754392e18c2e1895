"""The front page's three numbers: money by finished job, deadlines kept of promised, dollars that no decision explains."""
