//! The three scores, side by side and never mixed.
//!
//! | score | what decides | where it is defined |
//! | --- | --- | --- |
//! | `upstream` | upstream's own test with its quirks: outputs of other tasks lie beside where it names them | `data/unit_test/tests.py` of the fetched repository |
//! | `fixed` | the same intent, the task alone, broken and wrong oracles repaired | the same file, and `pipelines/pybench/fixed.py` where that has the function |
//! | `strict` | our executable checks | `pipelines/pybench/tasks/*.toml` and `src/grade/python` |
//!
//! Every test runs in a session of its own. Upstream's tests open pickles in the process that decides:
//! whoever made the pickle can make that process say "pass". This is upstream's doing; `strict` runs
//! models where neither reference nor checker is.

pub mod strict;
pub mod unit;
