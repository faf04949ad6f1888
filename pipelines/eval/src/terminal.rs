//! The summary that is printed after an evaluation.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::record::{Evaluation, Outcome, Score};
use pybench_types::text::line;

/// One line per agent and suite: attempts that pass each score, of those that have it.
pub(super) fn table(evaluation: &Evaluation) -> String {
    let attempts = &evaluation.attempts;
    let suites: BTreeSet<&str> = attempts.iter().map(|attempt| &*attempt.suite).collect();
    let longest = suites.iter().map(|suite| suite.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(12, 32);
    let mut text = format!(
        "{:24} {:width$} {:>10} {:>10} {:>10} {:>8} {:>8}\n",
        "agent", "suite", "upstream", "fixed", "strict", "not run", "failed"
    );
    let labels = evaluation.fingerprint.agents.keys();
    for (label, suite) in labels.flat_map(|label| suites.iter().map(move |suite| (label, *suite))) {
        let own = || {
            let of_agent = attempts.iter().filter(|attempt| attempt.agent == *label);
            of_agent.filter(|attempt| attempt.suite == suite)
        };
        if own().next().is_none() {
            continue;
        }
        let share = |score: Score| {
            let scored: Vec<bool> = own().filter_map(|attempt| attempt.score(score)).collect();
            format!(
                "{}/{}",
                scored.iter().filter(|passed| **passed).count(),
                scored.len()
            )
        };
        let count =
            |wanted: fn(&Outcome) -> bool| own().filter(|attempt| wanted(&attempt.outcome)).count();
        text += &format!(
            "{label:24} {:width$} {:>10} {:>10} {:>10} {:>8} {:>8}\n",
            line(suite),
            share(Score::Upstream),
            share(Score::Fixed),
            share(Score::Strict),
            count(|outcome| matches!(outcome, Outcome::NotRun { .. })),
            count(|outcome| matches!(outcome, Outcome::Infrastructure { .. })),
        );
    }
    text
}

/// Everything that defines the scores, as aligned text.
pub(super) fn fingerprint(evaluation: &Evaluation) -> String {
    let fingerprint = &evaluation.fingerprint;
    let limits = fingerprint.limits.iter();
    let limits: Vec<_> = limits
        .map(|(name, limit)| format!("{name} {limit}"))
        .collect();
    let mut text = format!(
        "task set     {} ({})\nchecker      {}\nenvironment  {}\nprompts      {}\nlimits       {}\n",
        fingerprint.tasks,
        line(&fingerprint.task_set),
        line(&fingerprint.checker),
        line(&fingerprint.environment),
        line(&fingerprint.prompts),
        line(&limits.join(", ")),
    );
    let sampled = fingerprint.agents.iter();
    let sampled = sampled.filter_map(|(label, agent)| Some((label, agent.sampling.as_ref()?)));
    for (label, sampling) in sampled {
        let _ = writeln!(
            text,
            "sampling     {}: temperature {}, top_p {}, {} tokens a reply",
            line(label),
            sampling.temperature,
            sampling.top_p,
            sampling.max_tokens
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AgentKind;
    use crate::record::tests::{attempt, fingerprint as header};
    use pybench_types::trajectory::Sampling;

    #[test]
    fn the_fingerprint_is_printed() {
        let mut header = header(&[("m", AgentKind::Model), ("echo", AgentKind::Null)]);
        header.agents.get_mut("m").unwrap().sampling = Some(Sampling::default());
        let attempts = vec![attempt("m", "2", 0, true), attempt("m", "3", 0, false)];
        let evaluation = Evaluation::new(header.clone(), attempts);
        let text = fingerprint(&evaluation);
        for part in [
            header.tasks.as_str(),
            "checker",
            "environment",
            "prompts",
            "max_turns 10",
            "m: temperature 0.2, top_p 0.85, 1000 tokens",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(
            !text.contains("echo"),
            "agents without sampling are not listed: {text}"
        );
        let table = table(&evaluation);
        let row = table.lines().find(|line| line.starts_with("m ")).unwrap();
        assert!(row.contains("1/2"), "{table}");
    }

    #[test]
    fn rates_of_suites_are_not_added() {
        let mut other = attempt("m", "x", 0, false);
        other.suite = "library".into();
        let attempts = vec![attempt("m", "2", 0, true), other];
        let table = table(&Evaluation::new(
            header(&[("m", AgentKind::Model)]),
            attempts,
        ));
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|row| row.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["m", "library", "1/1", "0/1", "0/1", "0", "0"]);
        assert_eq!(rows[2], ["m", "pybench", "1/1", "1/1", "1/1", "0", "0"]);
    }
}
