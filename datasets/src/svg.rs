//! Plots as self-contained SVG without scripts. The output is deterministic. A plot has one row per item: a
//! name, a mark and a value.

use std::fmt::Write;

use pybench_types::text::{cut, escape};

/// Horizontal start of the marks, in pixels.
pub const LEFT: f64 = 220.0;
/// Width of the area for marks, in pixels.
pub const WIDE: f64 = 480.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;
/// Width of the column of values, in pixels.
const RIGHT: f64 = 90.0;

/// Builds a plot.
pub struct Svg {
    body: String,
    rows: usize,
}

impl Svg {
    /// A plot with `rows` rows.
    pub fn new(title: &str, rows: usize) -> Self {
        let mut svg = Self {
            body: String::new(),
            rows,
        };
        svg.text(8.0, 18.0, "start", title, "font-weight=\"bold\"");
        svg
    }

    /// The vertical center of a row, in pixels.
    pub fn middle(row: usize) -> f64 {
        TOP + row as f64 * ROW + ROW / 2.0
    }

    /// Write the name of a row and the text at its right.
    pub fn row(&mut self, row: usize, name: &str, value: &str) {
        let y = Self::middle(row) + 4.0;
        self.text(LEFT - 10.0, y, "end", name, "");
        self.text(LEFT + WIDE + 10.0, y, "start", value, "");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str, more: &str) {
        let text = escape(&cut(text, 40));
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>"
        );
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    pub fn point(&mut self, x: f64, y: f64, color: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"/>"
        );
    }

    /// Draw a bar in a row.
    pub fn bar(&mut self, row: usize, x: f64, width: f64, color: &str) {
        let y = Self::middle(row) - 7.0;
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{color}\"/>"
        );
    }

    /// Draw vertical grid lines. Each has a position, as a share of the width, and a label below it.
    pub fn grid(&mut self, values: &[(f64, String)]) {
        let bottom = TOP + self.rows as f64 * ROW;
        for (share, label) in values {
            let x = LEFT + share * WIDE;
            self.line((x, TOP - 6.0), (x, bottom), "#ddd");
            self.text(x, bottom + 16.0, "middle", label, "fill=\"#666\"");
        }
    }

    /// The finished SVG document.
    pub fn end(self) -> String {
        let (width, height) = (LEFT + WIDE + RIGHT, TOP + self.rows as f64 * ROW + 26.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A bar chart with one bar per row. `shown` formats the values.
pub fn bars(title: &str, rows: &[(String, f64)], shown: impl Fn(f64) -> String) -> String {
    let most = rows
        .iter()
        .map(|(_, value)| *value)
        .fold(1.0, f64::max)
        .ceil();
    let mut svg = Svg::new(title, rows.len());
    svg.grid(&[0.0, 0.5, 1.0].map(|share| (share, shown(share * most))));
    for (row, (name, value)) in rows.iter().enumerate() {
        svg.row(row, name, &shown(*value));
        svg.bar(row, LEFT, value / most * WIDE, "#7a9");
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_length_follows_the_value_and_names_are_escaped() {
        let rows = [("<b>".to_owned(), 2.0), ("half".to_owned(), 1.0)];
        let svg = bars("A & B", &rows, |value| format!("{value}"));
        assert!(
            svg.contains("&lt;b&gt;") && svg.contains("A &amp; B"),
            "{svg}"
        );
        assert!(svg.contains("width=\"480.0\"") && svg.contains("width=\"240.0\""));
        assert_eq!(svg, bars("A & B", &rows, |value| format!("{value}")));
    }
}
