//! Tests of a program: inputs with outputs, or calls of its functions.

use serde_json::{Map, Value};

/// Maximum number of tests; further tests of a row are not used.
const MAX_TESTS: usize = 20;
/// Maximum length of the tests of a row, in bytes.
const MAX_BYTES: usize = 200_000;

/// The tests of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProgramTests {
    /// The program reads an input and writes an output.
    Runs(Vec<Run>),
    /// Python's `assert` statements, and what is run before each.
    Asserts { setup: String, tests: Vec<String> },
    /// Lists of arguments of one function, and the results.
    Results {
        function: String,
        arguments: Vec<Vec<Value>>,
        results: Vec<Value>,
    },
}

/// An input of a program and the expected output.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(super) struct Run {
    pub args: Vec<String>,
    pub stdin: String,
    pub stdout: String,
}

impl ProgramTests {
    /// APPS's object, also as JSON text, a list of runs, or MBPP's list of assertions.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_json(value: &Value) -> Result<Self, String> {
        let parsed: Value;
        let value = match value {
            Value::String(text) => {
                parsed = serde_json::from_str(text)
                    .map_err(|error| format!("the text is no JSON: {error}"))?;
                &parsed
            }
            other => other,
        };
        let tests = match value {
            Value::Object(tests) if tests.get("fn_name").is_some_and(|name| !name.is_null()) => {
                results(tests)?
            }
            Value::Object(tests) => Self::Runs(paired(tests.get("inputs"), tests.get("outputs"))?),
            Value::Array(items) if items.iter().any(Value::is_string) => asserts(items)?,
            Value::Array(items) => Self::Runs(items.iter().map(run).collect::<Result<_, _>>()?),
            _ => {
                return Err(
                    "write {\"inputs\": […], \"outputs\": […]}, a list of runs, or a list of `assert` statements".into(),
                );
            }
        };
        tests.bounded()
    }

    /// Whether they call functions instead of running the program.
    pub(super) fn call_functions(&self) -> bool {
        !matches!(self, Self::Runs(_))
    }

    /// The first tests, which must not be too long.
    fn bounded(mut self) -> Result<Self, String> {
        let length = |value: &Value| value.to_string().len();
        let (count, bytes) = match &mut self {
            Self::Runs(runs) => {
                runs.truncate(MAX_TESTS);
                let bytes = runs.iter().map(|run| run.stdin.len() + run.stdout.len());
                (runs.len(), bytes.sum::<usize>())
            }
            Self::Asserts { tests, .. } => {
                tests.truncate(MAX_TESTS);
                (tests.len(), tests.iter().map(String::len).sum())
            }
            Self::Results {
                arguments, results, ..
            } => {
                arguments.truncate(MAX_TESTS);
                results.truncate(MAX_TESTS);
                let bytes = arguments.iter().flatten().chain(results.iter()).map(length);
                (arguments.len(), bytes.sum())
            }
        };
        match (count, bytes) {
            (0, _) => Err("it has no test".into()),
            (_, bytes) if bytes > MAX_BYTES => Err(format!(
                "the tests have {bytes} bytes; at most {MAX_BYTES} are allowed"
            )),
            _ => Ok(self),
        }
    }
}

/// MBPP's tests.
fn asserts(items: &[Value]) -> Result<ProgramTests, String> {
    let statement = |item: &Value| {
        let text = item
            .as_str()
            .map(str::trim)
            .filter(|text| text.starts_with("assert"));
        text.map(str::to_owned)
    };
    let tests: Option<Vec<String>> = items.iter().map(statement).collect();
    Ok(ProgramTests::Asserts {
        setup: String::new(),
        tests: tests.ok_or("a test is no `assert` statement of Python")?,
    })
}

/// APPS's tests of a function.
fn results(tests: &Map<String, Value>) -> Result<ProgramTests, String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let function = tests.get("fn_name").and_then(Value::as_str);
    let function = function.filter(|name| {
        name.chars().all(is_letter)
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    });
    let (inputs, outputs) = lists(tests.get("inputs"), tests.get("outputs"))?;
    let arguments = inputs.iter().map(|input| input.as_array().cloned());
    Ok(ProgramTests::Results {
        function: function
            .ok_or("`fn_name` is no name of a function")?
            .to_owned(),
        arguments: arguments
            .collect::<Option<_>>()
            .ok_or("with `fn_name`, an input is a list of arguments")?,
        results: outputs.to_vec(),
    })
}

