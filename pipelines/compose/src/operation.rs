//! One operation: when it may be drawn, what it means, how it is said and how it is written in code.

use polars::prelude::{DataFrame, Expr, LazyFrame};

use crate::argument::Arguments;
use crate::content::{Content, Medium};
use crate::draw::Draw;

/// What an operation is in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Keeps some rows.
    Filter,
    /// Adds or changes a column.
    Derive,
    /// Changes the shape: groups, sorts, selects, reshapes.
    Shape,
    /// Brings in another file of the task: joins, appends.
    Combine,
    /// Changes a text, a picture or a sound.
    Edit,
    /// Makes a table of a text, a picture or a sound.
    Read,
    /// Ends a task with an answer: a table with one column, whose rows are the answer.
    Answer,
    /// Ends a task with a file.
    Output,
}

/// What an operation does to the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The rows that stay keep their order.
    Keeps,
    /// The new rows have no order that the query states.
    Loses,
    /// The rows have an order that the query states, without ties.
    Sets,
}

pub(crate) type DrawArguments = Box<dyn Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync>;

type OneTable = dyn Fn(&Arguments, LazyFrame) -> LazyFrame + Send + Sync;
type TwoTables = dyn Fn(&Arguments, LazyFrame, LazyFrame) -> LazyFrame + Send + Sync;

type OfContent<T> = dyn Fn(&Arguments, &Content) -> Option<T> + Send + Sync;

/// What an operation does, on tables as polars expressions. This is the reference.
pub(crate) enum Meaning {
    OneTable(Box<OneTable>),
    /// The second table is that of the argument [`OTHER`].
    TwoTables(Box<TwoTables>),
    /// Another content of the same kind.
    Edit(Box<OfContent<Content>>),
    /// A table.
    Read(Box<OfContent<DataFrame>>),
}

/// The argument of an operation that names another file.
pub(crate) const OTHER: &str = "file";

/// The argument of an operation that names the columns from which a model predicts another one.
pub(crate) const PREDICTORS: &str = "predictors";

/// How the names of the operations begin that end with a model: one with an intercept, one through the origin.
pub(crate) const MODELS: [&str; 2] = ["linear_model_", "origin_model_"];

/// How the names of the operations begin that answer with several numbers.
pub(crate) const SEVERAL_NUMBERS: &str = "answer_numbers_";

/// One operation. `$name` in a wording or in code is the argument of this name.
pub struct Operation {
    pub name: String,
    pub role: Role,
    /// What it works on.
    pub input: Medium,
    pub order: Order,
    /// Whether the result depends on the order of the rows.
    pub needs_order: bool,
    /// Whether it compares sums, means or differences that it computes from its columns.
    pub(crate) compares_computed: bool,
    /// Draws arguments for which the operation is well defined on this table; `None` if there are none.
    pub(crate) draw: DrawArguments,
    pub(crate) meaning: Meaning,
    /// Equivalent statements in pandas; `$t` is the data frame, which they replace, and `$file` that of another file.
    /// Where the input is no table, `$source` is the text, the picture or the sound, `$input` is the path of the file, and
    /// they may use other packages.
    pub pandas: Vec<String>,
    /// Statements in plain Python; `$t` is the list of rows, each a dict, which they replace.
    pub python: Option<String>,
    /// A query in SQLite; `$t` is the table that it reads, and `$file` that of another file.
    pub sql: Option<String>,
    /// Wordings in English: a clause with an imperative, such as `keep only the rows …`.
    pub en: Vec<String>,
    /// Wordings in Chinese.
    pub zh: Vec<String>,
    /// The keyword of the dictionary, where the name does not say it.
    keyword: Option<&'static str>,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Operation {
    pub(crate) fn new(
        name: impl Into<String>,
        role: Role,
        draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
        meaning: impl Fn(&Arguments, LazyFrame) -> LazyFrame + Send + Sync + 'static,
    ) -> Self {
        let meaning = Meaning::OneTable(Box::new(meaning));
        Self::with_meaning(name.into(), role, Box::new(draw), meaning)
    }

    /// An operation on the table and another file, which is the argument [`OTHER`].
    pub(crate) fn combine(
        name: impl Into<String>,
        draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
        meaning: impl Fn(&Arguments, LazyFrame, LazyFrame) -> LazyFrame + Send + Sync + 'static,
    ) -> Self {
        let meaning = Meaning::TwoTables(Box::new(meaning));
        Self::with_meaning(name.into(), Role::Combine, Box::new(draw), meaning)
    }

    /// An operation that changes a text, a picture or a sound.
    pub(crate) fn edit(
        input: Medium,
        name: impl Into<String>,
        draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
        meaning: impl Fn(&Arguments, &Content) -> Option<Content> + Send + Sync + 'static,
    ) -> Self {
        let meaning = Meaning::Edit(Box::new(meaning));
        Self {
            input,
            ..Self::with_meaning(name.into(), Role::Edit, Box::new(draw), meaning)
        }
    }

    /// An operation that makes a table of a text, a picture or a sound: a [`Role::Read`] or a [`Role::Answer`].
    pub(crate) fn read(
        input: Medium,
        name: impl Into<String>,
        role: Role,
        draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
        meaning: impl Fn(&Arguments, &Content) -> Option<DataFrame> + Send + Sync + 'static,
    ) -> Self {
        let meaning = Meaning::Read(Box::new(meaning));
        Self {
            input,
            ..Self::with_meaning(name.into(), role, Box::new(draw), meaning)
        }
    }

