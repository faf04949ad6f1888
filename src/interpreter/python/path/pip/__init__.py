"""Stands in for pip in sessions that have neither wheelhouse nor network: explains what is there and what is not."""
