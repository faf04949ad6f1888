//! Checks this machine: which isolation tiers work, which limits are enforced, and what is missing, with the
//! consequences. Each check is one function in a list.

mod limits;
mod system;
mod tiers;

use std::fmt::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything works.
    Good,
    /// It works with the restriction in `costs`.
    Weak,
    /// It does not work.
    Missing,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// What was checked.
    pub name: String,
    /// Result of the check.
    pub state: State,
    /// What was found.
    pub seen: String,
    /// Consequences of the restriction or failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The results of all checks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Isolation tiers, each tested with a session.
    pub tiers: Vec<Finding>,
    /// Limits of a session.
    pub limits: Vec<Finding>,
    /// Programs, libraries and disk space.
    pub system: Vec<Finding>,
}

impl Finding {
    fn good(name: &str, seen: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state: State::Good,
            seen: seen.into(),
            costs: None,
            remedy: None,
        }
    }

    fn weak(name: &str, seen: impl Into<String>, costs: impl Into<String>) -> Self {
        Self {
            state: State::Weak,
            costs: Some(costs.into()),
            ..Self::good(name, seen)
        }
    }

    fn missing(name: &str, seen: impl Into<String>, costs: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            ..Self::weak(name, seen, costs)
        }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Runs all checks. Starts a session in each tier, so it takes some seconds.
pub async fn examine() -> Report {
    let tiers = tiers::examine().await;
    let rest = || (limits::examine(), system::examine());
    let rest = tokio::task::spawn_blocking(rest).await;
    let (limits, system) = rest.unwrap_or_default();
    Report {
        tiers,
        limits,
        system,
    }
}

impl Report {
    /// Whether any tier works.
    pub fn is_usable(&self) -> bool {
        self.tiers.iter().any(|tier| tier.state != State::Missing)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("Isolation", &self.tiers),
            ("Limits of a session", &self.limits),
            ("System", &self.system),
        ];
        for (title, findings) in parts {
            writeln!(f, "{title}")?;
            for finding in findings {
                f.write_str(&text(finding)?)?;
            }
        }
        match self.is_usable() {
            true => Ok(()),
            false => writeln!(
                f,
                "No isolation tier works on this machine: model-written code cannot be run."
            ),
        }
    }
}

fn text(finding: &Finding) -> Result<String, fmt::Error> {
    let mark = match finding.state {
        State::Good => "ok  ",
        State::Weak => "weak",
        State::Missing => "none",
    };
    let mut text = String::new();
    writeln!(text, "  {mark}  {:<18} {}", finding.name, finding.seen)?;
    let notes = [("costs", &finding.costs), ("remedy", &finding.remedy)];
    for (word, note) in notes {
        for (number, line) in note.iter().flat_map(|note| note.lines()).enumerate() {
            let word = if number == 0 { word } else { "" };
            writeln!(text, "        {word:<7}{line}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: State) -> Report {
        let tier = Finding {
            state,
            ..Finding::weak("bwrap", "started", "a\nb").remedy("c")
        };
        Report {
            tiers: vec![tier],
            limits: vec![],
            system: vec![Finding::good("ffmpeg", "/usr/bin/ffmpeg")],
        }
    }

    #[test]
    fn one_tier_is_enough() {
        assert!(report(State::Weak).is_usable() && report(State::Good).is_usable());
        let none = report(State::Missing);
        assert!(!none.is_usable() && none.to_string().contains("No isolation tier works"));
    }

    #[test]
    fn the_text_has_a_line_for_each_finding() {
        let expected = "Isolation\n  weak  bwrap              started\n        costs  a\n               b\n        \
                        remedy c\nLimits of a session\nSystem\n  ok    ffmpeg             /usr/bin/ffmpeg\n";
        assert_eq!(report(State::Weak).to_string(), expected);
    }
}
