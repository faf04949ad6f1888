//! The turns of an attempt that goes on, from its recorded steps.

use std::collections::VecDeque;

use pybench_types::observation::Observation;
use pybench_types::trajectory::{CellRun, Turn, Usage};

use crate::react::format_error;
use crate::{Format, Step};

/// The turns that [`solve`](crate::solve) has made so far, from the steps that it recorded. The cell that runs has no
/// observation yet.
pub fn live_turns(steps: &[Step], format: &dyn Format) -> Vec<Turn> {
    let mut turns = Vec::<LiveTurn>::new();
    for step in steps {
        match step {
            Step::Reply { reply } => {
                let text = format.truncate(&reply.content, reply.truncated);
                let cells = match reply.repetition {
                    true => Vec::new(),
                    false => format.parse(&text).cells(),
                };
                turns.push(LiveTurn::new(text, reply.usage, cells, format));
            }
            Step::Observation { observation } => {
                if let Some(turn) = turns.last_mut() {
                    turn.observe(observation, format);
                }
            }
            Step::Feedback { .. } => {}
        }
    }
    turns.into_iter().map(LiveTurn::into_turn).collect()
}

/// A turn whose cells may still run.
struct LiveTurn {
    reply: String,
    usage: Usage,
    done: VecDeque<CellRun>,
    waiting: VecDeque<Result<String, &'static str>>,
}

impl LiveTurn {
    fn new(
        reply: String,
        usage: Usage,
        cells: Vec<Result<String, &'static str>>,
        format: &dyn Format,
    ) -> Self {
        let mut turn = Self {
            reply,
            usage,
            done: VecDeque::new(),
            waiting: cells.into(),
        };
        turn.skip_malformed(format);
        turn
    }

    /// What cannot be run is answered without a step.
    fn skip_malformed(&mut self, format: &dyn Format) {
        while let Some(Err(why)) = self.waiting.front() {
            let observation = format_error(why, format);
            self.done.push_back(CellRun {
                cell: None,
                observation,
            });
            self.waiting.pop_front();
        }
    }

    fn observe(&mut self, observation: &Observation, format: &dyn Format) {
        if let Some(Ok(cell)) = self.waiting.pop_front() {
            self.done.push_back(CellRun {
                cell: Some(cell),
                observation: observation.clone(),
            });
        }
        self.skip_malformed(format);
    }

    fn into_turn(mut self) -> Turn {
        let running = self.waiting.pop_front().and_then(Result::ok);
        let first = self.done.pop_front();
        Turn {
            cell: match &first {
                Some(run) => run.cell.clone(),
                None => running,
            },
            observation: first.map(|run| run.observation),
            more: self.done.into(),
            usage: self.usage,
            reply: self.reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PybenchFormat, ToolsFormat};
    use pybench_llm::Reply;
    use pybench_types::observation::Output;

    fn reply(content: &str) -> Step {
        Step::Reply {
            reply: Reply {
                content: content.to_owned(),
                usage: Usage::default(),
                truncated: false,
                repetition: false,
            },
        }
    }

    fn observed(text: &str) -> Step {
        let output = Output::Stream {
            name: "stdout".to_owned(),
            text: text.to_owned(),
        };
        Step::Observation {
            observation: Observation {
                outputs: vec![output],
                ..Observation::default()
            },
        }
    }

    #[test]
    fn the_cell_that_runs_has_no_observation_yet() {
        let format = PybenchFormat;
        let mut steps = vec![reply(&format.write_step("I look.", "look"))];
        let turns = live_turns(&steps, &format);
        assert_eq!(turns[0].cell.as_deref(), Some("look"));
        assert_eq!(turns[0].observation, None);
        steps.extend([observed("seen"), reply("```python\nnever closed")]);
        let turns = live_turns(&steps, &format);
        assert_eq!(turns.len(), 2);
        assert!(turns[0].observation.is_some());
        // The reply without a cell is answered at once.
        assert_eq!(turns[1].cell, None);
        assert!(turns[1].observation.is_some());
        steps.push(reply(&format.write_answer("seen")));
        let turns = live_turns(&steps, &format);
        assert_eq!(
            (turns[2].cell.is_none(), &turns[2].observation),
            (true, &None)
        );
    }

    #[test]
    fn several_cells_of_a_reply_are_observed_in_order() {
        let format = ToolsFormat;
        let both = format
            .write_steps("Both.", &["a".into(), "b".into()])
            .unwrap();
        let steps = [reply(&both), observed("1"), observed("2")];
        assert_eq!(live_turns(&steps[..2], &format)[0].more, []);
        let turns = live_turns(&steps, &format);
        let cells: Vec<&str> = turns[0].cells().collect();
        assert_eq!(
            (cells, turns[0].observations().count()),
            (vec!["a", "b"], 2)
        );
    }
}
