//! The query by which Kubernetes scales workers (`deploy/kubernetes/scaling`).

use pybench_run::{RunFolder, WhenChanged};
use pybench_testing::{ROOT, postgres};

/// The query in the manifest: a block of text that is deeper than its key.
fn query() -> String {
    let manifest = format!("{ROOT}/deploy/kubernetes/scaling/scaledobject.yaml");
    let text = std::fs::read_to_string(manifest).unwrap();
    let (before, block) = text.split_once("query: >-\n").unwrap();
    let depth = before.len() - before.rfind('\n').unwrap() - 1;
    let is_deeper = |line: &&str| line.len() - line.trim_start().len() > depth;
    let lines: Vec<&str> = block.lines().take_while(is_deeper).map(str::trim).collect();
    lines.join(" ")
}

#[test]
fn the_query_for_scaling_counts_the_units_of_one_run() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let (run, changed) = (root.path().join(name), WhenChanged::default());
        RunFolder::open_in_profile(&run, "seed = 1\n", &changed, Some(&profile)).unwrap()
    };
    let query = query();
    assert_eq!(postgres::sql(&query), "0", "there is no run yet");
    let items = ["a", "b", "c"].map(str::to_owned);
    for name in ["example", "another"] {
        let folder = open(name);
        let journal = folder.journal();
        journal.enqueue("rollout", &items).unwrap();
        journal.offer("round", "rollout", &items).unwrap();
    }
    assert_eq!(postgres::sql(&query), "3");
    let folder = open("example");
    folder.journal().clear_offers().unwrap();
    assert_eq!(postgres::sql(&query), "0");
}
