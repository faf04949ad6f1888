//! Trajectories that people made by editing a turn of a recorded one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Digest;
use crate::trajectory::{Role, Trajectory, Verdict};

/// Start of the teacher's name of edited trajectories, in ids and rows. The digest of the edit follows.
pub const HUMAN_EDITED: &str = "human-edited";

/// A trajectory whose first turns are those of a recorded one, and whose other turns a person wrote or chose. It was
/// executed, and its verdict accepts it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HumanEdit {
    pub trajectory: Trajectory,
    pub verdict: Verdict,
    pub lineage: Lineage,
    /// Whether the trajectory becomes a row of the dataset.
    pub repair: bool,
    /// Whether the replies at the edited turn become a preference pair.
    pub pair: bool,
    /// The recorded reply at the edited turn.
    pub rejected: String,
}

/// Where an edited trajectory comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// Id of the recorded trajectory.
    pub trajectory: Digest,
    /// Its turn that was edited, from 1.
    pub turn: u32,
    /// Name of the person.
    pub editor: String,
    /// When the edit was saved, seconds since 1970-01-01 UTC.
    pub saved_at: u64,
}

impl HumanEdit {
    /// The teacher's name of an edit. It differs for each recorded trajectory, turn, person and text.
    pub fn teacher(lineage: &Lineage, replies: &[&str]) -> String {
        let Lineage {
            trajectory,
            turn,
            editor,
            saved_at: _,
        } = lineage;
        let digest = Digest::of_json(&(trajectory, turn, editor, replies));
        format!("{HUMAN_EDITED}:{}", digest.short())
    }

    /// The position of the first reply of the person among the messages.
    pub fn first_reply(&self) -> Option<usize> {
        let mut messages = self.trajectory.messages.iter();
        messages.position(|message| message.role == Role::Assistant && message.trained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edit_has_a_name_of_its_own_at_any_time() {
        let lineage = Lineage {
            trajectory: Digest::of_bytes(b"t"),
            turn: 2,
            editor: "ann".to_owned(),
            saved_at: 1,
        };
        let name = |change: fn(&mut Lineage), replies: &[&str]| {
            let mut changed = lineage.clone();
            change(&mut changed);
            HumanEdit::teacher(&changed, replies)
        };
        let first = name(|_| (), &["a"]);
        assert!(first.starts_with("human-edited:"), "{first}");
        assert_eq!(name(|lineage| lineage.saved_at = 2, &["a"]), first);
        for other in [
            name(|_| (), &["b"]),
            name(|_| (), &["a", "b"]),
            name(|lineage| lineage.turn = 3, &["a"]),
            name(|lineage| lineage.editor = "bob".to_owned(), &["a"]),
        ] {
            assert_ne!(other, first);
        }
    }
}
