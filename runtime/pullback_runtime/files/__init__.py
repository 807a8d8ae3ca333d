"""Read saved programs, and any other module, from bytes that may be damaged or hostile."""
