"""Who a caller is, and what he may do."""
