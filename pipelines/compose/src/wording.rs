//! Says a graph as a request: a style, a clause for each step, and how the answer is to be given.

use pybench_types::held_out::HeldOutRule;
use pybench_types::task::Language;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::argument::{Notation, fill};
use crate::content::Medium;
use crate::graph::{Graph, GraphError};
use crate::imprecise;
use crate::operations;

/// How the answer is to be given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    /// After this label, in the last line of the answer.
    Line { marker: String, form: Form },
    /// A file at this path, relative to the workspace.
    File { path: String, title: String },
    /// A program at this path that prints what an answer would state.
    Program { path: String, form: Form },
}

/// What stands after the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Integer,
    /// A number with at least so many decimals.
    Decimals(u8),
    /// Several numbers, perhaps with at least so many decimals.
    Numbers {
        count: usize,
        decimals: Option<u8>,
    },
    Name,
    List,
}

/// What the query says besides its steps.
pub(crate) struct Request<'a> {
    pub graph: &'a Graph,
    /// Path of the file, such as `./data/cars.csv`.
    pub path: &'a str,
    pub result: &'a Ending,
    /// Whether to say what becomes of missing values.
    pub missing: bool,
    pub language: Language,
    /// Wordings that are not used.
    pub avoided: &'a HeldOutRule,
}

/// A query, and the names of the wordings that it was put together from.
pub(crate) struct Query {
    pub text: String,
    pub wordings: Vec<String>,
}

/// Whether a name is that of one of several wordings: of an operation, such as `filter_above/en/1`, of a request, such as
/// `style/en/3`, or of what is said less precisely, such as `imprecise/en/0`.
pub fn is_wording(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let &[of, language, number] = parts.as_slice() else {
        return false;
    };
    let operation = operations::named(of);
    let count = match (of, language) {
        ("style", "en") => STYLES_EN.len(),
        ("style", "zh") => STYLES_ZH.len(),
        (imprecise::NAME, "en" | "zh") => imprecise::KINDS,
        (_, "en") => operation.map_or(0, |operation| operation.en.len()),
        (_, "zh") => operation.map_or(0, |operation| operation.zh.len()),
        _ => 0,
    };
    count > 1 && number.parse().is_ok_and(|number: usize| number < count)
}

/// One of several wordings that is not held out, if there is such a one; and its name, if there are several.
fn worded<'a>(
    of: &str,
    wordings: &[&'a str],
    request: &Request<'_>,
    rng: &mut ChaCha8Rng,
) -> (&'a str, Option<String>) {
    let language = match request.language {
        Language::En => "en",
        Language::Zh => "zh",
    };
    let name = |at: usize| format!("{of}/{language}/{at}");
    let all = 0..wordings.len();
    let used: Vec<usize> = match wordings.len() {
        1 => vec![0],
        _ => all
            .filter(|at| !request.avoided.wording(&name(*at)))
            .collect(),
    };
    let at = used.choose(rng).copied().unwrap_or(0);
    let text = wordings.get(at).copied().unwrap_or_default();
    (text, (wordings.len() > 1).then(|| name(at)))
}

const STYLES_EN: [&str; 9] = [
    "Take $path and work through these steps:\n$numbered",
    "In $path, $chain. $rest",
    "Hi! I have a question about $path. Could you $chain? $rest Thanks!",
    "$context The file is $path. $sentences $rest",
    "$path: $semicolons. $rest",
    "I need one result from $path. $sentences $rest",
    "Please process $path as follows:\n$bullets",
    "Working with $path, $chain. $rest",
    "$context Please open $path and $chain. $rest",
];
const STYLES_ZH: [&str; 5] = [
    "请按以下步骤处理 $path：\n$numbered",
    "请读取 $path，$chain。$rest",
    "$context文件是 $path。请$chain。$rest",
    "你好，我有一个关于 $path 的问题：请$chain。$rest 谢谢！",
    "处理 $path：\n$bullets",
];
/// Why someone asks; the first ones suit any file, the others tables only.
const CONTEXTS_EN: [&str; 10] = [
    "I am cleaning up an old analysis and want to reproduce it.",
    "This is for a short note to the team.",
    "I am writing a report and need to be sure of the details.",
    "A colleague and I got different results, so I want an independent one.",
    "We received this export from a partner.",
    "My manager asked me to double-check a number before the meeting.",
    "We are preparing the quarterly review and one figure is still open.",
    "For an exercise in my statistics course I have to do the following.",
    "The dashboard shows something odd, so I want to compute it by hand.",
    "I am comparing suppliers and need a quick look at the numbers.",
];
const ANY_EN: usize = 5;
/// As [`CONTEXTS_EN`].
const CONTEXTS_ZH: [&str; 5] = [
    "这是合作方发来的数据。",
    "同事和我算的结果不一样，想请你独立算一次。",
    "我在整理一份旧的分析，想重新算一遍。",
    "开会之前我想核对一个数字。",
    "我们在准备季度总结，还差一个结果。",
];
const ANY_ZH: usize = 3;

