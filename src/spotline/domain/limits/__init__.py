"""What may be bought: stops of buying, limits on money, prices that are believed."""
