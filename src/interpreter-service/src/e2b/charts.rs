//! Converts the recorded data of a figure (`python/charts.py`) to E2B's chart format. The record comes from
//! the session and is untrusted: missing or unexpected parts are omitted.

use serde_json::{Value, json};

/// Relative tolerance for equal numbers.
const CLOSE: f64 = 1e-9;

/// The chart of a figure; `None` if it shows no data.
pub(super) fn chart(figure: &Value) -> Option<Value> {
    let axes = figure["axes"].as_array()?;
    if !axes.iter().any(has_data) {
        return None;
    }
    match &axes[..] {
        [one] => Some(of_axes(one)),
        many => Some(json!({
            "type": "superchart",
            "title": text(&figure["suptitle"]),
            "elements": many.iter().map(of_axes).collect::<Vec<_>>(),
        })),
    }
}

fn has_data(axes: &Value) -> bool {
    ["bars", "lines", "points", "wedges"]
        .iter()
        .any(|kind| !items(&axes[*kind]).is_empty())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn numbers(value: &Value) -> Vec<f64> {
    items(value)
        .iter()
        .map(|v| v.as_f64().unwrap_or(f64::NAN))
        .collect()
}

/// A text, or null if it is empty.
fn text(value: &Value) -> Value {
    match value.as_str() {
        None | Some("") => Value::Null,
        Some(text) => text.into(),
    }
}

fn of_axes(axes: &Value) -> Value {
    let lines: Vec<&Value> = items(&axes["lines"])
        .iter()
        .filter(|line| !is_rule(line))
        .collect();
    let has = |kind: &str| !items(&axes[kind]).is_empty();
    let boxes = boxes(axes);
    let (kind, elements) = if has("wedges") {
        ("pie", wedges(axes))
    } else if let Some(boxes) = boxes {
        ("box_and_whisker", boxes)
    } else {
        match (has("bars"), has("points"), lines.is_empty()) {
            (true, false, true) => ("bar", bars(axes)),
            (false, true, true) => (
                "scatter",
                series(axes, items(&axes["points"]).iter(), "Series"),
            ),
            (false, false, false) => ("line", series(axes, lines.into_iter(), "Line")),
            _ => ("unknown", Vec::new()),
        }
    };
    let mut chart = json!({"type": kind, "title": text(&axes["title"]), "elements": elements});
    if matches!(kind, "bar" | "box_and_whisker" | "line" | "scatter") {
        let swapped = kind == "bar" && is_horizontal(axes)
            || kind == "box_and_whisker" && is_horizontal_box_plot(axes);
        labels(&mut chart, axes, swapped);
    }
    if matches!(kind, "line" | "scatter") {
        for name in ["x", "y"] {
            scale(&mut chart, name, &axes[name]);
        }
    }
    chart
}

/// Whether a line is a horizontal or vertical guide line.
fn is_rule(line: &Value) -> bool {
    let (x, y) = (numbers(&line["x"]), numbers(&line["y"]));
    x.len() == 2 && y.len() == 2 && (x[0] == x[1] || y[0] == y[1])
}

/// Adds the labels of the axes and the units in them: `Time (s)`, `Mass [kg]`.
fn labels(chart: &mut Value, axes: &Value, swapped: bool) {
    let (x, y) = if swapped { ("y", "x") } else { ("x", "y") };
    for (ours, theirs) in [(x, "x"), (y, "y")] {
        let label = text(&axes[ours]["label"]);
        chart[format!("{theirs}_unit")] = label.as_str().and_then(unit).into();
        chart[format!("{theirs}_label")] = label;
    }
}

fn unit(label: &str) -> Option<&str> {
    let between = |open: &str, close: char| {
        let (_, after) = label.split_once(open)?;
        after.split_once(close).map(|(unit, _)| unit)
    };
    between(" (", ')').or_else(|| between("[", ']'))
}

fn ticks(axis: &Value) -> Vec<(f64, &str)> {
    let all = items(&axis["ticks"]).iter();
    all.filter_map(|tick| Some((tick[0].as_f64()?, tick[1].as_str()?)))
        .collect()
}

/// Whether the ticks are categories: at 0, 1, 2, …, with labels other than these numbers.
fn is_categorical(axis: &Value) -> bool {
    let ticks = ticks(axis);
    let named =
        |(i, (at, label)): (usize, &(f64, &str))| *at == i as f64 && *label != i.to_string();
    axis["scale"] == "linear" && !ticks.is_empty() && ticks.iter().enumerate().all(named)
}

fn scale(chart: &mut Value, name: &str, axis: &Value) {
    let ticks = ticks(axis);
    let kind = match () {
        () if axis.get("freq").is_some() => "datetime",
        () if is_categorical(axis) => "categorical",
        () => axis["scale"].as_str().unwrap_or("linear"),
    };
    chart[format!("{name}_scale")] = kind.into();
    chart[format!("{name}_ticks")] = ticks.iter().map(|(at, _)| *at).collect();
    chart[format!("{name}_tick_labels")] = ticks.iter().map(|(_, label)| *label).collect();
}

/// A coordinate: the category name on a categorical axis.
fn coordinate(value: f64, names: Option<&[(f64, &str)]>) -> Value {
    let name = names.and_then(|names| names.iter().find(|(at, _)| *at == value));
    match name {
        Some((_, name)) => (*name).into(),
        None => value.into(), // null if it is not finite
    }
}

fn series<'a>(axes: &Value, all: impl Iterator<Item = &'a Value>, kind: &str) -> Vec<Value> {
    let names = |axis: &'_ Value| is_categorical(axis);
    let (x_ticks, y_ticks) = (ticks(&axes["x"]), ticks(&axes["y"]));
    let x_names = names(&axes["x"]).then_some(&x_ticks[..]);
    let y_names = names(&axes["y"]).then_some(&y_ticks[..]);
    all.map(|one| {
        let (x, y) = (numbers(&one["x"]), numbers(&one["y"]));
        let points = x.into_iter().zip(y);
        let points = points.map(|(x, y)| json!([coordinate(x, x_names), coordinate(y, y_names)]));
        json!({"label": label(&one["label"], "_child", kind), "points": points.collect::<Vec<_>>()})
    })
    .collect()
}

