//! Two trajectories side by side, turn by turn.

use schemars::JsonSchema;
use serde::Serialize;

use crate::view::{OutputView, TurnView, View};

/// Two trajectories and where they differ: the pages that have a turn, and the first divergence of all turns.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PairView {
    /// The page of each; one that has ended before has no turns.
    pub(crate) a: View,
    pub(crate) b: View,
    /// What differs in each turn of the pages, up to the last turn of the longer one.
    pub(crate) turns: Vec<TurnDifference>,
    /// Number of the first of these turns, from 1.
    pub(crate) first_turn: u64,
    /// Number of turns of the longer trajectory.
    pub(crate) turn_count: u64,
    /// The first of all turns in which anything differs, from 1.
    pub(crate) first: Option<u64>,
    /// The first of all turns in which the code or its outputs differ, from 1.
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

/// Where two trajectories differ first, as in [`PairView`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Divergence {
    first: Option<u64>,
    first_code: Option<u64>,
}

impl PairView {
    /// Of the pages that have the same turn, or the last page of a trajectory that has ended before.
    pub(crate) fn new(mut a: View, mut b: View, divergence: Divergence) -> Self {
        let first_turn = a.first_turn.max(b.first_turn);
        for view in [&mut a, &mut b] {
            if view.first_turn < first_turn {
                view.turns.clear();
                view.first_turn = first_turn;
            }
        }
        Self {
            turns: differences(&a.turns, &b.turns),
            first_turn,
            turn_count: a.turn_count.max(b.turn_count),
            first: divergence.first,
            first_code: divergence.first_code,
            a,
            b,
        }
    }
}

impl Divergence {
    /// Reads the turns of both until their code differs. `page` is given a number of turns, and reads as many turns of both
    /// after these as a page has, or those up to the end.
    ///
    /// # Errors
    /// Those of `page`.
    pub(crate) fn find<E>(
        mut page: impl FnMut(u64) -> Result<[Vec<TurnView>; 2], E>,
    ) -> Result<Self, E> {
        let mut found = Self::default();
        let mut before = 0;
        while found.first_code.is_none() {
            let [a, b] = page(before)?;
            let turns = differences(&a, &b);
            if turns.is_empty() {
                break;
            }
            found.look_in(&turns, before);
            before += turns.len() as u64;
        }
        Ok(found)
    }

    /// Looks in the turns after the first `before`.
    fn look_in(&mut self, turns: &[TurnDifference], before: u64) {
        let first = |differs: fn(&TurnDifference) -> bool| {
            let at = turns.iter().position(differs);
            at.map(|at| before + at as u64 + 1)
        };
        let anything = first(|turn| turn.text || turn.code || turn.output);
        self.first = self.first.or(anything);
        self.first_code = first(|turn| turn.code || turn.output);
    }
}

fn differences(a: &[TurnView], b: &[TurnView]) -> Vec<TurnDifference> {
    let ended = TurnView::default();
    let count = a.len().max(b.len());
    (0..count)
        .map(|at| difference(a.get(at).unwrap_or(&ended), b.get(at).unwrap_or(&ended)))
        .collect()
}

fn difference(a: &TurnView, b: &TurnView) -> TurnDifference {
    // Two attempts by one model often begin alike.
    if a == b {
        return TurnDifference::default();
    }
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

    /// The pair of trajectories of at most a page.
    fn pair(a: Vec<TurnView>, b: Vec<TurnView>) -> PairView {
        let divergence = found(&a, &b, 200);
        let view = |turns: Vec<TurnView>| View {
            first_turn: 1,
            turn_count: turns.len() as u64,
            turns,
            ..View::default()
        };
        PairView::new(view(a), view(b), divergence)
    }

    /// What is found in pages of this many turns.
    fn found(a: &[TurnView], b: &[TurnView], page: usize) -> Divergence {
        let turns = |of: &[TurnView], before: u64| {
            let after = of.iter().skip(before as usize);
            after.take(page).cloned().collect::<Vec<_>>()
        };
        let read = |before| Ok::<_, ()>([turns(a, before), turns(b, before)]);
        Divergence::find(read).unwrap()
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

    #[test]
    fn a_late_divergence_is_found_and_no_page_after_it_is_read() {
        let same = |count: usize| vec![turn("Look.", Some("f()"), &["1"]); count];
        let text = || turn("So", Some("f()"), &["1"]);
        let code = || turn("Look.", Some("g()"), &["1"]);
        let a = same(9);
        let b = [same(4), vec![text()], same(1), vec![code()], same(2)].concat();
        let expected = Divergence {
            first: Some(5),
            first_code: Some(7),
        };
        for page in 1..10 {
            assert_eq!(found(&a, &b, page), expected, "{page}");
            // One that ends differs after its end.
            let ended = found(&a, &a[..6], page);
            assert_eq!((ended.first, ended.first_code), (Some(7), Some(7)));
            assert_eq!(found(&a, &a, page), Divergence::default());
        }
        let mut read = Vec::new();
        let page = |before: u64| {
            read.push(before);
            let at = before as usize;
            Ok::<_, ()>([a[at..at + 2].to_vec(), b[at..at + 2].to_vec()])
        };
        assert_eq!(Divergence::find(page), Ok(expected));
        assert_eq!(read, [0, 2, 4, 6]);
        assert_eq!(Divergence::find(|_| Err("unreadable")), Err("unreadable"));
    }

    #[test]
    fn a_trajectory_that_ended_before_the_page_has_no_turns_there() {
        let page = |first_turn, turn_count, turns| View {
            first_turn,
            turn_count,
            turns: vec![turn("Look.", None, &[]); turns],
            ..View::default()
        };
        let pair = PairView::new(page(201, 250, 50), page(401, 402, 2), Divergence::default());
        assert_eq!((pair.first_turn, pair.turn_count), (401, 402));
        assert_eq!((pair.a.turns.len(), pair.b.turns.len()), (0, 2));
        assert_eq!(pair.a.first_turn, 401);
        assert!(pair.turns.iter().all(|turn| turn.text) && pair.turns.len() == 2);
    }
}
