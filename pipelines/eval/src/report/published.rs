//! The published results of PyBench: Table 3 of arXiv 2407.16732v2, as printed.
//!
//! The overall pass rate is both printed and computable from the category columns. If the two differ by
//! more than rounding, the report shows both.

use serde::Serialize;

/// Source of the figures.
pub const SOURCE: &str = "arXiv 2407.16732v2, Table 3";

/// Categories in the order of the table, with their number of tasks.
const SIZES: [(&str, u32); 5] = [
    ("chart", 62),
    ("text", 23),
    ("image_audio", 48),
    ("math", 6),
    ("software", 4),
];

/// A row of the table, in percent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    pub model: &'static str,
    /// Size of the model, as printed.
    pub size: &'static str,
    /// Pass rate according to the LLM judge.
    pub judge: f64,
    /// Pass rate in the unit tests by category: chart, text, image and audio, math, software.
    pub categories: [f64; 5],
    /// Overall pass rate in the unit tests, as printed.
    pub overall: f64,
    /// Average turns.
    pub turns: f64,
    /// HumanEval and HumanEval+.
    pub humaneval: (f64, f64),
    /// MBPP and MBPP+.
    pub mbpp: (f64, f64),
}

impl Published {
    /// Overall pass rate in percent, computed from the category columns.
    pub fn computed(&self) -> f64 {
        f64::from(self.passed()) / f64::from(total()) * 100.0
    }

    /// Number of passed tasks, computed from the category columns.
    fn passed(&self) -> u32 {
        let columns = self.categories.iter().zip(SIZES);
        let passed = columns.map(|(rate, (_, size))| rate * f64::from(size) / 100.0);
        passed.map(|passed| passed.round() as u32).sum()
    }

    /// Whether the printed overall value differs from the computed one by more than rounding.
    pub fn contradicts(&self) -> bool {
        (self.computed() - self.overall).abs() > 0.11
    }
}

fn total() -> u32 {
    SIZES.iter().map(|(_, size)| size).sum()
}

/// Model, size, judge, categories, overall, turns, HumanEval(+), MBPP(+).
type Printed = (
    &'static str,
    &'static str,
    f64,
    [f64; 5],
    f64,
    f64,
    (f64, f64),
    (f64, f64),
);

