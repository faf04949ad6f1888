//! Plots as SVG, drawn by hand: nothing to load, nothing that runs, the same bytes every time.

use std::fmt::Write;

use super::text::escape;
use crate::eval::record::cut;
use crate::eval::stats::Interval;

const LEFT: f64 = 220.0;
const WIDE: f64 = 480.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;

/// A row of a plot of rates.
pub(super) struct Point {
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
}

/// A row of shares.
pub(super) struct Shares {
    pub(super) label: String,
    /// Win, tie, lose.
    pub(super) counts: [usize; 3],
}

struct Svg {
    body: String,
    rows: usize,
}

impl Svg {
    fn new(title: &str, rows: usize) -> Self {
        let mut svg = Self {
            body: String::new(),
            rows,
        };
        svg.text(8.0, 18.0, "start", title, "font-weight=\"bold\"");
        svg
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str, more: &str) {
        let text = escape(&cut(text, 40));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>"
        );
    }

    /// Vertical lines with their values below.
    fn grid(&mut self, values: &[(f64, String)]) {
        let bottom = TOP + self.rows as f64 * ROW;
        for (share, label) in values {
            let x = LEFT + share * WIDE;
            self.line((x, TOP - 6.0), (x, bottom), "#ddd");
            self.text(x, bottom + 16.0, "middle", label, "fill=\"#666\"");
        }
    }

    fn end(self) -> String {
        let (width, height) = (LEFT + WIDE + 90.0, TOP + self.rows as f64 * ROW + 26.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// Pass rates with their intervals.
pub(super) fn rates(title: &str, points: &[Point]) -> String {
    let mut svg = Svg::new(title, points.len());
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0];
    svg.grid(&ticks.map(|t| (t, format!("{:.0} %", t * 100.0))));
    for (row, point) in points.iter().enumerate() {
        let y = TOP + row as f64 * ROW + ROW / 2.0;
        svg.text(LEFT - 10.0, y + 4.0, "end", &point.label, "");
        let x = |share: f64| LEFT + share.clamp(0.0, 1.0) * WIDE;
        if let Some(interval) = point.interval {
            svg.line((x(interval.low), y), (x(interval.high), y), "#27c");
            for end in [interval.low, interval.high] {
                svg.line((x(end), y - 4.0), (x(end), y + 4.0), "#27c");
            }
        }
        let _ = writeln!(
            svg.body,
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#15a\"/>",
            x(point.value)
        );
        svg.text(
            LEFT + WIDE + 10.0,
            y + 4.0,
            "start",
            &format!("{:.1} %", point.value * 100.0),
            "",
        );
    }
    svg.end()
}

/// Average turns.
pub(super) fn turns(title: &str, points: &[Point]) -> String {
    let most = points.iter().map(|p| p.value).fold(1.0, f64::max).ceil();
    let mut svg = Svg::new(title, points.len());
    svg.grid(&[0.0, 0.5, 1.0].map(|t| (t, format!("{:.1}", t * most))));
    for (row, point) in points.iter().enumerate() {
        let y = TOP + row as f64 * ROW + ROW / 2.0;
        svg.text(LEFT - 10.0, y + 4.0, "end", &point.label, "");
        svg.bar(LEFT, y - 7.0, point.value / most * WIDE, "#7a9");
        svg.text(
            LEFT + WIDE + 10.0,
            y + 4.0,
            "start",
            &format!("{:.1}", point.value),
            "",
        );
    }
    svg.end()
}

/// Win, tie, lose.
pub(super) fn duels(title: &str, rows: &[Shares]) -> String {
    let mut svg = Svg::new(title, rows.len());
    for (row, shares) in rows.iter().enumerate() {
        let y = TOP + row as f64 * ROW + ROW / 2.0;
        svg.text(LEFT - 10.0, y + 4.0, "end", &shares.label, "");
        let total = shares.counts.iter().sum::<usize>().max(1) as f64;
        let mut x = LEFT;
        for (count, colour) in shares.counts.iter().zip(["#4a7", "#bbb", "#c65"]) {
            let width = *count as f64 / total * WIDE;
            svg.bar(x, y - 7.0, width, colour);
            x += width;
        }
        let counts = shares.counts.map(|c| c.to_string()).join(" / ");
        svg.text(LEFT + WIDE + 10.0, y + 4.0, "start", &counts, "");
    }
    svg.end()
}
