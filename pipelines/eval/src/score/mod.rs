//! The three scores of an attempt. They are reported side by side and never combined.
//!
//! | score | decided by | defined in |
//! | --- | --- | --- |
//! | `upstream` | upstream's own test, unchanged; outputs of other tasks are present if it names them | `data/unit_test/tests.py` of the fetched repository |
//! | `fixed` | the same test in isolation, with broken or wrong oracles repaired | the same file, or `pipelines/suites/pybench/fixed.py` if that has the function |
//! | `strict` | executable checks of this project | `pipelines/suites/pybench/tasks/*.toml` and `src/checks/python` |
//!
//! Every test runs in its own sandbox session. Upstream's tests unpickle output files in the process that
//! decides the verdict, so a malicious pickle can make them pass; that is a weakness of upstream's design.
//! `strict` runs candidate code in a session that contains neither the reference nor the checker.

pub mod strict;