/// A label; labels that matplotlib generated become `Line 0`.
fn label(value: &Value, made_up: &str, kind: &str) -> String {
    let label = value.as_str().unwrap_or_default();
    match label.strip_prefix(made_up) {
        Some(number) => format!("{kind} {number}"),
        None => label.to_owned(),
    }
}

fn is_horizontal(axes: &Value) -> bool {
    items(&axes["bars"])
        .iter()
        .any(|bars| bars["orientation"] == "horizontal")
}

fn bars(axes: &Value) -> Vec<Value> {
    let horizontal = is_horizontal(axes);
    let axis = &axes[if horizontal { "y" } else { "x" }];
    let ticks = ticks(axis);
    let mut found = Vec::new();
    for group in items(&axes["bars"]) {
        let name = label(&group["label"], "_container", "Group");
        for rect in items(&group["rects"]) {
            let [x, y, width, height] = numbers(rect)[..] else {
                continue;
            };
            let (at, thick, value) = match horizontal {
                true => (y, height, width),
                false => (x, width, height),
            };
            let category_label = category_label(&ticks, at + thick / 2.0);
            found.push(json!({"label": category_label, "group": name, "value": value}));
        }
    }
    found
}

/// The label of the tick at a position: the nearest one, if it is within half the distance between ticks.
fn category_label(ticks: &[(f64, &str)], at: f64) -> String {
    let nearest = ticks
        .iter()
        .min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
    let gaps = ticks.windows(2).map(|pair| (pair[1].0 - pair[0].0).abs());
    let half = gaps.fold(f64::INFINITY, f64::min).min(2.0) / 2.0;
    match nearest {
        Some((tick, label)) if (tick - at).abs() < half => (*label).to_owned(),
        _ => format!("{at}"),
    }
}

fn wedges(axes: &Value) -> Vec<Value> {
    let wedge = |wedge: &Value| {
        let [from, to] = numbers(&wedge["theta"])[..] else {
            return None;
        };
        let label = wedge["label"].as_str().unwrap_or_default();
        Some(json!({"label": label, "angle": (to - from).abs(), "radius": wedge["r"]}))
    };
    items(&axes["wedges"]).iter().filter_map(wedge).collect()
}

/// A box of a box plot, which is drawn as lines: two whiskers, two caps and the median.
#[derive(Clone, Debug, PartialEq)]
struct Boxed {
    at: f64,
    low: f64,
    first: f64,
    median: f64,
    third: f64,
    high: f64,
}

fn equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= CLOSE * (1.0 + a.abs().max(b.abs()))
}

type Points = (Vec<f64>, Vec<f64>);

