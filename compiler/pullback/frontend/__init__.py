"""From a Python function to a module: trace, keep, lower, and stage rules on demand."""
