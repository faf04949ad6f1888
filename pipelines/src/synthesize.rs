//! Synthesize: every data stage in order, for one recipe.
