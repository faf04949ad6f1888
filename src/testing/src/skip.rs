//! Tests that need something this machine may lack.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says that the running test is skipped, and why. `PYBENCH_REQUIRE_ALL=1` turns this into a failure;
/// `PYBENCH_SKIPS` names a file that collects the skips of a whole run.
pub fn skip(reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    if std::env::var_os("PYBENCH_REQUIRE_ALL").is_some_and(|value| value == "1") {
        panic!("{test} needs what is missing here: {reason}");
    }
    eprintln!("skipped: {reason}");
    if let Some(path) = std::env::var_os("PYBENCH_SKIPS") {
        let line = format!(
            "{test}\t{}\n",
            reason.to_string().replace(['\n', '\t'], " ")
        );
        let file = OpenOptions::new().create(true).append(true).open(path);
        // A list that cannot be written must not fail the test.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
