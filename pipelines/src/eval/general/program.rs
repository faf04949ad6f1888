//! A program against the file's own solution: the same inputs, two sessions, compared by the host.

use std::io::Write;

use pybench::id::Digest;
use pybench::interpreter::{Interpreter, InterpreterError, Limits, SessionSpec};
use serde_json::{Value, json};

use super::Found;
use crate::eval::record::cut;

/// Calls the function, in the sandbox.
const DRIVER: &str = include_str!("driver.py");
/// Seconds that one call may take, and all of them.
const CALL_SECONDS: f64 = 2.0;
const SECONDS: u64 = 120;

/// Digest of what decides.
pub(super) fn digest() -> Digest {
    Digest::of_json(&(DRIVER, CALL_SECONDS, SECONDS))
}

/// A task of EvalPlus.
#[derive(Clone, Debug)]
pub struct Program {
    /// The beginning that is to be completed.
    pub prompt: String,
    /// A program that is right.
    pub solution: String,
    /// The function that is called.
    pub entry: String,
    /// What it is called with.
    pub inputs: Inputs,
    /// Absolute tolerance of floats; 0: EvalPlus' 1e-6 where floats are expected.
    pub tolerance: f64,
}

/// Arguments of each call.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// As values.
    Listed {
        /// Those of the original tests.
        base: Vec<Vec<Value>>,
        /// Those that EvalPlus added.
        plus: Vec<Vec<Value>>,
    },
    /// As a Python expression, all of them.
    Source(String),
}

/// The base tests, and all tests: two findings; where the inputs do not tell them apart, one. An error, in
/// words, is no verdict on the model.
///
/// Inputs on which the file's own solution fails are left out, and it is an error if it fails on all.
pub async fn run_program(
    program: &Program,
    reply: &str,
    interpreter: &dyn Interpreter,
) -> Result<Vec<Found>, String> {
    let inputs = match &program.inputs {
        Inputs::Listed { base, plus } => json!(base.iter().chain(plus).collect::<Vec<_>>()),
        Inputs::Source(source) => json!(source),
    };
    let call = json!({"entry": program.entry, "inputs": inputs, "seconds": CALL_SECONDS});
    let expected = call_all(&program.solution, &call, interpreter).await?;
    let expected = expected.ok_or("the file's own solution does not end")?;
    let right = |at: &usize| expected.get(*at).is_some_and(|value| value[0] != "!");
    let usable: Vec<usize> = (0..expected.len()).filter(right).collect();
    if usable.is_empty() {
        return Err("the file's own solution fails on every input".to_owned());
    }
    let source = source(&program.prompt, &program.entry, reply);
    let found = call_all(&source, &call, interpreter)
        .await?
        .unwrap_or_default();
    let wrong = |at: &&usize| {
        let (expected, found) = (&expected[**at], found.get(**at));
        !found.is_some_and(|found| equal(expected, found, program.tolerance, 0))
    };
    let say = |at: Option<&usize>| match at {
        None => (true, String::new(), String::new()),
        Some(at) => {
            let found = found
                .get(*at)
                .map_or("nothing".to_owned(), Value::to_string);
            let input = match inputs.get(*at) {
                Some(input) => cut(&input.to_string(), 500),
                None => format!("input {}", at + 1),
            };
            (
                false,
                format!("{} of {input}", cut(&expected[*at].to_string(), 500)),
                cut(&found, 500),
            )
        }
    };
    let all = say(usable.iter().find(wrong));
    Ok(match &program.inputs {
        Inputs::Source(_) => vec![all],
        Inputs::Listed { base, .. } => {
            let mut first = usable.iter().filter(|at| **at < base.len());
            vec![say(first.find(wrong)), all]
        }
    })
}

/// The last fenced block that defines the function; a bare completion goes behind the prompt.
fn source(prompt: &str, entry: &str, reply: &str) -> String {
    let blocks = reply.split("```").skip(1).step_by(2);
    let blocks = blocks.map(|block| match block.split_once('\n') {
        Some((language, code)) if language.trim().chars().all(char::is_alphanumeric) => code,
        _ => block,
    });
    let defines = |code: &&str| code.contains(&format!("def {entry}"));
    let blocks: Vec<_> = blocks.collect();
    match blocks.iter().rfind(|code| defines(code)) {
        Some(code) => (*code).to_owned(),
        None if reply.contains(&format!("def {entry}")) => reply.to_owned(),
        None => format!("{prompt}{}", blocks.last().copied().unwrap_or(reply)),
    }
}

