"""Stands in for pip in sessions that have no wheelhouse: explains what is there and what is not."""
