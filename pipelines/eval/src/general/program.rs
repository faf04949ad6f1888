//! Scores a program against the reference solution: both run on the same inputs in separate sessions, and the
//! host compares the results.

use std::io::Write;

use pybench_interpreter::{Interpreter, InterpreterError, Limits, SessionSpec};
use pybench_types::id::Digest;
use serde_json::{Value, json};

use super::AnswerCheck;
use pybench_types::text::cut;

/// Script that calls the function in the sandbox.
const DRIVER: &str = include_str!("driver.py");
/// Time limit of one call, and of all calls together, in seconds.
const CALL_SECONDS: f64 = 2.0;
const TOTAL_SECONDS: u64 = 120;

/// Digest of everything that determines the scores.
pub(super) fn digest() -> Digest {
    Digest::of_json(&(DRIVER, CALL_SECONDS, TOTAL_SECONDS))
}

/// An EvalPlus task.
#[derive(Clone, Debug)]
pub struct Program {
    /// Start of the program, to be completed.
    pub prompt: String,
    /// Reference solution.
    pub solution: String,
    /// Name of the function to call.
    pub entry: String,
    /// Arguments of the calls.
    pub inputs: Inputs,
    /// Absolute tolerance of floats; 0 means EvalPlus' default of 1e-6.
    pub tolerance: f64,
}

/// Arguments of the calls.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// JSON values.
    Listed {
        /// Inputs of the original tests.
        base: Vec<Vec<Value>>,
        /// Inputs that EvalPlus added.
        plus: Vec<Vec<Value>>,
    },
    /// A Python expression for the list of all inputs.
    Source(String),
}

/// Runs a reply and compares it with the reference solution. Returns the results for the original tests and for
/// all tests, or only the latter if the inputs do not distinguish them. Inputs on which the reference solution
/// fails are ignored.
///
/// # Errors
/// Infrastructure failures, and a reference solution that fails on every input. They say nothing about the
/// model.
pub async fn run_program(
    program: &Program,
    reply: &str,
    interpreter: &dyn Interpreter,
) -> Result<Vec<AnswerCheck>, String> {
    let inputs = match &program.inputs {
        Inputs::Listed { base, plus } => json!(base.iter().chain(plus).collect::<Vec<_>>()),
        Inputs::Source(source) => json!(source),
    };
    let call = json!({"entry": program.entry, "inputs": inputs, "seconds": CALL_SECONDS});
    let expected = call_all(&program.solution, &call, interpreter).await?;
    let expected = expected.ok_or("the reference solution in the file does not finish")?;
    let reference_ok = |at: &usize| expected.get(*at).is_some_and(|value| value[0] != "!");
    let usable: Vec<usize> = (0..expected.len()).filter(reference_ok).collect();
    if usable.is_empty() {
        return Err("the reference solution in the file fails on every input".to_owned());
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

/// Extracts the program from a reply: the last fenced block that defines the function. A completion without a
/// definition is appended to the prompt.
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

/// What the program returned for each input; `None` if it did not finish by itself.
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
            cell_seconds: TOTAL_SECONDS,
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

/// Compares values like Python's `==`, with EvalPlus' tolerance for floats.
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
    // A relative tolerance of an infinite value would be infinite.
    let near = || (x - y).abs() <= tolerance + 1e-7 * x.abs();
    x == y || (x.is_nan() && y.is_nan()) || (x.is_finite() && y.is_finite() && near())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_like_python() {
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
            "a list is not a tuple"
        );
        assert!(
            !same(json!(["!", "E"]), json!(["!", "E"])),
            "two failures are not equal"
        );
        let (a, b) = (
            json!(["i", "9007199254740993"]),
            json!(["i", "9007199254740992"]),
        );
        assert!(!same(a, b), "integers are exact");
        assert!(!same(json!(["n"]), json!(["i", "0"])) && same(json!(["n"]), json!(["n"])));
    }

    #[test]
    fn programs_are_extracted_from_replies() {
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
