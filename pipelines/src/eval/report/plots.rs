//! Plots of pass rates, turns and duels.

use pybench_datasets::svg::{LEFT, Svg, WIDE, bars};

use crate::eval::stats::Interval;

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

/// Pass rates with their intervals.
pub(super) fn rates(title: &str, points: &[Point]) -> String {
    let mut svg = Svg::new(title, points.len());
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0];
    svg.grid(&ticks.map(|t| (t, format!("{:.0} %", t * 100.0))));
    for (row, point) in points.iter().enumerate() {
        let y = Svg::middle(row);
        svg.row(row, &point.label, &format!("{:.1} %", point.value * 100.0));
        let x = |share: f64| LEFT + share.clamp(0.0, 1.0) * WIDE;
        if let Some(interval) = point.interval {
            svg.line((x(interval.low), y), (x(interval.high), y), "#27c");
            for end in [interval.low, interval.high] {
                svg.line((x(end), y - 4.0), (x(end), y + 4.0), "#27c");
            }
        }
        svg.point(x(point.value), y, "#15a");
    }
    svg.end()
}

/// Average turns.
pub(super) fn turns(title: &str, points: &[Point]) -> String {
    let rows: Vec<_> = points.iter().map(|p| (p.label.clone(), p.value)).collect();
    bars(title, &rows, |value| format!("{value:.1}"))
}

/// Win, tie, lose.
pub(super) fn duels(title: &str, rows: &[Shares]) -> String {
    let mut svg = Svg::new(title, rows.len());
    for (row, shares) in rows.iter().enumerate() {
        let total = shares.counts.iter().sum::<usize>().max(1) as f64;
        let mut x = LEFT;
        for (count, colour) in shares.counts.iter().zip(["#4a7", "#bbb", "#c65"]) {
            let width = *count as f64 / total * WIDE;
            svg.bar(row, x, width, colour);
            x += width;
        }
        let counts = shares.counts.map(|count| count.to_string()).join(" / ");
        svg.row(row, &shares.label, &counts);
    }
    svg.end()
}
