//! The report of a run: `report.html` with SVG plots of loss and learning rate.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Width and height of a plot, and its margins.
const SIZE: (f64, f64) = (640.0, 320.0);
const MARGIN: (f64, f64) = (70.0, 40.0);
/// Points per line; if there are more, they are averaged.
const MAX_POINTS: usize = 1000;

/// Writes `loss.svg`, `learning_rate.svg` and `report.html` from the `metrics.jsonl` in the run folder.
pub(super) fn write(out: &Path, name: &str, results: &Value) -> std::io::Result<()> {
    let text = fs::read_to_string(out.join("metrics.jsonl"))?;
    let rows: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let column = |key: &str| -> Vec<(f64, f64)> {
        let pairs = rows
            .iter()
            .map(|row| (row["step"].as_f64(), row[key].as_f64()));
        pairs.filter_map(|(x, y)| Some((x?, y?))).collect()
    };
    let loss = plot("Loss, nats per trained token", &column("loss"));
    let rate = plot("Learning rate", &column("learning_rate"));
    fs::write(out.join("loss.svg"), &loss)?;
    fs::write(out.join("learning_rate.svg"), &rate)?;
    fs::write(out.join("report.html"), page(name, results, &[loss, rate]))
}

fn page(name: &str, results: &Value, plots: &[String]) -> String {
    let mut rows = String::new();
    for (group, label) in [
        ("unseen_files", "unseen files"),
        ("held_out_templates", "held-out templates"),
    ] {
        let cell = |when: &str| match results[when][group].as_f64() {
            Some(loss) => format!("{loss:.4}"),
            None => "not measured".into(),
        };
        let (before, after) = (cell("before"), cell("after"));
        let _ = write!(rows, "<tr><td>{label}<td>{before}<td>{after}");
    }
    for (agent, share) in results["agent_eval"].as_object().into_iter().flatten() {
        let passed = share["passed"].as_f64().unwrap_or(f64::NAN) * 100.0;
        let (agent, tasks) = (escape(agent), &share["tasks"]);
        let _ = write!(
            rows,
            "<tr><td>{agent}: tasks passed<td colspan=2>{passed:.1} % of {tasks}"
        );
    }
    let memory = memory_table(&results["memory"]["phases"]);
    let plots = plots.concat();
    let name = escape(name);
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{name}</title>\n\
         <style>body{{font-family:sans-serif;max-width:45em;margin:2em auto}}td,th{{padding:.2em 1em;text-align:left}}</style>\n\
         <h1>{name}</h1>\n<table><tr><th>held-out loss<th>before<th>after{rows}</table>\n{plots}\n{memory}\n"
    )
}

/// Planned and measured memory of each phase.
fn memory_table(phases: &Value) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    let mut rows = String::new();
    for phase in phases.as_array().into_iter().flatten() {
        let name = escape(phase["phase"].as_str().unwrap_or_default());
        for kind in ["host", "gpu"] {
            let bytes = &phase[kind];
            if bytes.is_null() {
                continue;
            }
            let cell = |key: &str| match bytes[key].as_f64() {
                Some(bytes) => format!("{:.2}", bytes / GIB),
                None => "not measured".into(),
            };
            let (planned, measured) = (cell("planned"), cell("measured"));
            let _ = write!(rows, "<tr><td>{name}<td>{kind}<td>{planned}<td>{measured}");
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => {
            format!("<table><tr><th>peak memory, GiB<th><th>planned<th>measured{rows}</table>")
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// Draws a line plot with a grid.
pub(super) fn plot(title: &str, points: &[(f64, f64)]) -> String {
    let (width, height) = SIZE;
    let points: Vec<(f64, f64)> = downsample(points);
    let (xs, ys) = (
        range(points.iter().map(|p| p.0)),
        range(points.iter().map(|p| p.1)),
    );
    let x = |value: f64| MARGIN.0 + (value - xs.0) / (xs.1 - xs.0) * (width - MARGIN.0 - 10.0);
    let y =
        |value: f64| height - MARGIN.1 - (value - ys.0) / (ys.1 - ys.0) * (height - 2.0 * MARGIN.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\
         <text x=\"{}\" y=\"20\" font-size=\"14\">{}</text>",
        MARGIN.0,
        escape(title)
    );
    for value in ticks(ys) {
        let at = y(value);
        let _ = write!(
            svg,
            "<path d=\"M{} {at:.1}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN.0,
            width - 10.0,
            MARGIN.0 - 6.0,
            at + 4.0,
            label(value)
        );
    }
    for value in ticks(xs) {
        let (at, below) = (x(value), height - MARGIN.1 + 18.0);
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            label(value)
        );
    }
    let line: Vec<String> = points
        .iter()
        .map(|&(px, py)| format!("{:.1},{:.1}", x(px), y(py)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"#1f6fb4\" stroke-width=\"1.5\" points=\"{}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text></svg>",
        line.join(" "),
        width - 10.0,
        height - 6.0
    );
    svg
}

/// Averages groups of points if there are too many.
fn downsample(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<_> = points
        .iter()
        .filter(|p| p.0.is_finite() && p.1.is_finite())
        .collect();
    let stretch = finite.len().div_ceil(MAX_POINTS).max(1);
    let mean = |chunk: &[&(f64, f64)]| {
        let count = chunk.len() as f64;
        let sum = chunk.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
        (sum.0 / count, sum.1 / count)
    };
    finite.chunks(stretch).map(mean).collect()
}

/// Minimum and maximum; widened if they are equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    match (low, high) {
        (low, high) if low > high => (0.0, 1.0),
        (low, high) if low == high => (
            low - low.abs().max(1e-9) / 2.0,
            high + high.abs().max(1e-9) / 2.0,
        ),
        both => both,
    }
}

/// About three to seven round values in a range.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let rough = (high - low) / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..first + 8)
        .map(|n| n as f64 * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .collect()
}

fn label(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.1e}"),
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_spans_its_points() {
        let svg = plot("a < b", &[(1.0, 2.0), (2.0, 4.0), (5.0, 3.0)]);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        let (left, right) = ("70.0,280.0", "630.0,160.0");
        assert!(
            svg.contains(&format!("points=\"{left} ")) && svg.contains(right),
            "{svg}"
        );
    }

    #[test]
    fn empty_and_non_finite_data_can_be_drawn() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, f64::NAN), (2.0, 0.0)]] {
            let svg = plot("x", &points);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 10.0)), [0.0, 5.0, 10.0]);
        for range in [(0.13, 0.87), (-3e-5, 2e-5), (1e6, 1.00001e6)] {
            let all = ticks(range);
            assert!((2..=7).contains(&all.len()), "{range:?} {all:?}");
            assert!(
                all.iter().all(|t| *t >= range.0 && *t <= range.1 + 1e-9),
                "{all:?}"
            );
        }
    }

    #[test]
    fn many_points_are_averaged() {
        let points: Vec<_> = (0..10_000).map(|n| (f64::from(n), 1.0)).collect();
        assert_eq!(downsample(&points).len(), 1000);
    }
}