/// The query.
///
/// # Errors
/// [`GraphError::Unknown`] for a step without an operation.
pub(crate) fn query(request: &Request<'_>, rng: &mut ChaCha8Rng) -> Result<Query, GraphError> {
    let language = request.language;
    let mut clauses = Vec::new();
    let mut names = Vec::new();
    for step in &request.graph.0 {
        let operation = step.operation()?;
        let (wordings, notation) = match language {
            Language::En => (&operation.en, Notation::English),
            Language::Zh => (&operation.zh, Notation::Chinese),
        };
        let wordings: Vec<&str> = wordings.iter().map(String::as_str).collect();
        let (wording, name) = worded(&operation.name, &wordings, request, rng);
        names.extend(name);
        let title = match request.result {
            Ending::File { title, .. } => title.as_str(),
            Ending::Line { .. } | Ending::Program { .. } => "",
        };
        let title = match language {
            Language::En => format!("\"{title}\""),
            Language::Zh => format!("“{title}”"),
        };
        clauses.push(fill(
            wording,
            &step.arguments,
            notation,
            &[("title", &title)],
        ));
    }
    let rest = rest(request, rng);
    let (styles, contexts, any): (&[&str], &[&str], usize) = match language {
        Language::En => (&STYLES_EN, &CONTEXTS_EN, ANY_EN),
        Language::Zh => (&STYLES_ZH, &CONTEXTS_ZH, ANY_ZH),
    };
    let first = request
        .graph
        .0
        .first()
        .map(|step| step.operation())
        .transpose()?;
    let contexts = match first.is_none_or(|operation| operation.input == Medium::Table) {
        true => contexts,
        false => &contexts[..any],
    };
    let (style, name) = worded("style", styles, request, rng);
    names.extend(name);
    let context = contexts.choose(rng).copied().unwrap_or_default();
    let parts = [
        ("path", request.path.to_owned()),
        ("context", context.to_owned()),
        (
            "numbered",
            listed(&clauses, &rest, language, |n| format!("{n}. ")),
        ),
        (
            "bullets",
            listed(&clauses, &rest, language, |_| "- ".to_owned()),
        ),
        ("chain", chain(&clauses, language, rng)),
        ("sentences", sentences(&clauses, rng)),
        ("semicolons", clauses.join("; ")),
        ("rest", rest.clone()),
    ];
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(key, text)| (*key, text.as_str()))
        .collect();
    let text = fill(
        style,
        &crate::argument::Arguments::default(),
        Notation::English,
        &parts,
    );
    Ok(Query {
        text,
        wordings: names,
    })
}

/// What is said after the steps: missing values, precision, and where the answer goes.
fn rest(request: &Request<'_>, rng: &mut ChaCha8Rng) -> String {
    let en = request.language == Language::En;
    let mut rest = Vec::new();
    if request.missing {
        let said: &[&str] = match en {
            true => &[
                "Missing values do not count in any statistic, and no comparison with a missing value holds.",
                "Ignore missing values in statistics, and treat comparisons with a missing value as false.",
            ],
            false => &["缺失值不参与统计，与缺失值的比较一律视为不成立。"],
        };
        rest.extend(said.choose(rng).map(|text| (*text).to_owned()));
    }
    match request.result {
        Ending::File { path, .. } => {
            let said: &[&str] = match en {
                true => &[
                    "Put the file at ./$path.",
                    "The file should be ./$path.",
                    "Save it to ./$path.",
                ],
                false => &["文件保存到 ./$path。", "输出文件为 ./$path。"],
            };
            let text = said.choose(rng).copied().unwrap_or_default();
            rest.push(text.replace("$path", path));
            if ["csv", "tsv", "xlsx", "json", "jsonl", "parquet", "sqlite"]
                .iter()
                .any(|kind| path.ends_with(kind))
            {
                rest.push(if en {
                    "Do not round any number.".into()
                } else {
                    "数值不要取整。".into()
                });
            }
        }
        Ending::Line { marker, form } => rest.push(last_line(marker, *form, en, rng)),
        Ending::Program { path, form } => rest.push(program(path, *form, en)),
    }
    rest.join(if en { " " } else { "" })
}

