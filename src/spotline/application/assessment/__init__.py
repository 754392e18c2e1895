"""What else the jobs of a bill would have cost: `assess.assess` is the way in."""
