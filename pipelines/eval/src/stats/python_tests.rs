//! Compares the statistics with scipy and statsmodels from the Python environment of the sandbox.

use std::path::PathBuf;
use std::process::Command;

use super::bootstrap::{bootstrap, paired};
use super::*;
use serde_json::{Value, json};

const PROGRAM: &str = r#"
import json, sys
import numpy, scipy.stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
ask = json.load(sys.stdin)
def boot(values):
    found = scipy.stats.bootstrap((numpy.array(values),), numpy.mean, n_resamples=20000,
                                  method="percentile", random_state=7).confidence_interval
    return [found.low, found.high]
print(json.dumps({
    "wilson": [list(proportion_confint(c, n, method="wilson")) for c, n in ask["wilson"]],
    "mcnemar": [float(mcnemar([[0, a], [b, 0]], exact=True).pvalue) for a, b in ask["mcnemar"]],
    "holm": [list(multipletests(p, method="holm")[1]) for p in ask["holm"]],
    "kappa": [float(cohens_kappa(t).kappa) for t in ask["kappa"]],
    "bootstrap": [boot(v) for v in ask["bootstrap"]],
}))
"#;

/// A Python with scipy and statsmodels: an environment of the sandbox, or `python3`.
fn python() -> Option<PathBuf> {
    let has = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import scipy, statsmodels"]);
        command.output().is_ok_and(|out| out.status.success())
    };
    let folder = std::fs::read_dir(pybench_interpreter::default_cache_dir().join("envs")).ok()?;
    let mut found: Vec<_> = folder
        .flatten()
        .map(|e| e.path().join("bin/python"))
        .collect();
    found.push("python3".into());
    found.sort();
    found.into_iter().find(has)
}

fn ask(question: &Value) -> Option<Value> {
    let Some(python) = python() else {
        pybench_testing::skip::missing_tool(
            "no Python with scipy and statsmodels; pybench setup makes one",
        );
        return None;
    };
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), question).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

fn near(found: f64, expected: &Value, tolerance: f64, what: &str) {
    let expected = expected.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: {found}, expected {expected}"
    );
}

#[test]
fn results_match_scipy_and_statsmodels() {
    let counts = [
        (0_u32, 4_u32),
        (4, 4),
        (3, 6),
        (24, 48),
        (50, 62),
        (87, 143),
        (143, 143),
    ];
    let pairs = [(0_u64, 0_u64), (1, 0), (3, 9), (20, 21), (2, 30), (120, 80)];
    let p = [
        vec![0.01, 0.04, 0.03, 0.005],
        vec![0.5, 0.9],
        vec![0.02, 0.02, 0.02],
    ];
    let tables = [[20_usize, 5, 10, 15], [40, 3, 2, 50], [10, 30, 30, 10]];
    let values: [Vec<f64>; 3] = [
        (0..143).map(|i| f64::from(u8::from(i % 5 < 3))).collect(),
        (0..62).map(|i| f64::from(i % 3 - 1)).collect(),
        (0..200).map(|i| f64::from(i % 7) / 6.0).collect(),
    ];
    let question = json!({
        "wilson": counts, "mcnemar": pairs, "holm": p, "bootstrap": values,
        "kappa": tables.map(|[a, b, c, d]| [[a, b], [c, d]]),
    });
    let Some(answer) = ask(&question) else { return };
    for (i, (passed, n)) in counts.into_iter().enumerate() {
        let found = wilson(f64::from(passed) / f64::from(n), n as usize);
        near(found.low, &answer["wilson"][i][0], 1e-9, "wilson");
        near(found.high, &answer["wilson"][i][1], 1e-9, "wilson");
    }
    for (i, (a, b)) in pairs.into_iter().enumerate() {
        near(mcnemar(a, b), &answer["mcnemar"][i], 1e-9, "mcnemar");
    }
    for (i, p) in p.iter().enumerate() {
        for (j, found) in holm(p).into_iter().enumerate() {
            near(found, &answer["holm"][i][j], 1e-12, "holm");
        }
    }
    for (i, table) in tables.into_iter().enumerate() {
        let cells = [(true, true), (true, false), (false, true), (false, false)];
        let rated = cells.into_iter().zip(table);
        let rated: Vec<_> = rated
            .flat_map(|(pair, n)| std::iter::repeat_n(pair, n))
            .collect();
        let alone: Vec<usize> = (0..rated.len()).collect();
        let found = agreement(&rated, &alone).unwrap().kappa.unwrap();
        near(found, &answer["kappa"][i], 1e-9, "kappa");
    }
    for (i, values) in values.iter().enumerate() {
        let alone: Vec<usize> = (0..values.len()).collect();
        let (_, found) = paired(values, &alone, 20_000).unwrap();
        // Both are random; ours is slightly wider because of the correction for few clusters.
        let width = found.high - found.low;
        near(
            found.low,
            &answer["bootstrap"][i][0],
            0.08 * width,
            "bootstrap",
        );
        near(
            found.high,
            &answer["bootstrap"][i][1],
            0.08 * width,
            "bootstrap",
        );
    }
    let seeds: Vec<_> = values[0].iter().map(|v| vec![*v]).collect();
    let alone: Vec<usize> = (0..seeds.len()).collect();
    let found = bootstrap(&seeds, &alone, 20_000).unwrap().over_tasks;
    near(found.low, &answer["bootstrap"][0][0], 0.01, "bootstrap");
}