/// The box that five lines form (whiskers, caps, median), with values on the second axis.
fn boxed(lines: &[Points]) -> Option<Boxed> {
    let [lower, upper, low_cap, high_cap, median] = lines else {
        return None;
    };
    let upright =
        |line: &Points| line.0.len() == 2 && line.1.len() == 2 && equal(line.0[0], line.0[1]);
    let level =
        |line: &Points| line.0.len() == 2 && line.1.len() == 2 && equal(line.1[0], line.1[1]);
    let shaped =
        upright(lower) && upright(upper) && [low_cap, high_cap, median].into_iter().all(level);
    if !shaped || !equal(lower.0[0], upper.0[0]) {
        return None;
    }
    let found = Boxed {
        at: lower.0[0],
        low: lower.1[1],
        first: lower.1[0],
        median: median.1[0],
        third: upper.1[0],
        high: upper.1[1],
    };
    let capped = equal(low_cap.1[0], found.low) && equal(high_cap.1[0], found.high);
    let ordered = found.low <= found.first
        && found.first <= found.median
        && found.median <= found.third
        && found.third <= found.high;
    (capped && ordered).then_some(found)
}

/// All boxes of the axes, each with its outliers; `None` if the lines are not a box plot.
fn find_boxes(lines: &[Points]) -> Option<Vec<(Boxed, Vec<f64>)>> {
    let mut found: Vec<(Boxed, Vec<f64>)> = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        if let Some(one) = rest.get(..5).and_then(boxed) {
            found.push((one, Vec::new()));
            rest = &rest[5..];
        } else if rest[0].0.len() >= 5 && rest.get(1..6).and_then(boxed).is_some() {
            rest = &rest[1..]; // the box itself
        } else {
            let (last, outliers) = (found.last_mut()?, &rest[0]);
            if !outliers.0.iter().all(|x| equal(*x, last.0.at)) {
                return None;
            }
            last.1.extend(&outliers.1);
            rest = &rest[1..];
        }
    }
    (!found.is_empty()).then_some(found)
}

fn points_of(axes: &Value, swapped: bool) -> Vec<Points> {
    let points = |line: &Value| {
        let (x, y) = (numbers(&line["x"]), numbers(&line["y"]));
        if swapped { (y, x) } else { (x, y) }
    };
    items(&axes["lines"]).iter().map(points).collect()
}

fn is_horizontal_box_plot(axes: &Value) -> bool {
    find_boxes(&points_of(axes, false)).is_none()
}

