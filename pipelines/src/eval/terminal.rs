//! What is printed when an evaluation is done.

use std::fmt::Write as _;

use super::record::{Evaluation, Outcome, Score};
use super::report::text::line;

/// The scores side by side, a line for each agent: passed of those that the score speaks of.
pub(super) fn table(evaluation: &Evaluation) -> String {
    let mut text = format!(
        "{:24} {:>10} {:>10} {:>10} {:>8} {:>8}\n",
        "agent", "upstream", "fixed", "strict", "not run", "failed"
    );
    for label in evaluation.frozen.agents.keys() {
        let own = || {
            evaluation
                .attempts
                .iter()
                .filter(|attempt| attempt.agent == *label)
        };
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
            "{label:24} {:>10} {:>10} {:>10} {:>8} {:>8}\n",
            share(Score::Upstream),
            share(Score::Fixed),
            share(Score::Strict),
            count(|outcome| matches!(outcome, Outcome::NotRun { .. })),
            count(|outcome| matches!(outcome, Outcome::Infrastructure { .. })),
        );
    }
    text
}

/// Everything that defines the scores.
pub(super) fn frozen(evaluation: &Evaluation) -> String {
    let frozen = &evaluation.frozen;
    let limits = frozen.limits.iter();
    let limits: Vec<_> = limits
        .map(|(name, limit)| format!("{name} {limit}"))
        .collect();
    let mut text = format!(
        "task set     {} ({})\nchecker      {}\nenvironment  {}\nprompts      {}\nlimits       {}\n",
        frozen.tasks,
        line(&frozen.task_set),
        line(&frozen.checker),
        line(&frozen.environment),
        line(&frozen.prompts),
        line(&limits.join(", ")),
    );
    let sampled = frozen.agents.iter();
    let sampled = sampled.filter_map(|(label, agent)| Some((label, agent.sampling.as_ref()?)));
    for (label, how) in sampled {
        let _ = writeln!(
            text,
            "sampling     {}: temperature {}, top_p {}, {} tokens a reply",
            line(label),
            how.temperature,
            how.top_p,
            how.max_tokens
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::record::AgentKind;
    use crate::eval::record::tests::{attempt, frozen as header};
    use pybench::trajectory::Sampling;

    #[test]
    fn what_defines_the_scores_is_printed() {
        let mut header = header(&[("m", AgentKind::Model), ("echo", AgentKind::Null)]);
        header.agents.get_mut("m").unwrap().sampling = Some(Sampling::default());
        let attempts = vec![attempt("m", "2", 0, true), attempt("m", "3", 0, false)];
        let evaluation = Evaluation::new(header.clone(), attempts);
        let text = frozen(&evaluation);
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
        assert!(!text.contains("echo"), "nothing is sampled there: {text}");
        let table = table(&evaluation);
        let row = table.lines().find(|line| line.starts_with("m ")).unwrap();
        assert!(row.contains("1/2"), "{table}");
    }
}
