"""What a bill of the past says, and what it would have been: see `facts` for what is handed on."""
