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
    /// Who wrote each turn, from the edited one on. Empty in edits of older versions, which no model continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<TurnAuthor>,
}

/// Who wrote a turn of an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnAuthor {
    pub kind: AuthorKind,
    /// Name of the model; empty unless a model wrote it for this edit.
    pub model: String,
}

/// What wrote a turn of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthorKind {
    /// A person.
    Human,
    /// The model of the recorded trajectory: its reply was sent as it is.
    Recorded,
    /// A model that the person let write it.
    Model,
}

impl TurnAuthor {
    /// A person.
    pub fn human() -> Self {
        Self {
            kind: AuthorKind::Human,
            model: String::new(),
        }
    }

    /// The recorded reply.
    pub fn recorded() -> Self {
        Self {
            kind: AuthorKind::Recorded,
            model: String::new(),
        }
    }

    /// The model with this name.
    pub fn model(name: &str) -> Self {
        Self {
            kind: AuthorKind::Model,
            model: name.to_owned(),
        }
    }
}

impl Lineage {
    /// The models that wrote turns of the edit, each once.
    pub fn models(&self) -> Vec<&str> {
        let mut models = Vec::new();
        for author in &self.authors {
            if author.kind == AuthorKind::Model && !models.contains(&author.model.as_str()) {
                models.push(author.model.as_str());
            }
        }
        models
    }
}

impl HumanEdit {
    /// The teacher's name of an edit. It differs for each recorded trajectory, turn, person and text. If models wrote turns,
    /// it names them, and differs for each distribution of the turns among the authors.
    pub fn teacher(lineage: &Lineage, replies: &[&str]) -> String {
        let Lineage {
            trajectory,
            turn,
            editor,
            saved_at: _,
            authors,
        } = lineage;
        let edit = (trajectory, turn, editor, replies);
        let models = lineage.models();
        let digest = match models.is_empty() {
            true => Digest::of_json(&edit),
            false => Digest::of_json(&(edit, authors)),
        };
        let names: String = models.iter().map(|model| format!("+{model}")).collect();
        format!("{HUMAN_EDITED}:{}{names}", digest.short())
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
            authors: Vec::new(),
        };
        let name = |change: fn(&mut Lineage), replies: &[&str]| {
            let mut changed = lineage.clone();
            change(&mut changed);
            HumanEdit::teacher(&changed, replies)
        };
        let first = name(|_| (), &["a"]);
        assert!(first.starts_with("human-edited:"), "{first}");
        // The names of edits of older versions stay.
        let own = |lineage: &mut Lineage| lineage.authors = vec![TurnAuthor::human()];
        assert_eq!(name(own, &["a"]), first);
        let model = |lineage: &mut Lineage| {
            let model = TurnAuthor::model("m");
            lineage.authors = vec![TurnAuthor::human(), model.clone(), model];
        };
        let continued = name(model, &["a"]);
        assert!(continued.ends_with("+m"), "{continued}");
        assert!(!continued.starts_with(&first), "{continued}");
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