/// What the program returned for each input; `None` where it did not come to an end by itself.
async fn call_all(
    source: &str,
    call: &Value,
    interpreter: &dyn Interpreter,
) -> Result<Option<Vec<Value>>, String> {
    let file = |text: &str| {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(text.as_bytes())?;
        Ok::<_, std::io::Error>(file)
    };
    let io = |error: std::io::Error| error.to_string();
    let (program, call) = (
        file(source).map_err(io)?,
        file(&call.to_string()).map_err(io)?,
    );
    let spec = SessionSpec {
        inputs: [("data/program.py", &program), ("data/call.json", &call)]
            .map(|(path, file)| (path.to_owned(), file.path().to_owned()))
            .into(),
        limits: Limits {
            cell_seconds: SECONDS,
            output_files: 1,
            output_mib: 64,
            ..Limits::default()
        },
        ..SessionSpec::default()
    };
    let failed = |error: InterpreterError| error.to_string();
    let mut session = interpreter.start(spec).await.map_err(failed)?;
    let seen = session.execute(DRIVER).await;
    let collected = session.read_outputs().await;
    session.close().await.map_err(failed)?;
    seen.map_err(failed)?;
    let collected = collected.map_err(failed)?;
    let results = collected
        .files
        .iter()
        .find(|f| f.path == "output/results.json");
    Ok(results.and_then(|file| serde_json::from_slice(&file.bytes).ok()))
}

/// Equal as Python has it, floats within tolerance as EvalPlus has it.
fn equal(expected: &Value, found: &Value, tolerance: f64, depth: usize) -> bool {
    let (a, b) = (&expected[0], &found[0]);
    if depth > 30 || *a == "!" || *b == "!" {
        return false;
    }
    if let (Some(x), Some(y)) = (number(expected), number(found)) {
        let float = *a == "f" || *b == "f";
        return match float {
            true => close(x, y, tolerance),
            false => expected[1] == found[1] || (x == y && *a != *b),
        };
    }
    if a != b {
        return false;
    }
    match (&expected[1], &found[1]) {
        (Value::Array(x), Value::Array(y)) if *a == "d" => {
            let pair = |(x, y): (&Value, &Value)| {
                equal(&x[0], &y[0], tolerance, depth + 1)
                    && equal(&x[1], &y[1], tolerance, depth + 1)
            };
            x.len() == y.len() && x.iter().zip(y).all(pair)
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len()
                && x.iter()
                    .zip(y)
                    .all(|(x, y)| equal(x, y, tolerance, depth + 1))
        }
        _ => expected == found,
    }
}

fn number(value: &Value) -> Option<f64> {
    match (value[0].as_str()?, &value[1]) {
        ("b", Value::Bool(flag)) => Some(f64::from(u8::from(*flag))),
        ("i" | "f", Value::String(text)) => text.parse().ok(),
        _ => None,
    }
}

fn close(x: f64, y: f64, tolerance: f64) -> bool {
    let tolerance = if tolerance == 0.0 { 1e-6 } else { tolerance };
    // Of what is infinite any share is infinite, too.
    let near = || (x - y).abs() <= tolerance + 1e-7 * x.abs();
    x == y || (x.is_nan() && y.is_nan()) || (x.is_finite() && y.is_finite() && near())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_as_python_has_it() {
        let same = |a: Value, b: Value| equal(&a, &b, 0.0, 0);
        assert!(
            same(json!(["i", "1"]), json!(["f", "1.0"]))
                && same(json!(["b", true]), json!(["i", "1"]))
        );
        assert!(same(json!(["f", "0.1"]), json!(["f", "0.10000001"])));
        assert!(same(json!(["f", "nan"]), json!(["f", "nan"])));
        assert!(!same(json!(["f", "0.1"]), json!(["f", "0.2"])));
        assert!(same(json!(["f", "inf"]), json!(["f", "inf"])));
        for other in ["6.0", "-inf", "nan"] {
            assert!(!same(json!(["f", "inf"]), json!(["f", other])), "{other}");
        }
        assert!(
            !same(json!(["l", [["i", "1"]]]), json!(["t", [["i", "1"]]])),
            "a list is no tuple"
        );
        assert!(
            !same(json!(["!", "E"]), json!(["!", "E"])),
            "two failures are no answer"
        );
        let (a, b) = (
            json!(["i", "9007199254740993"]),
            json!(["i", "9007199254740992"]),
        );
        assert!(!same(a, b), "integers are exact");
        assert!(!same(json!(["n"]), json!(["i", "0"])) && same(json!(["n"]), json!(["n"])));
    }

    #[test]
    fn programs_are_found_in_replies() {
        let prompt = "def f(x):\n";
        assert_eq!(
            source(
                prompt,
                "f",
                "Here:\n```python\ndef f(x):\n    return 1\n```\n"
            ),
            "def f(x):\n    return 1\n"
        );
        assert_eq!(
            source(prompt, "f", "    return 2\n"),
            "def f(x):\n    return 2\n"
        );
        assert_eq!(
            source(prompt, "f", "```\n    return 3\n```"),
            "def f(x):\n    return 3\n"
        );
    }

    #[test]
    fn fuzz_results_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                equal(&value, &value, 0.0, 0);
            }
            source("def f():\n", "f", &String::from_utf8_lossy(bytes));
        });
    }
}
