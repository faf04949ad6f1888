//! Operations that end a task with a chart, whose data is checked.

use polars::prelude::*;

use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Role};

/// Bars of a chart, or slices of a pie.
const BARS: std::ops::RangeInclusive<usize> = 3..=15;
const SLICES: std::ops::RangeInclusive<usize> = 3..=8;
/// Points of a line or a scatter plot.
const POINTS: std::ops::RangeInclusive<usize> = 5..=300;
/// A slice has at least this share of a pie: smaller ones cannot be seen.
const MIN_SHARE: f64 = 0.01;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        bar_chart(),
        horizontal_bar_chart(),
        pie_chart(),
        line_chart(),
        scatter_plot(),
    ]
}

/// A column with a name for each row, and one with numbers that are not negative.
fn labelled(draw: &mut Draw<'_>) -> Option<Arguments> {
    let label = draw.pick(Class::Text, |draw, name| {
        draw.unique(name) && draw.values(name).len() == draw.frame.height()
    })?;
    let column = draw.pick(Class::Number, |draw, name| {
        let values = draw.numbers(name);
        draw.nulls(name) == 0
            && values.first() != values.last()
            && values.first().is_some_and(|x| *x >= 0.0)
    })?;
    Some(Arguments::new([
        ("label", Argument::Column(label)),
        ("column", Argument::Column(column)),
    ]))
}

fn bars(draw: &mut Draw<'_>) -> Option<Arguments> {
    let arguments = labelled(draw)?;
    BARS.contains(&draw.frame.height()).then_some(arguments)
}

fn by_label(a: &Arguments, t: LazyFrame) -> LazyFrame {
    t.select([a.col("label"), a.col("column")])
        .sort([a.name("label")], SortMultipleOptions::default())
}

fn bar_chart() -> Operation {
    Operation::new("bar_chart", Role::Output, bars, by_label)
        .pandas(
            "import matplotlib.pyplot as plt\n\
             bars = $t.sort_values($label)\n\
             fig, ax = plt.subplots(figsize=(8, 5))\n\
             ax.bar(bars[$label].astype(str), bars[$column])\n\
             ax.set_title($title)\n\
             ax.tick_params(axis=\"x\", rotation=45)\n\
             fig.tight_layout()\n\
             fig.savefig($path)\n\
             plt.close(fig)",
        )
        .pandas("import matplotlib.pyplot as plt\nbars = $t.sort_values($label)\nplt.figure(figsize=(8, 5))\nplt.bar(bars[$label].astype(str), bars[$column])\nplt.xticks(rotation=45)\nplt.title($title)\nplt.tight_layout()\nplt.savefig($path)\nplt.close()")
        .en([
            "draw a vertical bar chart with one bar per $label (from left to right in code point order, with the names as tick labels), its height the $column, and the title $title, and save it as a PNG picture",
        ])
        .zh(["画竖直柱状图：每个$label一根柱子（从左到右按字符编码顺序，刻度标签为名称），高度为$column，标题为$title，保存为PNG图片"])
}

fn horizontal_bar_chart() -> Operation {
    Operation::new("bar_chart_horizontal", Role::Output, bars, by_label)
        .pandas(
            "import matplotlib.pyplot as plt\n\
             bars = $t.sort_values($label, ascending=False)\n\
             fig, ax = plt.subplots(figsize=(8, 6))\n\
             ax.barh(bars[$label].astype(str), bars[$column])\n\
             ax.set_title($title)\n\
             fig.tight_layout()\n\
             fig.savefig($path)\n\
             plt.close(fig)",
        )
        .pandas("import matplotlib.pyplot as plt\nbars = $t.sort_values($label, ascending=False)\nplt.figure(figsize=(8, 6))\nplt.barh(bars[$label].astype(str), bars[$column])\nplt.title($title)\nplt.tight_layout()\nplt.savefig($path)\nplt.close()")
        .en([
            "draw a horizontal bar chart with one bar per $label (from top to bottom in code point order, with the names as tick labels), its length the $column, and the title $title, and save it as a PNG picture",
        ])
        .zh(["画水平条形图：每个$label一条（从上到下按字符编码顺序，刻度标签为名称），长度为$column，标题为$title，保存为PNG图片"])
}

