//! The report of a run: `report.html` with its model, data, tokens, time, memory and curves.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use pybench_types::text::{count, escape};
use serde_json::Value;

use super::held_out::{GROUPS, HeldOutCurve, PAIR_LOSS};
use super::metrics::minutes;

/// Width and height of a plot, and its margins.
const SIZE: (f64, f64) = (640.0, 320.0);
const MARGIN: (f64, f64) = (70.0, 40.0);
/// Points per line; if there are more, they are averaged.
const MAX_POINTS: usize = 1000;

/// Colors of the lines of a plot.
const COLORS: [&str; 5] = ["#1f6fb4", "#c4561b", "#3a8a3a", "#8a4fb0", "#7a7a7a"];
/// The share of a loss that must go before something counts as learned.
const LEARNED: f64 = 0.1;

/// A line of a plot.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Writes the plots and `report.html` from `metrics.jsonl` and `held_out.jsonl` in the run folder.
pub(super) fn write(out: &Path, name: &str, results: &Value) -> std::io::Result<()> {
    let metrics = read_lines(&out.join("metrics.jsonl"))?;
    let loss = [series(&metrics, "loss", "")];
    let rate = [series(&metrics, "learning_rate", "")];
    let of_pairs = preference_plots(&metrics);
    let title = match of_pairs.is_empty() {
        true => "Loss, nats per trained token",
        false => "Loss of preference pairs",
    };
    let mut plots = vec![("loss.svg", plot(title, &loss))];
    plots.extend(of_pairs);
    plots.push(("learning_rate.svg", plot("Learning rate", &rate)));
    let path = out.join(HeldOutCurve::FILE);
    if path.exists() {
        let measured = read_lines(&path)?;
        let groups = GROUPS.iter().map(|(_, key, name)| (*key, *name));
        let pairs = [
            (PAIR_LOSS, "loss of pairs"),
            ("rewards/accuracies", "accuracy of pairs"),
        ];
        let lines = groups.chain(pairs);
        let lines = lines.map(|(key, name)| series(&measured, key, name));
        let lines: Vec<Series> = lines.filter(|line| !line.points.is_empty()).collect();
        let title = match measured.iter().any(|row| row[PAIR_LOSS].is_f64()) {
            true => "Held-out preference pairs",
            false => "Held-out loss, nats per trained token",
        };
        plots.insert(0, ("held_out.svg", plot(title, &lines)));
    }
    for (file, svg) in &plots {
        fs::write(out.join(file), svg)?;
    }
    let plots: String = plots.into_iter().map(|(_, svg)| svg).collect();
    fs::write(
        out.join("report.html"),
        page(name, results, &metrics, &plots),
    )
}

/// Plots of what is measured of preference pairs; none for other runs.
fn preference_plots(metrics: &[Value]) -> Vec<(&'static str, String)> {
    let kinds: [(_, _, &[_]); 3] = [
        (
            "rewards.svg",
            "Rewards",
            &["rewards/margins", "rewards/chosen", "rewards/rejected"],
        ),
        (
            "accuracies.svg",
            "Share of pairs with a higher reward of the chosen reply",
            &["rewards/accuracies"],
        ),
        (
            "logps.svg",
            "Log-probability of a reply, nats",
            &["logps/chosen", "logps/rejected"],
        ),
    ];
    let drawn = kinds.map(|(file, title, keys)| {
        let lines: Vec<Series> = keys.iter().map(|key| series(metrics, key, key)).collect();
        let has_points = lines.iter().any(|line| !line.points.is_empty());
        has_points.then(|| (file, plot(title, &lines)))
    });
    drawn.into_iter().flatten().collect()
}

fn read_lines(path: &Path) -> std::io::Result<Vec<Value>> {
    let text = fs::read_to_string(path)?;
    let rows = text.lines().map(serde_json::from_str);
    Ok(rows.filter_map(Result::ok).collect())
}

fn series(rows: &[Value], key: &str, name: &str) -> Series {
    let pairs = rows
        .iter()
        .map(|row| (row["step"].as_f64(), row[key].as_f64()));
    Series {
        name: name.into(),
        points: pairs.filter_map(|(x, y)| Some((x?, y?))).collect(),
    }
}

fn page(name: &str, results: &Value, metrics: &[Value], plots: &str) -> String {
    let (name, run) = (escape(name), run_table(results, metrics));
    let data = data_table(&results["mixture"]);
    let held_out = held_out_table(results);
    let verdict = verdict(results).map_or(String::new(), |text| format!("<p><b>{text}</b>\n"));
    let memory = memory_table(&results["memory"]["phases"]);
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{name}</title>\n\
         <style>body{{font-family:sans-serif;max-width:45em;margin:2em auto}}\
         td,th{{padding:.2em 1em;text-align:left}}td+td{{text-align:right}}</style>\n\
         <h1>{name}</h1>\n{run}\n{held_out}\n{verdict}{plots}\n{data}\n{memory}\n"
    )
}

/// Model, steps, tokens and time.
fn run_table(results: &Value, metrics: &[Value]) -> String {
    let sum = |key: &str| -> f64 { metrics.iter().filter_map(|row| row[key].as_f64()).sum() };
    let (tokens, trained, seconds) = (sum("tokens"), sum("trained"), sum("seconds"));
    let per_second = tokens / seconds.max(1e-9);
    let rows = [
        (
            "model",
            escape(results["model"].as_str().unwrap_or_default()),
        ),
        ("steps", results["steps"].to_string()),
        (
            "tokens",
            format!("{}, {} of them trained", whole(tokens), whole(trained)),
        ),
        ("minutes in steps", minutes(seconds)),
        ("tokens per second", whole(per_second)),
    ];
    let rows = rows.map(|(key, value)| format!("<tr><td>{key}<td>{value}"));
    format!("<table>{}</table>", rows.concat())
}

