//! The tables of `just bench teach`, computed from planted records by the real program.

use std::process::Command;

use pybench_testing::ROOT;

use crate::support::PYBENCH;

#[test]
fn tables_have_the_statistics_of_the_report() {
    let tested = Command::new("python3")
        .arg("-B")
        .arg(format!("{ROOT}/training/benches/teach_tables_test.py"))
        .arg(PYBENCH)
        .output()
        .unwrap();
    assert!(tested.status.success(), "{tested:?}");
}
