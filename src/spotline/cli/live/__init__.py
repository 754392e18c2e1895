"""The live view of `spotline watch`: jobs, market and a chart, in a terminal."""