/// Lists of equal length.
fn lists<'a>(
    inputs: Option<&'a Value>,
    outputs: Option<&'a Value>,
) -> Result<(&'a [Value], &'a [Value]), String> {
    let (Some(Value::Array(inputs)), Some(Value::Array(outputs))) = (inputs, outputs) else {
        return Err("`inputs` and `outputs` must be lists".into());
    };
    match inputs.len() == outputs.len() {
        true => Ok((inputs, outputs)),
        false => Err(format!(
            "there are {} inputs and {} outputs; each input needs its output",
            inputs.len(),
            outputs.len()
        )),
    }
}

fn paired(inputs: Option<&Value>, outputs: Option<&Value>) -> Result<Vec<Run>, String> {
    let (inputs, outputs) = lists(inputs, outputs)?;
    let pairs = inputs.iter().zip(outputs);
    let runs = pairs.map(|(stdin, stdout)| {
        let run = Run {
            args: Vec::new(),
            stdin: lines(stdin)?,
            stdout: lines(stdout)?,
        };
        Some(run)
    });
    let runs: Option<Vec<_>> = runs.collect();
    runs.ok_or_else(|| "an input or output is neither a text nor a list of lines".into())
}

/// A text, or a list of lines.
pub(super) fn lines(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            Some(lines?.join("\n"))
        }
        _ => None,
    }
}

fn run(value: &Value) -> Result<Run, String> {
    let text = |key: &str| match value.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` of a run is no text")),
    };
    let args = value
        .get("args")
        .and_then(Value::as_array)
        .map(Vec::as_slice);
    let args = args.unwrap_or_default().iter().map(plain);
    Ok(Run {
        args: args
            .collect::<Option<_>>()
            .ok_or("`args` of a run is no list of texts")?,
        stdin: text("stdin")?.unwrap_or_default(),
        stdout: text("stdout")?.ok_or("a run has no `stdout`")?,
    })
}

/// A text, number or truth value as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tests_are_inputs_with_outputs() {
        let apps = json!({"inputs": ["1\n", ["2", "3"]], "outputs": ["2\n", "5"]});
        let run = |stdin: &str, stdout: &str| Run {
            args: vec![],
            stdin: stdin.into(),
            stdout: stdout.into(),
        };
        let expected = ProgramTests::Runs(vec![run("1\n", "2\n"), run("2\n3", "5")]);
        assert_eq!(ProgramTests::of_json(&apps), Ok(expected.clone()));
        let text = Value::String(apps.to_string());
        assert_eq!(ProgramTests::of_json(&text), Ok(expected));
        let listed = json!([{"args": [1], "stdout": "2"}]);
        let Ok(ProgramTests::Runs(runs)) = ProgramTests::of_json(&listed) else {
            panic!()
        };
        assert_eq!((runs[0].args.len(), runs[0].stdin.as_str()), (1, ""));
        for (bad, part) in [
            (
                json!({"inputs": [1], "outputs": []}),
                "1 inputs and 0 outputs",
            ),
            (json!({"inputs": [1], "outputs": [1]}), "neither a text nor"),
            (json!({"fn_name": "f"}), "must be lists"),
            (
                json!({"fn_name": "f(", "inputs": [[1]], "outputs": [1]}),
                "no name of a function",
            ),
            (
                json!({"fn_name": "f", "inputs": [1], "outputs": [1]}),
                "a list of arguments",
            ),
            (json!(["assert f(1) == 2", "f(2)"]), "no `assert` statement"),
            (json!(["assert f(1) == 2", {"stdout": "1"}]), "no `assert`"),
            (json!([{"stdin": "1"}]), "no `stdout`"),
            (json!([]), "no test"),
            (json!("x"), "no JSON"),
        ] {
            let error = ProgramTests::of_json(&bad).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn tests_call_functions() {
        let asserts = json!([" assert f(1) == 2", "assert f(2) == 4"]);
        let expected = ProgramTests::Asserts {
            setup: String::new(),
            tests: vec!["assert f(1) == 2".into(), "assert f(2) == 4".into()],
        };
        assert_eq!(ProgramTests::of_json(&asserts), Ok(expected));
        let apps = json!({"fn_name": "f", "inputs": [[1, "a"]], "outputs": [[2]]}).to_string();
        let expected = ProgramTests::Results {
            function: "f".into(),
            arguments: vec![vec![json!(1), json!("a")]],
            results: vec![json!([2])],
        };
        assert!(expected.call_functions());
        assert_eq!(ProgramTests::of_json(&json!(apps)), Ok(expected));
        let null = json!({"fn_name": null, "inputs": ["1"], "outputs": ["2"]});
        assert!(!ProgramTests::of_json(&null).unwrap().call_functions());
    }
}
