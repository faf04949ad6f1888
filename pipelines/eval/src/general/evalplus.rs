//! Parses EvalPlus tasks, in two layouts: EvalPlus' JSON Lines with lists of inputs, and the Hub's datasets
//! with a test program that contains inputs and results. The results are not read: the expected values come
//! from the reference solution of the file, and the candidate's session sees only inputs.

use serde::Deserialize;
use serde_json::Value;

use super::item::{Expected, Item};
use super::program::{Inputs, Program};

/// Maximum size of the list of inputs in a test program, in bytes.
const MAX_INPUTS: usize = 64 << 20;

/// A task in one of the layouts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Listed(Listed),
    HumanEval(HumanEval),
    Mbpp(Mbpp),
}

/// A line of EvalPlus' JSON Lines files.
#[derive(Deserialize)]
struct Listed {
    task_id: Value,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    base_input: Vec<Vec<Value>>,
    #[serde(default)]
    plus_input: Value,
    #[serde(default)]
    atol: f64,
}

/// A row of `evalplus/humanevalplus` on the Hub.
#[derive(Deserialize)]
struct HumanEval {
    task_id: Value,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

/// A row of `evalplus/mbppplus` on the Hub.
#[derive(Deserialize)]
struct Mbpp {
    task_id: Value,
    prompt: String,
    code: String,
    test: String,
    #[serde(default)]
    test_list: Vec<String>,
}

/// Parses one line or row of the set `name`.
pub(super) fn evalplus(line: &str, name: &str) -> Result<Item, String> {
    const FORMS: &str = "expected task_id, prompt, entry_point, canonical_solution and base_input or test; or task_id, prompt, code and test";
    let row: Row = serde_json::from_str(line).map_err(|_| FORMS.to_owned())?;
    let (id, program) = match row {
        Row::Listed(row) => (row.task_id.clone(), listed(row)?),
        Row::HumanEval(row) => (row.task_id.clone(), humaneval(row)?),
        Row::Mbpp(row) => (row.task_id.clone(), mbpp(row)?),
    };
    Ok(Item {
        id: id.as_str().map_or_else(|| id.to_string(), str::to_owned),
        category: name.to_owned(),
        text: program.prompt.clone(),
        expected: Expected::Program(program),
    })
}

fn listed(row: Listed) -> Result<Program, String> {
    Ok(Program {
        solution: format!("{}{}", row.prompt, row.canonical_solution),
        prompt: row.prompt,
        entry: identifier(row.entry_point)?,
        inputs: Inputs::Listed {
            base: row.base_input,
            // MBPP+ has an object instead of a list if there are no additional inputs.
            plus: serde_json::from_value(row.plus_input).unwrap_or_default(),
        },
        tolerance: match row.atol.is_finite() {
            true => row.atol.max(0.0),
            false => 0.0,
        },
    })
}

fn humaneval(row: HumanEval) -> Result<Program, String> {
    Ok(Program {
        solution: format!("{}{}", row.prompt, row.canonical_solution),
        prompt: row.prompt,
        entry: identifier(row.entry_point)?,
        inputs: Inputs::Source(inputs(&row.test)?),
        tolerance: 0.0,
    })
}

/// Like EvalPlus' own prompts, the prompt shows the function name by the first test.
fn mbpp(row: Mbpp) -> Result<Program, String> {
    let example = row.test_list.first().map_or("", String::as_str);
    let defined = row.code.lines().filter_map(|line| {
        let name = line.strip_prefix("def ")?.split('(').next()?;
        Some(name.trim().to_owned())
    });
    let defined: Vec<String> = defined.collect();
    let called = defined.iter().rfind(|name| example.contains(name.as_str()));
    let entry = called.or(defined.last()).cloned();
    let entry = entry.ok_or("`code` defines no function")?;
    Ok(Program {
        prompt: format!("\"\"\"\n{}\n{example}\n\"\"\"\n", row.prompt.trim()),
        solution: row.code,
        entry: identifier(entry)?,
        inputs: Inputs::Source(inputs(&row.test)?),
        tolerance: 0.0,
    })
}

fn identifier(name: String) -> Result<String, String> {
    let plain = |c: char| c.is_alphanumeric() || c == '_';
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name),
        false => Err(format!("`{name}` is not a valid function name")),
    }
}

