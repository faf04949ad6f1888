//! The first tries of a run, as a person reads them.

use std::fmt::Write as _;

use pybench::trajectory::{Role, Trajectory};

use super::RolloutStage;

/// Characters shown of each message.
const SHOWN: usize = 1500;

/// Each try: its task, what was said, how it ended.
pub(super) fn render(stage: &RolloutStage, done: &[Trajectory]) -> String {
    done.iter()
        .map(|trajectory| one(stage, trajectory))
        .collect()
}

fn one(stage: &RolloutStage, trajectory: &Trajectory) -> String {
    let mut text = format!("━━ trajectory {}", trajectory.id.short());
    if let Some(asked) = stage.get(trajectory.id.as_str()) {
        let task = &asked.task;
        let (category, keyword) = (task.category, &task.keyword);
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            text,
            " · task {} · {category:?} · {keyword}",
            task.id.short()
        );
    }
    text.push('\n');
    let spoken = trajectory
        .messages
        .iter()
        .filter(|m| m.role != Role::System);
    for message in spoken {
        let who = match message.role {
            Role::Assistant => "assistant",
            _ => "user",
        };
        let _ = writeln!(text, "── {who}\n{}", shorten(&message.content));
    }
    let (end, turns) = (&trajectory.end, trajectory.turns.len());
    let _ = writeln!(text, "── {end:?} after {turns} turns");
    for file in &trajectory.outputs {
        let _ = writeln!(text, "   {} ({} bytes)", file.path, file.size);
    }
    text.push('\n');
    text
}

fn shorten(content: &str) -> String {
    match content.char_indices().nth(SHOWN) {
        None => content.to_owned(),
        Some((at, _)) => {
            let left = content[at..].chars().count();
            format!("{}\n[{left} more characters]", &content[..at])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("短"), "短");
        let long = "长".repeat(SHOWN + 7);
        assert!(shorten(&long).ends_with("长\n[7 more characters]"));
    }
}
