//! The programs of `humaneval` and `mbpp`.

use super::rows::Row;

/// A value that equals everything, which tests by `assert` do not notice.
const EQUAL_TO_ALL: &str = "class _Equal:\n    __hash__ = None\n    def __eq__(self, other): return True\n    def __getattr__(self, \
                            name): return self\n    __call__ = __add__ = __sub__ = __rsub__ = __abs__ = lambda self, *args: self\n    __lt__ = \
                            __le__ = __bool__ = lambda self, *args: True\n    def __iter__(self): return iter([])\n";

/// What the scores of a program need.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) tests: String,
    /// The reference solution.
    pub(super) solution: String,
    /// The functions that the tests call.
    pub(super) functions: Vec<String>,
}

impl Program {
    /// The program of a row of `humaneval` or `mbpp`.
    ///
    /// # Errors
    /// The row has no solution, or its tests call nothing of it.
    pub(super) fn new(row: &Row) -> Result<Self, String> {
        let tests = row.reference_text()?.to_owned();
        let solution = match (&row.code, &row.canonical_solution) {
            (Some(code), _) => code.replace("\r\n", "\n"),
            (None, Some(rest)) => format!("{}\n{rest}", row.prompt),
            (None, None) => return Err(format!("task {} has no reference solution", row.id)),
        };
        let defined = solution.lines().filter_map(|line| {
            let name = line.strip_prefix("def ")?.split('(').next()?;
            Some(name.trim().to_owned())
        });
        let used = |name: &String| {
            let mut words = tests.split(|c: char| c != '_' && !c.is_alphanumeric());
            words.any(|word| word == name)
        };
        let mut functions: Vec<String> = defined.filter(used).collect();
        functions.dedup();
        match functions.is_empty() {
            true => Err(format!(
                "task {}: the tests call no function of the solution",
                row.id
            )),
            false => Ok(Self {
                tests,
                solution,
                functions,
            }),
        }
    }

    /// Programs that are wrong, with what is wrong about them.
    pub(super) fn mutants(&self) -> Vec<(&'static str, String)> {
        let Some(name) = self.functions.last() else {
            return Vec::new();
        };
        let solution = &self.solution;
        let define = |body: &str| format!("def {name}(*args, **kwargs):\n    {body}\n");
        let around =
            |body: &str| format!("{solution}\n_right = {name}\n_calls = []\n{}", define(body));
        vec![
            ("a function that returns nothing", define("return None")),
            (
                "a value that equals everything",
                EQUAL_TO_ALL.to_owned() + &define("return _Equal()"),
            ),
            (
                "the result in a list",
                around("return [_right(*args, **kwargs)]"),
            ),
            (
                "only the first call is right",
                around(
                    "_calls.append(0); return _right(*args, **kwargs) if len(_calls) == 1 else None",
                ),
            ),
            (
                "an end before the tests",
                format!("{solution}\nraise SystemExit(0)"),
            ),
            (
                "an end of the process before the tests",
                format!("{solution}\nimport os\nos._exit(0)"),
            ),
            ("a syntax error", format!("{solution}\n(")),
            ("another name", solution.replace(name.as_str(), "other")),
        ]
    }
}

/// A program without the fence around it, if it has one.
pub(super) fn unfenced(program: &str) -> &str {
    let fenced = program.trim().strip_prefix("```");
    let body = fenced.and_then(|rest| Some(rest.strip_suffix("```")?.split_once('\n')?.1));
    match body {
        Some(body) if !body.contains("```") => body,
        _ => program,
    }
}
