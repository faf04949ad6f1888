//! The `query.task_sets` tables of a recipe: lists of questions with answers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pybench_types::task::Category;

/// Names of the built-in sets.
const WIKI_TABLE_QUESTIONS: &str = "wikitablequestions-train";
const GSM8K: &str = "gsm8k-train";
const MBPP: &str = "mbpp-train";

/// A list of questions with answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "set", rename_all = "lowercase", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "a recipe has few of them")]
pub enum TaskSetChoice {
    /// A file with one JSON object per line.
    Jsonl {
        /// Name of the set, in the column `template` of its rows: `task_set/NAME/ROW`.
        #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
        #[schemars(extend("x-expected" = "1 to 64 letters, digits, `-` or `_`"))]
        name: String,
        /// Path of the file, relative to the project root.
        path: PathBuf,
        /// Folder of the files that rows name, relative to the project root [default: the folder of `path`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<PathBuf>,
        /// Share of `query.tasks` that comes from this set, above 0 and at most 1.
        #[serde(default = "one")]
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        share: f64,
        /// How the final answer is compared with the row's.
        check: AnswerCheck,
        /// Relative tolerance of `numeric`.
        #[serde(default = "tolerance")]
        #[schemars(range(min = 0, max = 1))]
        tolerance: f64,
        /// Category of the tasks [default: `chart` with files, `software` for `tests`, `math` for `numeric` and `symbolic`, else
        /// `text`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<Category>,
        /// License of the rows and their files; an SPDX id where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        license: Option<String>,
        /// Where the rows come from, such as a URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Number of lines that may be unusable. They are counted and left out; more of them end the run.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[schemars(range(max = 1_000_000))]
        max_bad_lines: usize,
        /// Which field holds what.
        #[serde(default)]
        fields: TaskSetFields,
    },
    /// The training split of WikiTableQuestions (CC BY-SA 4.0): 14,152 questions on tables of Wikipedia. It is fetched with
    /// git at a pinned commit, or read from `$PYBENCH_SUITES/wikitablequestions`.
    #[serde(rename = "wikitablequestions-train")]
    WikiTableQuestions {
        /// As in the other sets.
        #[serde(default = "one")]
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        share: f64,
    },
    /// The training split of GSM8K (MIT): 7,473 word problems whose answer is a number. It is fetched as the set above, or read
    /// from `$PYBENCH_SUITES/gsm8k`.
    #[serde(rename = "gsm8k-train")]
    Gsm8k {
        /// As in the other sets.
        #[serde(default = "one")]
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        share: f64,
    },
    /// The training split of MBPP (CC BY 4.0) without the tasks of MBPP+: 266 functions with tests. It is fetched as the sets
    /// above, or read from `$PYBENCH_SUITES/mbpp`.
    #[serde(rename = "mbpp-train")]
    Mbpp {
        /// As in the other sets.
        #[serde(default = "one")]
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        share: f64,
    },
}

/// Fields of a row: a key, or a JSON pointer such as `/messages/0/content`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSetFields {
    /// The question.
    pub question: String,
    /// The conversation whose first turn of the user is the question, instead of `question`: a list of messages with `role`
    /// and `content`, or `from` and `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The answer, or the tests.
    pub answer: String,
    /// Python statements that are run before each `assert` statement of `tests`: a text or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// A path or a list of paths, relative to `folder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Name of the row; unique in the file [default: its line].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// License of the row, instead of the set's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Where the row comes from, instead of the set's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Default for TaskSetFields {
    fn default() -> Self {
        Self {
            question: "question".into(),
            conversation: None,
            answer: "answer".into(),
            setup: None,
            files: None,
            id: None,
            license: None,
            source: None,
        }
    }
}

/// How a final answer is compared with that of a row. All but `judge` are decided by executed code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnswerCheck {
    /// A set of texts, numbers and dates, as WikiTableQuestions defines it; the row has one value or a list.
    Denotation,
    /// A number. The row has a number, or a text that is one or ends with `#### 42`.
    Numeric,
    /// A text, without regard to case, white space and Markdown.
    Text,
    /// A mathematical answer in any form: numbers, expressions, equations, intervals, sets, matrices. The row has it in LaTeX
    /// or plain notation, or a text whose last `\boxed{...}` holds it.
    Symbolic,
    /// A program that the tests run with inputs, or whose functions they call. The row has `{"inputs": [...], "outputs":
    /// [...]}`, with `fn_name` for a function, a list of `{"stdin": ..., "stdout": ...}`, or a list of Python's `assert`
    /// statements.
    Tests,
    /// None: the judge of `grade.judge` decides.
    Judge,
}

impl TaskSetChoice {
    /// Share of the tasks of the run.
    pub fn share(&self) -> f64 {
        match self {
            Self::Jsonl { share, .. }
            | Self::WikiTableQuestions { share }
            | Self::Gsm8k { share }
            | Self::Mbpp { share } => *share,
        }
    }

    /// Name of the set in rows.
    pub fn name(&self) -> &str {
        match self {
            Self::Jsonl { name, .. } => name,
            Self::WikiTableQuestions { .. } => WIKI_TABLE_QUESTIONS,
            Self::Gsm8k { .. } => GSM8K,
            Self::Mbpp { .. } => MBPP,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn tolerance() -> f64 {
    1e-6
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}
