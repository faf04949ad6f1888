//! Plots as SVG, drawn by hand: nothing to load, nothing that runs, the same bytes every time. One row
//! per thing shown: its name, its mark, its value.

use std::fmt::Write;

use pybench::text::{cut, escape};

/// Where marks begin, pixels.
pub const LEFT: f64 = 220.0;
/// How wide they may be.
pub const WIDE: f64 = 480.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;
/// Room for values.
const RIGHT: f64 = 90.0;

/// A plot under way.
pub struct Svg {
    body: String,
    rows: usize,
}

impl Svg {
    /// A plot of so many rows.
    pub fn new(title: &str, rows: usize) -> Self {
        let mut svg = Self {
            body: String::new(),
            rows,
        };
        svg.text(8.0, 18.0, "start", title, "font-weight=\"bold\"");
        svg
    }

    /// The middle of a row.
    pub fn middle(row: usize) -> f64 {
        TOP + row as f64 * ROW + ROW / 2.0
    }

    /// The name of a row and what stands at its right.
    pub fn row(&mut self, row: usize, name: &str, value: &str) {
        let y = Self::middle(row) + 4.0;
        self.text(LEFT - 10.0, y, "end", name, "");
        self.text(LEFT + WIDE + 10.0, y, "start", value, "");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str, more: &str) {
        let text = escape(&cut(text, 40));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>"
        );
    }

    /// A line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A point.
    pub fn point(&mut self, x: f64, y: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
        );
    }

    /// A bar in a row.
    pub fn bar(&mut self, row: usize, x: f64, width: f64, colour: &str) {
        let y = Self::middle(row) - 7.0;
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>"
        );
    }

    /// Vertical lines, each at a share of the width, with their values below.
    pub fn grid(&mut self, values: &[(f64, String)]) {
        let bottom = TOP + self.rows as f64 * ROW;
        for (share, label) in values {
            let x = LEFT + share * WIDE;
            self.line((x, TOP - 6.0), (x, bottom), "#ddd");
            self.text(x, bottom + 16.0, "middle", label, "fill=\"#666\"");
        }
    }

    /// The picture.
    pub fn end(self) -> String {
        let (width, height) = (LEFT + WIDE + RIGHT, TOP + self.rows as f64 * ROW + 26.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A bar per row, as long as its value; `shown` writes values.
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
    fn bars_are_as_long_as_their_values_and_names_are_text() {
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
