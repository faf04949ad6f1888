//! Tests that need something this machine may lack.
//!
//! `PYBENCH_REQUIRE_ALL=tools`, which CI sets, makes each [`missing_tool`] a failure; `PYBENCH_REQUIRE_ALL=1`
//! makes every skip one. `PYBENCH_SKIPS` names a file that collects the skips of a whole run.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Says that the running test is skipped because it needs what set-up installs from Debian or a package registry.
pub fn missing_tool(reason: impl Display) {
    skip("tool", &["1", "tools"], &reason.to_string());
}

/// Says that the running test is skipped because it needs what no set-up can install: files that somebody
/// has to name, an account, hardware, a daemon.
pub fn unavailable(reason: impl Display) {
    skip("given", &["1"], &reason.to_string());
}

fn skip(need: &str, fails_under: &[&str], reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let required = std::env::var("PYBENCH_REQUIRE_ALL").unwrap_or_default();
    if fails_under.contains(&required.as_str()) {
        panic!(
            "PYBENCH_REQUIRE_ALL={required} is set, and {test} needs what is missing here: {reason}"
        );
    }
    eprintln!("skipped: {reason}");
    if let Some(path) = std::env::var_os("PYBENCH_SKIPS") {
        let line = format!("{need}\t{test}\t{}\n", reason.replace(['\n', '\t'], " "));
        let file = OpenOptions::new().create(true).append(true).open(path);
        // A list that cannot be written must not fail the test.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
