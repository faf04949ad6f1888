//! Wall times. They are in separate files because they differ between identical runs.

use std::collections::BTreeMap;

use serde_json::json;

use crate::record::Evaluation;
use pybench_types::text::markdown;

/// The wall times as (JSON, Markdown).
pub(super) fn timing(evaluation: &Evaluation) -> (String, String) {
    let mut agents: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for attempt in evaluation.attempts.iter().filter(|a| a.ran()) {
        let key = (&*attempt.suite, &*attempt.agent);
        agents.entry(key).or_default().push(attempt.seconds);
    }
    let mut text = "# Wall time\n\nSeconds of the attempts that ran. These are the only figures that differ between identical runs.\n\n| suite | agent | attempts | mean | longest | total |\n| --- | --- | ---: | ---: | ---: | ---: |\n".to_owned();
    let mut rows = Vec::new();
    for ((suite, agent), seconds) in agents {
        let total: f64 = seconds.iter().sum();
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        let mean = total / seconds.len() as f64;
        text += &format!(
            "| {} | {} | {} | {mean:.2} | {longest:.2} | {total:.2} |\n",
            markdown(suite),
            markdown(agent),
            seconds.len()
        );
        rows.push(json!({
            "suite": suite, "agent": agent, "attempts": seconds.len(),
            "mean_seconds": mean, "longest_seconds": longest, "total_seconds": total,
        }));
    }
    (format!("{:#}\n", json!(rows)), text)
}
