//! What every stage's command line shares.
