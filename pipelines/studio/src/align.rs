//! Two trajectories side by side, turn by turn.

use schemars::JsonSchema;
use serde::Serialize;

use crate::view::{OutputView, TurnView, View};

/// Two trajectories and where they differ.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PairView {
    pub(crate) a: View,
    pub(crate) b: View,
    /// What differs in each turn, up to the last turn of the longer one.
    pub(crate) turns: Vec<TurnDifference>,
    /// The first turn in which anything differs, from 1.
    pub(crate) first: Option<u64>,
    /// The first turn in which the code or its outputs differ, from 1.
    pub(crate) first_code: Option<u64>,
}

/// What differs in a turn. White space at the ends of lines does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct TurnDifference {
    /// Messages of the user, or what the model wrote beside its code.
    pub(crate) text: bool,
    pub(crate) code: bool,
    /// Outputs of the code.
    pub(crate) output: bool,
}

impl PairView {
    pub(crate) fn new(a: View, b: View) -> Self {
        let turns = differences(&a.turns, &b.turns);
        let first = |differs: fn(&TurnDifference) -> bool| {
            let at = turns.iter().position(differs);
            at.map(|at| at as u64 + 1)
        };
        Self {
            first: first(|turn| turn.text || turn.code || turn.output),
            first_code: first(|turn| turn.code || turn.output),
            turns,
            a,
            b,
        }
    }
}

fn differences(a: &[TurnView], b: &[TurnView]) -> Vec<TurnDifference> {
    let count = a.len().max(b.len());
    let turn = |turns: &[TurnView], at: usize| turns.get(at).cloned().unwrap_or_default();
    (0..count)
        .map(|at| difference(&turn(a, at), &turn(b, at)))
        .collect()
}

fn difference(a: &TurnView, b: &TurnView) -> TurnDifference {
    let texts = |turn: &TurnView| {
        let asked = turn.asked.iter().map(|text| trimmed(text));
        asked.chain([trimmed(&turn.text)]).collect::<Vec<_>>()
    };
    let code = |turn: &TurnView| {
        let cells = turn.cells.iter();
        cells
            .map(|cell| cell.code.as_deref().map(trimmed))
            .collect::<Vec<_>>()
    };
    let outputs = |turn: &TurnView| {
        let outputs = turn.cells.iter().map(|cell| &cell.outputs);
        outputs.map(|list| merged(list)).collect::<Vec<_>>()
    };
    TurnDifference {
        text: texts(a) != texts(b),
        code: code(a) != code(b),
        output: outputs(a) != outputs(b),
    }
}

/// Lines without white space at their ends.
fn trimmed(text: &str) -> String {
    let lines: Vec<_> = text.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The outputs of a cell. A stream may come in several parts, which depends on when they were written.
fn merged(outputs: &[OutputView]) -> Vec<OutputView> {
    let mut merged = Vec::<OutputView>::new();
    for output in outputs {
        match (merged.last_mut(), output) {
            (Some(OutputView::Text { text }), OutputView::Text { text: more })
            | (Some(OutputView::Stderr { text }), OutputView::Stderr { text: more }) => {
                text.push_str(more);
            }
            _ => merged.push(output.clone()),
        }
    }
    for output in &mut merged {
        if let OutputView::Text { text }
        | OutputView::Stderr { text }
        | OutputView::Error { text }
        | OutputView::Note { text } = output
        {
            *text = trimmed(text);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::CellView;

    fn turn(text: &str, code: Option<&str>, outputs: &[&str]) -> TurnView {
        let outputs = outputs.iter().map(|text| OutputView::Text {
            text: (*text).to_owned(),
        });
        let cell = code.map(|code| CellView {
            code: Some(code.to_owned()),
            outputs: outputs.collect(),
        });
        TurnView {
            text: text.to_owned(),
            cells: cell.into_iter().collect(),
            ..TurnView::default()
        }
    }

    fn pair(a: Vec<TurnView>, b: Vec<TurnView>) -> PairView {
        let view = |turns| View {
            turns,
            ..View::default()
        };
        PairView::new(view(a), view(b))
    }

    #[test]
    fn the_first_divergence_is_found_in_texts_and_in_code() {
        let found = pair(
            vec![
                turn("Look.", Some("f()"), &["1\n", "2"]),
                turn("Then", Some("g()"), &["3"]),
                turn("Finished: 3", None, &[]),
            ],
            vec![
                turn("Look. ", Some("f()  \n"), &["1\n2\n"]),
                turn("So", Some("g()"), &["3"]),
                turn("Finished: 3", Some("h()"), &[]),
                turn("Finished: 4", None, &[]),
            ],
        );
        assert_eq!(found.turns.len(), 4);
        assert_eq!(found.turns[0], TurnDifference::default());
        let text = TurnDifference {
            text: true,
            ..TurnDifference::default()
        };
        assert_eq!((found.turns[1], found.turns[3]), (text, text));
        assert!(found.turns[2].code && !found.turns[2].text);
        assert_eq!((found.first, found.first_code), (Some(2), Some(3)));
    }

    #[test]
    fn equal_trajectories_do_not_diverge() {
        let turns = || vec![turn("Look.", Some("f()"), &["1"])];
        let found = pair(turns(), turns());
        assert_eq!((found.first, found.first_code), (None, None));
        let output = pair(turns(), vec![turn("Look.", Some("f()"), &["2"])]);
        assert_eq!((output.first, output.first_code), (Some(1), Some(1)));
        assert!(output.turns[0].output && !output.turns[0].code);
        assert_eq!(pair(turns(), Vec::new()).first_code, Some(1));
    }
}
