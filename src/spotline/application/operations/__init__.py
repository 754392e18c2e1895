"""What those who run Spotline see and do: parked entries, stops of buying, agreement, orphans."""
