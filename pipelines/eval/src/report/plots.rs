//! SVG plots of pass rates, turns and pairwise comparisons.

use pybench_datasets::svg::{LEFT, Svg, WIDE, bars};

use pybench_checks::interval::Interval;

/// One row of a plot of rates or turns.
pub(super) struct RatePoint {
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) interval: Option<Interval>,
}

/// One row of a plot of pairwise comparisons.
pub(super) struct DuelCounts {
    pub(super) label: String,
    /// Wins, ties, losses.
    pub(super) counts: [usize; 3],
}

/// Plots pass rates with their intervals.
pub(super) fn rates(title: &str, points: &[RatePoint]) -> String {
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

/// Plots the average number of turns.
pub(super) fn turns(title: &str, points: &[RatePoint]) -> String {
    let rows: Vec<_> = points.iter().map(|p| (p.label.clone(), p.value)).collect();
    bars(title, &rows, |value| format!("{value:.1}"))
}

/// Plots wins, ties and losses.
pub(super) fn duels(title: &str, rows: &[DuelCounts]) -> String {
    let mut svg = Svg::new(title, rows.len());
    for (row, shares) in rows.iter().enumerate() {
        let total = shares.counts.iter().sum::<usize>().max(1) as f64;
        let mut x = LEFT;
        for (count, color) in shares.counts.iter().zip(["#4a7", "#bbb", "#c65"]) {
            let width = *count as f64 / total * WIDE;
            svg.bar(row, x, width, color);
            x += width;
        }
        let counts = shares.counts.map(|count| count.to_string()).join(" / ");
        svg.row(row, &shares.label, &counts);
    }
    svg.end()
}