/// The source of the list `inputs` in a test program.
fn inputs(test: &str) -> Result<String, String> {
    let list = test.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        let rest = line
            .trim_start()
            .strip_prefix("inputs")
            .map(str::trim_start);
        let rest = rest.and_then(|rest| Some(rest.strip_prefix('=')?.trim_start()));
        let rest = rest.filter(|rest| rest.starts_with('['));
        Some(rest.map(|rest| start + line.len() - rest.len()))
    });
    let start = list
        .flatten()
        .next()
        .ok_or("`test` has no line `inputs = […]`")?;
    let list = bracketed(&test[start..]).ok_or("the list `inputs` in `test` is not closed")?;
    match list.len() <= MAX_INPUTS {
        true => Ok(list.to_owned()),
        false => Err(format!(
            "the list `inputs` is larger than {MAX_INPUTS} bytes"
        )),
    }
}

/// The bracketed expression at the start of a text; brackets in strings are ignored.
fn bracketed(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'[' | b'(' | b'{' => depth += 1,
            b']' | b')' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(&text[..=at]);
                }
            }
            b'"' | b'\'' => {
                at = string_end(bytes, at)?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The index after the string literal that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let quotes = [bytes[start]; 3];
    let wide = if bytes[start..].starts_with(&quotes) {
        3
    } else {
        1
    };
    let mut at = start + wide;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            _ if bytes[at..].starts_with(&quotes[..wide]) => return Some(at + wide),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_extracted_from_test_programs() {
        let list = r#"[[[1.0, ']'], {'a': (1, 2)}], ["it's [", '\\'], ['''x'] ''']]"#;
        let test = format!(
            "import numpy as np\r\n\ndef check(f):\n    inputs = {list}\n    results = [1]\n"
        );
        assert_eq!(inputs(&test).unwrap(), list);
        let lines = "[\n  [1],\r\n [2]]";
        assert_eq!(
            inputs(&format!("inputs = {lines}\nresults = 3")).unwrap(),
            lines
        );
        for broken in [
            "",
            "inputs = [[1]",
            "inputs = ['",
            "inputs = 3",
            "inputs = [)",
        ] {
            let found = inputs(broken);
            assert!(found.is_err() || broken.ends_with(')'), "{broken}");
        }
    }

    #[test]
    fn rows_of_the_hub_are_parsed() {
        let row = serde_json::json!({
            "task_id": 2, "prompt": "Write a function to add one.", "source_file": "x", "test_imports": [],
            "code": "import math\n\ndef helper(x):\n    return x\n\ndef add_one(x):\n    return helper(x) + 1\n",
            "test_list": ["assert add_one(1) == 2"], "test": "inputs = [[1]]\nresults = [2]\n",
        });
        let item = evalplus(&row.to_string(), "mbpp").unwrap();
        let Expected::Program(program) = &item.expected else {
            panic!("{item:?}")
        };
        assert_eq!((&*item.id, &*program.entry), ("2", "add_one"));
        let prompt = &program.prompt;
        assert!(prompt.contains("assert add_one(1) == 2"), "{prompt}");
        assert!(matches!(&program.inputs, Inputs::Source(text) if text == "[[1]]"));
        let mut broken = row;
        broken["code"] = "x = 1".into();
        assert!(evalplus(&broken.to_string(), "mbpp").is_err());
    }

    #[test]
    fn fuzz_tests_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = inputs(&text);
            let _ = inputs(&format!("inputs = [{text}"));
            let _ = evalplus(&text, "mbpp");
        });
    }
}