/// A number without its fraction, with separators of thousands.
fn whole(number: f64) -> String {
    count(number.round() as u64)
}

/// The sources of the training data.
fn data_table(mixture: &Value) -> String {
    let mut rows = String::new();
    for source in mixture.as_array().into_iter().flatten() {
        let name = escape(source["source"].as_str().unwrap_or_default());
        let cell = |key: &str| count(source[key].as_u64().unwrap_or_default());
        let (records, trained) = (cell("records"), cell("trained"));
        let share = 100.0 * source["share"].as_f64().unwrap_or_default();
        let _ = write!(
            rows,
            "<tr><td>{name}<td>{records}<td>{trained}<td>{share:.1} %"
        );
    }
    format!("<table><tr><th>data<th>rows<th>trained tokens<th>share{rows}</table>")
}

/// The held-out losses before and after, and what agents passed.
fn held_out_table(results: &Value) -> String {
    let mut rows = String::new();
    let of_pairs = results["before"][PAIR_LOSS].is_f64();
    let pairs = [
        (PAIR_LOSS, "loss of pairs"),
        ("rewards/margins", "reward margin of pairs"),
        ("rewards/accuracies", "accuracy of pairs"),
    ];
    let groups = GROUPS.iter().map(|(_, key, name)| (*key, *name));
    let keys: Vec<_> = match of_pairs {
        true => pairs.to_vec(),
        false => groups.collect(),
    };
    for (key, name) in keys {
        let cell = |when: &str| match results[when][key].as_f64() {
            Some(loss) => format!("{loss:.4}"),
            None => "not measured".into(),
        };
        // Groups that only composed tasks have.
        if key.starts_with("unseen_") && key != "unseen_files" && results["before"][key].is_null() {
            continue;
        }
        let (before, after) = (cell("before"), cell("after"));
        let _ = write!(rows, "<tr><td>{name}<td>{before}<td>{after}");
    }
    for (agent, share) in results["agent_eval"].as_object().into_iter().flatten() {
        let passed = share["passed"].as_f64().unwrap_or(f64::NAN) * 100.0;
        let (agent, tasks) = (escape(agent), &share["tasks"]);
        let _ = write!(
            rows,
            "<tr><td>{agent}: tasks passed<td colspan=2>{passed:.1} % of {tasks}"
        );
    }
    format!("<table><tr><th>held-out loss<th>before<th>after{rows}</table>")
}

/// Says what the held-out losses mean where they say little good.
fn verdict(results: &Value) -> Option<String> {
    let gone = GROUPS.map(|(_, key, _)| {
        let loss = |when: &str| results[when][key].as_f64();
        Some(1.0 - loss("after")? / loss("before")?)
    });
    let (files, templates) = (gone[0]?, gone[1]?);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (files_share, templates_share) = (percent(files), percent(templates));
    if files < LEARNED && templates < LEARNED {
        return Some(format!(
            "Little was learned: the loss on unseen files went down by {files_share}, on held-out templates by \
             {templates_share}."
        ));
    }
    (templates < LEARNED).then(|| {
        format!(
            "Only the templates of the training data were learned: the loss on unseen files of those templates went \
             down by {files_share}, on templates that no row shows by {templates_share}. Other tasks will gain little."
        )
    })
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

/// Draws lines over a grid. The vertical axis begins at zero.
pub(super) fn plot(title: &str, lines: &[Series]) -> String {
    let (width, height) = SIZE;
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines
        .iter()
        .map(|line| (&*line.name, downsample(&line.points)))
        .collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let xs = range(all().map(|p| p.0));
    let ys = range(all().map(|p| p.1).chain([0.0]));
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
    for (number, (name, points)) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let at = |&(px, py): &(f64, f64)| format!("{:.1},{:.1}", x(px), y(py));
        let points: Vec<String> = points.iter().map(at).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{color}\">{}</text>",
            points.join(" "),
            width - 10.0,
            20.0 + 14.0 * number as f64,
            escape(name)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text></svg>",
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
    use serde_json::json;

    use super::*;

    fn line(points: &[(f64, f64)]) -> [Series; 1] {
        let points = points.to_vec();
        [Series {
            name: "a < b".into(),
            points,
        }]
    }

    #[test]
    fn a_plot_begins_at_zero_and_spans_its_points() {
        let svg = plot("t", &line(&[(1.0, 2.0), (2.0, 4.0), (5.0, 3.0)]));
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        assert!(
            svg.contains("points=\"70.0,160.0 ") && svg.contains(" 630.0,100.0\""),
            "{svg}"
        );
    }

    #[test]
    fn empty_and_non_finite_data_can_be_drawn() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, f64::NAN), (2.0, 0.0)]] {
            let svg = plot("x", &line(&points));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_report_says_when_only_templates_were_learned() {
        let verdict_of = |files: f64, templates: f64| {
            verdict(&json!({
                "before": {"unseen_files": 2.0, "held_out_templates": 2.0},
                "after": {"unseen_files": files, "held_out_templates": templates},
            }))
        };
        let only = verdict_of(0.1, 1.9).unwrap();
        assert!(only.starts_with("Only the templates"), "{only}");
        assert!(
            only.contains("by 95 %") && only.contains("by 5 %"),
            "{only}"
        );
        assert!(verdict_of(1.95, 2.1).unwrap().starts_with("Little"));
        assert_eq!(verdict_of(0.1, 0.5), None);
        assert_eq!(verdict(&json!({"before": {}, "after": {}})), None);
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
