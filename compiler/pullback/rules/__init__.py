"""Derivative rules: one small function per op and transform, in one file per family of ops."""