    /// An operation that ends a task with the text, the picture or the sound in a file.
    pub(crate) fn save(input: Medium, name: impl Into<String>) -> Self {
        let whole = |_: &Arguments, content: &Content| Some(content.clone());
        Self {
            role: Role::Output,
            ..Self::edit(input, name, |_| Some(Arguments::default()), whole)
        }
    }

    fn with_meaning(name: String, role: Role, draw: DrawArguments, meaning: Meaning) -> Self {
        Self {
            name,
            role,
            input: Medium::Table,
            order: Order::Keeps,
            needs_order: false,
            compares_computed: false,
            draw,
            meaning,
            pandas: Vec::new(),
            python: None,
            sql: None,
            en: Vec::new(),
            zh: Vec::new(),
            keyword: None,
        }
    }

    /// Arguments for which it is well defined on a table; `None` if there are none.
    pub(crate) fn arguments(&self, mut draw: Draw<'_>) -> Option<Arguments> {
        (self.draw)(&mut draw)
    }

    /// Whether its answer is a list of names.
    pub fn is_list(&self) -> bool {
        ["answer_values", "answer_top_three"].contains(&self.name.as_str())
    }

    /// Whether its answer is several numbers.
    pub fn is_several_numbers(&self) -> bool {
        self.name.starts_with(SEVERAL_NUMBERS)
    }

    /// Whether it ends a task with a chart.
    pub fn is_chart(&self) -> bool {
        let charts = ["bar_chart", "pie_chart", "line_chart", "scatter_plot"];
        charts.iter().any(|chart| self.name.starts_with(chart))
    }

    /// Whether it ends a task with a fitted model.
    pub fn is_model(&self) -> bool {
        MODELS.iter().any(|start| self.name.starts_with(start))
    }

    /// The keyword of the dictionary that fits best.
    pub fn keyword(&self) -> &'static str {
        if let Some(keyword) = self.keyword {
            return keyword;
        }
        let starts =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| self.name.starts_with(prefix));
        match self.role {
            Role::Filter if starts(&["drop_duplicate"]) => "duplicate rows",
            Role::Filter if starts(&["filter_present", "filter_missing"]) => "missing values",
            Role::Filter if starts(&["filter_without_outliers"]) => "outliers",
            Role::Filter if starts(&["filter_largest", "filter_smallest", "filter_top"]) => "top n",
            Role::Derive if starts(&["fill_", "derive_is_missing"]) => "missing values",
            Role::Derive if starts(&["day"]) => "date parts",
            Role::Derive if starts(&["rolling", "running"]) => "rolling window",
            Role::Derive if starts(&["derive_bin", "derive_label"]) => "binning",
            Role::Derive => "derived column",
            Role::Shape if starts(&["monthly"]) => "resample",
            Role::Shape if starts(&["pivot", "cross"]) => "pivot table",
            Role::Shape if starts(&["sort"]) => "sort",
            Role::Shape if starts(&["group"]) => "group by",
            Role::Combine => "merge",
            Role::Output if starts(&["bar_chart"]) => "bar chart",
            Role::Output if starts(&["pie_chart"]) => "pie chart",
            Role::Output if starts(&["line_chart"]) => "line chart",
            Role::Output if starts(&["scatter_plot"]) => "scatter plot",
            Role::Output => "convert format",
            Role::Filter | Role::Shape | Role::Answer | Role::Edit | Role::Read => "filter",
        }
    }

    /// An operation that writes a value for each row into the column of the argument `new`.
    pub(crate) fn derive(
        name: impl Into<String>,
        draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
        value: impl Fn(&Arguments) -> Expr + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Role::Derive, draw, move |a, t| {
            t.with_column(value(a).alias(a.name("new")))
        })
    }

    pub(crate) fn counted_as(mut self, keyword: &'static str) -> Self {
        self.keyword = Some(keyword);
        self
    }

    pub(crate) fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    pub(crate) fn needs_order(mut self) -> Self {
        self.needs_order = true;
        self
    }

    pub(crate) fn compares_computed(mut self) -> Self {
        self.compares_computed = true;
        self
    }

    /// Adds an equivalent statement in pandas.
    pub(crate) fn pandas(mut self, code: impl Into<String>) -> Self {
        self.pandas.push(code.into());
        self
    }

    pub(crate) fn python(mut self, code: impl Into<String>) -> Self {
        self.python = Some(code.into());
        self
    }

    /// Adds a statement that needs no table: it is the same in pandas and in plain Python.
    pub(crate) fn code(self, code: &str) -> Self {
        let plain = self.python.clone().unwrap_or_else(|| code.to_owned());
        self.pandas(code).python(plain)
    }

    /// Adds the expression of a list of dicts, which is the table.
    pub(crate) fn rows(self, before: &str, expression: &str) -> Self {
        self.pandas(format!(
            "import pandas as pd\n{before}$t = pd.DataFrame({expression})"
        ))
        .python(format!("{before}$t = {expression}"))
    }

    pub(crate) fn sql(mut self, query: impl Into<String>) -> Self {
        self.sql = Some(query.into());
        self
    }

    pub(crate) fn en<const N: usize>(mut self, wordings: [&str; N]) -> Self {
        self.en = wordings.map(str::to_owned).into();
        self
    }

    pub(crate) fn zh<const N: usize>(mut self, wordings: [&str; N]) -> Self {
        self.zh = wordings.map(str::to_owned).into();
        self
    }
}
