"""Tasks of pybench's library for verifiers."""

from pybench_library.taskset import LibraryHarness, LibraryTaskset

__all__ = ["LibraryHarness", "LibraryTaskset"]
