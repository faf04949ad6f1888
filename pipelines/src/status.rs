//! Status: the funnel of a run, its cost and its failures.