/// What a program reads and prints.
fn program(path: &str, form: Form, en: bool) -> String {
    let decimals = match form {
        Form::Decimals(decimals) => Some(decimals),
        Form::Numbers { decimals, .. } => decimals,
        Form::Integer | Form::Name | Form::List => None,
    };
    let is_several = matches!(form, Form::Numbers { .. });
    match en {
        true => {
            let what = match is_several {
                true => "the numbers in one line, separated by a comma and a space",
                false => "the number",
            };
            let precision = decimals.map_or_else(String::new, |decimals| {
                format!(", rounded to exactly {decimals} decimals")
            });
            format!(
                "Do not state the result: write a Python program ./{path} that does this for any table with the same columns. \
                 It reads the table from standard input (CSV in UTF-8 with commas and a header; the cell of a missing value is \
                 empty) and prints nothing but {what}{precision}."
            )
        }
        false => {
            let what = match is_several {
                true => "这些数（写在一行，以逗号和一个空格分隔）",
                false => "这个数",
            };
            let precision = decimals.map_or_else(String::new, |decimals| {
                format!("，四舍五入并恰好保留 {decimals} 位小数")
            });
            format!(
                "不要直接给出结果：请编写 Python 程序 ./{path}，对任何列相同的表完成这些步骤。程序从标准输入读取表格\
                 （UTF-8 编码、逗号分隔、带表头的 CSV，缺失值的单元格为空），只输出{what}{precision}。"
            )
        }
    }
}

fn last_line(marker: &str, form: Form, en: bool, rng: &mut ChaCha8Rng) -> String {
    let example = match form {
        Form::Integer | Form::Decimals(_) => "N".to_owned(),
        Form::Numbers { count, .. } => {
            let numbers: Vec<String> = (1..=count).map(|at| format!("N{at}")).collect();
            numbers.join(", ")
        }
        Form::Name => "NAME".to_owned(),
        Form::List => "A, B, C".to_owned(),
    };
    let precision = match (form, en) {
        (Form::Decimals(decimals), true) => format!(", N with at least {decimals} decimals"),
        (Form::Decimals(decimals), false) => format!("，至少保留 {decimals} 位小数"),
        (Form::Numbers { decimals, .. }, _) => several(decimals, en),
        _ => String::new(),
    };
    match en {
        true => {
            let start = [
                "End your answer with a line",
                "The last line of your answer must be",
                "Finish with a line",
            ];
            let start = start.choose(rng).copied().unwrap_or_default();
            format!("{start} `{marker}: {example}`{precision}.")
        }
        false => format!("回答的最后一行写 `{marker}: {example}`{precision}。"),
    }
}

/// How several numbers are written. Commas separate them, so none stands between thousands.
fn several(decimals: Option<u8>, en: bool) -> String {
    match (decimals, en) {
        (Some(decimals), true) => format!(
            ", each number with at least {decimals} decimals and without a sign between thousands"
        ),
        (None, true) => ", the numbers without a sign between thousands".to_owned(),
        (Some(decimals), false) => {
            format!("，每个数至少保留 {decimals} 位小数，不加千位分隔符")
        }
        (None, false) => "，不加千位分隔符".to_owned(),
    }
}

fn listed(
    clauses: &[String],
    rest: &str,
    language: Language,
    bullet: impl Fn(usize) -> String,
) -> String {
    let stop = if language == Language::En { "." } else { "。" };
    let lines = clauses.iter().enumerate();
    let lines =
        lines.map(|(at, clause)| format!("{}{}{stop}", bullet(at + 1), capitalized(clause)));
    let lines: Vec<String> = lines.collect();
    format!("{}\n{rest}", lines.join("\n"))
}

/// The clauses as one sentence, without its stop.
fn chain(clauses: &[String], language: Language, rng: &mut ChaCha8Rng) -> String {
    if language == Language::Zh {
        let mut said = String::new();
        for (at, clause) in clauses.iter().enumerate() {
            let before = match at {
                0 => "先",
                at if at + 1 == clauses.len() => "，最后",
                _ => "，再",
            };
            said.push_str(if clauses.len() == 1 { "" } else { before });
            said.push_str(clause);
        }
        return said;
    }
    let mut said = String::new();
    for (at, clause) in clauses.iter().enumerate() {
        let before = match at {
            0 => "",
            at if at + 1 == clauses.len() => {
                [", and finally ", ", and then ", ", and "][rng.random_range(0..3)]
            }
            _ => [", then ", ", after that ", ", next "][rng.random_range(0..3)],
        };
        said.push_str(before);
        said.push_str(clause);
    }
    said
}

/// The clauses as sentences in English.
fn sentences(clauses: &[String], rng: &mut ChaCha8Rng) -> String {
    let mut said = Vec::new();
    for (at, clause) in clauses.iter().enumerate() {
        let before = match at {
            0 => ["First, ", "To begin with, ", ""][rng.random_range(0..3)],
            at if at + 1 == clauses.len() => {
                ["Finally, ", "With what is left, ", "In the end, "][rng.random_range(0..3)]
            }
            _ => ["Then ", "Next, ", "After that, ", ""][rng.random_range(0..4)],
        };
        said.push(capitalized(&format!("{before}{clause}.")));
    }
    said.join(" ")
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
