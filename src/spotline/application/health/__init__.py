"""Whether everything is as it should be: facts that a shell collects, and the rules that judge them."""
