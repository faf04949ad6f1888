//! Grade: filters trajectories by executed checks.
