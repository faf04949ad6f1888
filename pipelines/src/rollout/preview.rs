//! The first tries of a run, as a person reads them.

use pybench::trajectory::Trajectory;

use super::RolloutStage;
use crate::show::{Found, Look, render};

/// Characters are shown of each message, and no system prompt.
const LOOK: Look = Look {
    system: false,
    colour: false,
    most: 1500,
};

/// Each try: its task, what was said, how it ended.
pub(super) fn render_all(stage: &RolloutStage, done: &[Trajectory]) -> String {
    let one = |trajectory: &Trajectory| {
        let asked = stage.get(trajectory.id.as_str());
        let found = Found::Trajectory {
            task: asked.map(|asked| Box::new((*asked.task).clone())),
            trajectory: Box::new(trajectory.clone()),
            verdict: None,
        };
        render(&found.head(), found.messages(), &found.tail(), &LOOK) + "\n"
    };
    done.iter().map(one).collect()
}