fn boxes(axes: &Value) -> Option<Vec<Value>> {
    if items(&axes["lines"]).len() < 5 || !items(&axes["bars"]).is_empty() {
        return None;
    }
    let upright = find_boxes(&points_of(axes, false));
    let name = if upright.is_some() { "x" } else { "y" };
    let found = upright.or_else(|| find_boxes(&points_of(axes, true)))?;
    let ticks = ticks(&axes[name]);
    let element = |(one, outliers): (Boxed, Vec<f64>)| {
        json!({
            "label": category_label(&ticks, one.at),
            "min": one.low, "first_quartile": one.first, "median": one.median,
            "third_quartile": one.third, "max": one.high, "outliers": outliers,
        })
    };
    Some(found.into_iter().map(element).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(label: &str, ticks: &[(f64, &str)]) -> Value {
        json!({"label": label, "scale": "linear", "ticks": ticks})
    }

    fn figure(axes: Value) -> Value {
        json!({"suptitle": "", "axes": [axes]})
    }

    #[test]
    fn lines_keep_points_labels_and_units() {
        let chart = chart(&figure(json!({
            "title": "T", "x": axis("Time (s)", &[(0.0, "0"), (1.0, "1")]), "y": axis("[kg]", &[]),
            "lines": [
                {"label": "a", "x": [0.0, 1.0], "y": [2.0, null]},
                {"label": "_child1", "x": [0.0, 1.0, 2.0], "y": [1.0, 1.0, 1.0]},
                {"label": "rule", "x": [0.0, 9.0], "y": [1.0, 1.0]},
            ],
        })))
        .unwrap();
        assert_eq!(
            (&chart["type"], &chart["title"]),
            (&json!("line"), &json!("T"))
        );
        assert_eq!(
            (&chart["x_unit"], &chart["y_unit"]),
            (&json!("s"), &json!("kg"))
        );
        assert_eq!(chart["x_scale"], "linear");
        assert_eq!(
            chart["elements"][0],
            json!({"label": "a", "points": [[0.0, 2.0], [1.0, null]]})
        );
        assert_eq!(chart["elements"][1]["label"], "Line 1");
        assert_eq!(chart["elements"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn bars_have_the_labels_of_their_ticks() {
        let bars = |orientation: &str| {
            json!([
                {"label": "_container0", "orientation": orientation,
                 "rects": if orientation == "vertical" { json!([[-0.4, 0, 0.4, 3], [0.6, 0, 0.4, 5]]) } else { json!([[0, -0.4, 3, 0.4], [0, 0.6, 5, 0.4]]) }},
            ])
        };
        let names = [(0.0, "A"), (1.0, "B")];
        let upright = json!({"title": "", "x": axis("x", &names), "y": axis("y", &[]), "bars": bars("vertical")});
        let lying = json!({"title": "", "x": axis("y", &[]), "y": axis("x", &names), "bars": bars("horizontal")});
        for axes in [upright, lying] {
            let chart = chart(&figure(axes)).unwrap();
            assert_eq!(chart["type"], "bar");
            assert_eq!(
                (&chart["x_label"], &chart["y_label"]),
                (&json!("x"), &json!("y"))
            );
            assert_eq!(
                chart["elements"][1],
                json!({"label": "B", "group": "Group 0", "value": 5.0})
            );
        }
    }

    #[test]
    fn boxes_are_recognized_from_lines() {
        let upright = json!([
            {"x": [0.8, 1.2, 1.2, 0.8, 0.8], "y": [2, 2, 4, 4, 2]},
            {"x": [1, 1], "y": [2, 1]}, {"x": [1, 1], "y": [4, 6]},
            {"x": [0.9, 1.1], "y": [1, 1]}, {"x": [0.9, 1.1], "y": [6, 6]},
            {"x": [0.8, 1.2], "y": [3, 3]},
            {"x": [1, 1], "y": [9, -9]},
        ]);
        let mut lying = upright.clone();
        for line in lying.as_array_mut().unwrap() {
            let (x, y) = (line["x"].clone(), line["y"].clone());
            (line["x"], line["y"]) = (y, x);
        }
        for (lines, x, y) in [(upright, "x", "y"), (lying, "y", "x")] {
            let axes = json!({"title": "", x: axis("who", &[(1.0, "A")]), y: axis("how much", &[]), "lines": lines});
            let chart = chart(&figure(axes)).unwrap();
            let expected = json!({
                "label": "A", "min": 1.0, "first_quartile": 2.0, "median": 3.0, "third_quartile": 4.0,
                "max": 6.0, "outliers": [9.0, -9.0],
            });
            assert_eq!(
                (&chart["type"], &chart["elements"][0]),
                (&json!("box_and_whisker"), &expected)
            );
            assert_eq!(chart["x_label"], "who");
        }
    }

    #[test]
    fn pies_scatter_plots_multiple_axes_and_empty_figures() {
        let pie =
            json!({"title": "", "wedges": [{"label": "a", "theta": [10.0, 100.0], "r": 1.0}]});
        let dots = json!({"title": "", "x": axis("", &[]), "y": axis("", &[]), "points": [{"label": "d", "x": [1.0], "y": [2.0]}]});
        let both = chart(&json!({"suptitle": "S", "axes": [pie, dots]})).unwrap();
        assert_eq!(
            (&both["type"], &both["title"]),
            (&json!("superchart"), &json!("S"))
        );
        assert_eq!(
            both["elements"][0]["elements"][0],
            json!({"label": "a", "angle": 90.0, "radius": 1.0})
        );
        assert_eq!(
            (
                &both["elements"][1]["type"],
                &both["elements"][1]["x_label"]
            ),
            (&json!("scatter"), &Value::Null)
        );
        assert_eq!(chart(&figure(json!({"title": "blank"}))), None);
        assert_eq!(chart(&json!(null)), None);
    }

    #[test]
    fn fuzz_charts() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(figure) = serde_json::from_slice(bytes) {
                chart(&figure);
            }
            // The fuzzer rarely finds the keys of a record, so this adds them.
            let values: Vec<f64> = bytes.iter().map(|b| f64::from(*b % 5)).collect();
            let lines: Vec<Value> = values
                .chunks(4)
                .map(|c| json!({"x": c, "y": values.get(..c.len())}))
                .collect();
            chart(&figure(
                json!({"lines": lines, "x": axis("(", &[(0.0, "")])}),
            ));
        });
    }
}
