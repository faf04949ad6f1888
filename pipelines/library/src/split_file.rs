//! The rows of a file, split into a shown and a held-out part.

use pybench_run::{ContentStore, RunError};
use pybench_types::task::{Profile, SourceFile};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::split::{self, Parts};
use super::template::Split;

/// Splits the rows of a file; `None` if it cannot be split.
pub(crate) fn split_file(
    file: &SourceFile,
    rule: &Split,
    seed: u64,
    store: &ContentStore,
) -> Result<Option<Parts>, RunError> {
    let Profile::Table(table) = &file.profile else {
        return Ok(None);
    };
    let bytes = store.get(&file.id)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Ok(split::split(&bytes, table.rows, rule, &mut rng))
}