#[rustfmt::skip]
const ROWS: [Printed; 22] = [
    ("GPT-3.5 Turbo", "-", 58.3, [72.6, 60.9, 70.8, 100.0, 0.0], 62.9, 5.2, (78.6, 70.7), (82.5, 69.7)),
    ("GPT-4o", "-", 81.8, [80.6, 82.6, 77.1, 100.0, 100.0], 79.7, 4.3, (91.5, 85.4), (91.2, 76.6)),
    ("GPT-4o-mini", "-", 67.1, [77.4, 69.6, 87.5, 100.0, 100.0], 81.1, 4.5, (87.2, 85.4), (90.5, 76.5)),
    ("Llama3-Instruct", "70B", 80.2, [38.7, 34.8, 72.9, 33.3, 50.0], 78.3, 4.0, (77.4, 72.0), (82.3, 69.0)),
    ("CodeLlama-Instruct", "70B", 26.6, [24.2, 17.4, 41.7, 16.7, 0.0], 37.8, 7.5, (72.0, 65.9), (62.2, 51.2)),
    ("DeepSeek-llm-chat", "67B", 39.4, [21.0, 17.4, 37.5, 33.3, 25.0], 26.6, 9.2, (67.7, 58.5), (62.2, 50.5)),
    ("DeepSeek-coder-Instruct", "33B", 35.3, [22.6, 0.0, 4.2, 16.7, 0.0], 37.0, 6.7, (81.1, 75.0), (80.4, 70.1)),
    ("CodeLlama-Instruct", "34B", 9.6, [8.1, 13.0, 0.0, 16.7, 0.0], 6.3, 8.9, (51.8, 43.9), (69.3, 56.3)),
    ("Yi-1.5-Chat-16K", "34B", 44.2, [33.9, 34.8, 56.3, 50.0, 0.0], 41.3, 9.0, (58.8, 53.4), (77.5, 63.6)),
    ("Qwen-1.5-Chat", "32B", 43.0, [12.9, 39.1, 10.4, 50.0, 75.0], 19.6, 9.3, (58.5, 55.5), (66.1, 56.1)),
    ("Gemma-2-Instruct", "27B", 66.1, [58.1, 56.5, 87.5, 83.3, 75.0], 69.2, 5.0, (49.4, 45.7), (73.3, 61.1)),
    ("Llama3-Instruct", "8B", 49.7, [43.5, 26.1, 72.9, 66.7, 50.0], 49.7, 6.7, (61.6, 56.7), (70.1, 59.3)),
    ("Mistral-Instruct-v0.2", "7B", 17.5, [17.7, 17.4, 18.8, 16.7, 0.0], 17.5, 8.9, (35.4, 30.5), (31.0, 24.1)),
    ("Gemma-2-Instruct", "9B", 41.7, [37.1, 30.4, 70.1, 83.3, 50.0], 49.7, 7.2, (55.5, 48.8), (66.1, 56.1)),
    ("Qwen2-Instruct", "7B", 57.8, [59.7, 47.8, 58.3, 83.3, 75.0], 58.7, 5.9, (64.6, 61.0), (62.3, 52.3)),
    ("CodeQwen1.5-chat", "7B", 49.2, [48.4, 43.5, 66.7, 83.3, 25.0], 54.5, 7.9, (83.5, 78.7), (79.4, 69.0)),
    ("CodeActAgent-Llama2", "7B", 12.4, [16.1, 21.7, 20.8, 33.3, 0.0], 18.9, 8.1, (18.9, 15.2), (22.8, 18.3)),
    ("CodeActAgent-Mistral", "7B", 18.8, [17.7, 4.3, 20.8, 16.7, 0.0], 16.1, 8.8, (28.7, 26.8), (43.9, 35.4)),
    ("OpenCodeInterpreter-DS", "6.7B", 25.0, [11.3, 21.7, 75.0, 66.7, 25.0], 51.7, 6.8, (77.4, 73.8), (80.2, 66.4)),
    ("InternLM2_5-chat", "7B", 17.5, [32.3, 13.0, 4.17, 50.0, 25.0], 20.27, 9.84, (57.3, 51.2), (61.6, 51.5)),
    ("PyLlama3 (w/o cpt)", "8B", 56.7, [58.0, 52.2, 73.0, 50.0, 50.0], 58.7, 6.3, (54.3, 48.2), (59.5, 50.3)),
    ("PyLlama3", "8B", 73.4, [62.9, 65.2, 56.3, 66.7, 50.0], 60.8, 6.1, (57.3, 48.2), (62.2, 51.1)),
];

/// The rows of the table.
pub fn published() -> Vec<Published> {
    let row = |(model, size, judge, categories, overall, turns, humaneval, mbpp)| Published {
        model,
        size,
        judge,
        categories,
        overall,
        turns,
        humaneval,
        mbpp,
    };
    ROWS.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_overall_values_contradict_their_category_columns() {
        let rows = published();
        for row in &rows {
            println!(
                "{} {}: {} printed, {:.1} computed ({}){}",
                row.model,
                row.size,
                row.overall,
                row.computed(),
                row.passed(),
                if row.contradicts() { " *" } else { "" }
            );
        }
        assert_eq!(rows.iter().filter(|row| row.contradicts()).count(), 8);
        let by = |model: &str, size: &str| {
            *rows
                .iter()
                .find(|r| r.model == model && r.size == size)
                .unwrap()
        };
        let llama = by("Llama3-Instruct", "70B");
        assert!(llama.contradicts() && format!("{:.1}", llama.computed()) == "49.7");
        assert_eq!(
            (
                by("PyLlama3 (w/o cpt)", "8B").passed(),
                by("PyLlama3", "8B").passed()
            ),
            (88, 87)
        );
    }
}
