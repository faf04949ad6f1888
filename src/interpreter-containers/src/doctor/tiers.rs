//! Tests each isolation tier by running a session.

use std::time::{Duration, Instant};

use super::Finding;
use crate::of_tier;
use pybench_interpreter::Tier;
use pybench_interpreter::{Interpreter, InterpreterError, SessionSpec};
use pybench_types::observation::Output;

/// The tiers in order of preference.
const TIERS: &[(&str, Tier)] = &[
    ("jail", Tier::Jail),
    ("bwrap", Tier::Bwrap),
    ("gvisor", Tier::Gvisor),
    ("docker", Tier::Docker),
    ("podman", Tier::Podman),
    ("kubernetes", Tier::Kubernetes),
];

/// Time limit for a tier's first result.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, tier) in TIERS {
        findings.push(examine_tier(name, *tier).await);
    }
    findings
}

async fn examine_tier(name: &str, tier: Tier) -> Finding {
    let found = match tokio::task::spawn_blocking(move || of_tier(tier)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return broken(name, &error.to_string()),
        Err(error) => return broken(name, &error.to_string()),
    };
    let began = Instant::now();
    match tokio::time::timeout(TIMEOUT, first_result(found.as_ref())).await {
        Ok(Ok(text)) if text == "2" => {
            let seen = format!("first result after {} ms", began.elapsed().as_millis());
            match &found.warnings()[..] {
                [] => Finding::good(name, seen),
                warnings => Finding::weak(name, seen, warnings.join("\n")),
            }
        }
        Ok(Ok(text)) => broken(name, &format!("`1 + 1` gave {text:?}")),
        Ok(Err(error)) => broken(name, &error.to_string()),
        Err(_) => broken(name, &format!("no result within {} s", TIMEOUT.as_secs())),
    }
}

fn broken(name: &str, reason: &str) -> Finding {
    Finding::missing(name, reason, "no session can be run in this tier")
}

/// Evaluates `1 + 1` in a session.
async fn first_result(interpreter: &dyn Interpreter) -> Result<String, InterpreterError> {
    let mut session = interpreter.start(SessionSpec::default()).await?;
    let seen = session.execute("1 + 1").await;
    session.close().await?;
    let outputs = seen?.outputs;
    let text = outputs.into_iter().find_map(|output| match output {
        Output::Result { mut data } => data.remove("text/plain"),
        _ => None,
    });
    Ok(text.unwrap_or_default())
}
