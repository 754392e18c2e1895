"""EC2, as far as a scheduler of instances needs it."""