fn pie_chart() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let arguments = labelled(draw)?;
        let values = draw.numbers(arguments.name("column"));
        let seen = values.first()? / values.iter().sum::<f64>() >= MIN_SHARE;
        (seen && SLICES.contains(&values.len())).then_some(arguments)
    };
    // What a slice shows is its share: a column that is only scaled looks the same.
    let shares = |a: &Arguments, t: LazyFrame| {
        let size = a.col("column").cast(DataType::Float64);
        let share = size.clone() / size.sum();
        by_label(a, t).with_column(share.alias(a.name("column")))
    };
    Operation::new("pie_chart", Role::Output, draw, shares)
        .pandas(
            "import matplotlib.pyplot as plt\n\
             bars = $t.sort_values($label)\n\
             fig, ax = plt.subplots(figsize=(7, 7))\n\
             ax.pie(bars[$column], labels=bars[$label].astype(str), autopct=\"%1.1f%%\")\n\
             ax.set_title($title)\n\
             fig.savefig($path)\n\
             plt.close(fig)",
        )
        .pandas("import matplotlib.pyplot as plt\nbars = $t.sort_values($label)\nplt.figure(figsize=(7, 7))\nplt.pie(bars[$column], labels=bars[$label].astype(str), autopct=\"%1.1f%%\")\nplt.title($title)\nplt.savefig($path)\nplt.close()")
        .en([
            "draw a pie chart with one slice per $label, labeled with its name, its size the $column, and the title $title, and save it as a PNG picture",
        ])
        .zh(["画饼图：每个$label一个扇区并标上名称，大小为$column，标题为$title，保存为PNG图片"])
}

fn line_chart() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        POINTS
            .contains(&draw.frame.height())
            .then(|| Arguments::new([("column", Argument::Column(column))]))
    };
    Operation::new("line_chart", Role::Output, draw, |a, t| t.select([a.col("column")]))
        .needs_order()
        .pandas(
            "import matplotlib.pyplot as plt\n\
             bars = $t[[$column]]\n\
             fig, ax = plt.subplots(figsize=(9, 5))\n\
             ax.plot(range(1, len(bars) + 1), bars[$column].to_numpy())\n\
             ax.set_title($title)\n\
             fig.tight_layout()\n\
             fig.savefig($path)\n\
             plt.close(fig)",
        )
        .pandas("import matplotlib.pyplot as plt\nbars = $t[[$column]]\nplt.figure(figsize=(9, 5))\nplt.plot(range(1, len(bars) + 1), bars[$column].to_numpy())\nplt.title($title)\nplt.tight_layout()\nplt.savefig($path)\nplt.close()")
        .en([
            "draw a line chart of $column in the order of the rows (on the x axis the number of the row, from 1), with the title $title, and save it as a PNG picture",
        ])
        .zh(["按行的顺序画$column的折线图（横轴为行号，从1开始），标题为$title，保存为PNG图片"])
}

fn scatter_plot() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let full = |draw: &Draw<'_>, name: &str| draw.nulls(name) == 0 && draw.distinct(name) >= 5;
        let across = draw.pick(Class::Number, full)?;
        let up = draw.pick(Class::Number, |draw, name| {
            name != across && full(draw, name)
        })?;
        POINTS.contains(&draw.frame.height()).then(|| {
            Arguments::new([
                ("across", Argument::Column(across)),
                ("up", Argument::Column(up)),
            ])
        })
    };
    // A point with a missing value is not drawn.
    Operation::new("scatter_plot", Role::Output, draw, |a, t| {
        t.select([a.col("across"), a.col("up")]).drop_nulls(None)
    })
    .pandas(
        "import matplotlib.pyplot as plt\n\
         bars = $t[[$across, $up]]\n\
         fig, ax = plt.subplots(figsize=(8, 6))\n\
         ax.scatter(bars[$across], bars[$up], s=12)\n\
         ax.set_title($title)\n\
         fig.tight_layout()\n\
         fig.savefig($path)\n\
         plt.close(fig)",
    )
    .pandas("import matplotlib.pyplot as plt\nbars = $t[[$across, $up]]\nplt.figure(figsize=(8, 6))\nplt.scatter(bars[$across], bars[$up], s=12)\nplt.title($title)\nplt.tight_layout()\nplt.savefig($path)\nplt.close()")
    .en([
        "draw a scatter plot with one point per row, $across on the x axis and $up on the y axis, with the title $title, and save it as a PNG picture",
    ])
    .zh(["画散点图：每行一个点，横轴为$across，纵轴为$up，标题为$title，保存为PNG图片"])
}
