use std::fs;

use pybench_testing::python::environment;
use serde_json::{Value, json};

use super::super::evaluator_tests::{ask_python, checkout, env};
use super::super::executed::Answers;
use super::task::FunctionTask;
use super::*;

fn row(name: &str, prompt: &str, entry: &str, solution: &str, inputs: [Value; 2]) -> String {
    let [base, plus] = inputs;
    let row = json!({
        "task_id": name, "prompt": prompt, "entry_point": entry, "canonical_solution": solution,
        "base_input": base, "plus_input": plus, "atol": 0,
    });
    row.to_string() + "\n"
}

/// Files made for these tests.
fn files() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let double = row(
        "HumanEval/0",
        "def double(x):\n",
        "double",
        "    return x * 2\n",
        [json!([[1], [2]]), json!([[0.5], [-3]])],
    );
    let ratio = row(
        "HumanEval/1",
        "def ratio(a, b):\n    \"\"\"Divide.\"\"\"\n",
        "ratio",
        "    return a / b\n",
        [json!([[1, 3], [1, 2]]), json!([[2, 3]])],
    );
    let roots = row(
        "HumanEval/2",
        "def find_zero(xs):\n",
        "find_zero",
        "    return -xs[0] / xs[1]\n",
        [json!([[[1, 2]], [[-6, 3]]]), json!([])],
    );
    let roots = roots.replace("\"atol\":0", "\"atol\":0.0001");
    // What it returns for 20,000 is too large to leave the session as it is.
    let halves = row(
        "HumanEval/3",
        "def halves(n):\n",
        "halves",
        "    return [x / 2 for x in range(n)]\n",
        [json!([[3], [4]]), json!([[20_000]])],
    );
    let humaneval = double + &ratio + &roots + &halves;
    fs::write(root.path().join("HumanEvalPlus.jsonl"), humaneval).unwrap();
    let shared = row(
        "Mbpp/2",
        "\"\"\"\nWrite a function to find the shared elements.\n\"\"\"\n",
        "similar_elements",
        "\ndef similar_elements(a, b):\n  return tuple(set(a) & set(b))\n",
        [json!([[[3, 4], [4, 3]], [[1], [2]]]), json!([])],
    );
    let letters = row(
        "Mbpp/794",
        "\"\"\"\nDoes the text start with a?\n\"\"\"\n",
        "text_starta_endb",
        "\nimport re\ndef text_starta_endb(text):\n  return re.match('a', text)\n",
        [json!([["ab"], ["b"]]), json!({})],
    );
    let double = row(
        "Mbpp/9",
        "\"\"\"\nDouble; say NaN, \\\"NaN\\\" or Infinity.\n\"\"\"\n",
        "double",
        "\ndef double(x):\n  return [x * 2]\n",
        [json!([[1.0], ["LARGE"]]), json!([["SMALL"]])],
    );
    let double = double
        .replace("\"LARGE\"", "Infinity")
        .replace("\"SMALL\"", "-Infinity");
    let letters = letters + &double;
    fs::write(root.path().join("MbppPlus.jsonl"), shared + &letters).unwrap();
    root
}

fn suite(root: &Path, entry: &'static Entry, plus: bool) -> EvalPlus {
    EvalPlus::open(root, entry, plus).unwrap()
}

/// The scores `upstream` and `strict` of replies, by task.
async fn scores(
    suite: &EvalPlus,
    env: &SuiteEnv,
    replies: &[(&str, &str)],
) -> Vec<(Option<bool>, bool)> {
    let wanted = replies.iter().map(|(task, reply)| {
        suite
            .executed
            .to_execute(task, [*reply].into_iter())
            .unwrap()
    });
    let executor = suite.executor(env);
    let wanted = wanted.collect();
    let failures = suite.executed.add_verdicts(env, &executor, wanted).await;
    assert!(failures.unwrap().is_empty());
    let score = |(task, reply): &(&str, &str)| {
        let mut questions = suite.executed.answers.questions.iter();
        let question = questions.find(|one| one.name() == *task).unwrap();
        (question.upstream(reply), question.strict(reply).is_ok())
    };
    replies.iter().map(score).collect()
}

#[test]
fn programs_are_extracted_from_replies() {
    let root = files();
    let suite = suite(root.path(), &HUMANEVAL, BASE);
    let task = &suite.executed.tasks["HumanEval/0"];
    let program = "def double(x):\n    return 1\n";
    for reply in [
        format!("Here:\n```python\n{program}```\n"),
        format!("```\n{program}```\nUse it:\n```python\ndouble(1)\n```"),
        format!("<solution>\n```python\n{program}```\n</solution>"),
        format!("<solution>x</solution> no: <solution>\n{program}</solution>"),
        program.to_owned(),
    ] {
        assert_eq!(task.program(&reply).trim_start(), program, "{reply}");
    }
    for (reply, rest) in [
        ("    return 2\n", "    return 2\n"),
        ("```\n    return 3\n```", "    return 3\n"),
        ("def doubled(x): pass", "def doubled(x): pass"),
        ("", ""),
    ] {
        assert_eq!(task.program(reply), format!("def double(x):\n{rest}"));
    }
    let question = &suite.executed.answers.questions[0];
    assert!(
        question.prompt().contains("`double`"),
        "{}",
        question.prompt()
    );
    assert!(
        question.strict(&question.reference()).is_err(),
        "no verdict yet"
    );
    assert_eq!(question.upstream(&question.reference()), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_scored() {
    let (root, folder) = (files(), tempfile::tempdir().unwrap());
    let Some(env) = env(folder.path()) else {
        return;
    };
    let equal = "class E:\n    def __eq__(self, o): return True\ndef double(x): return E()\n";
    let replies = [
        ("HumanEval/0", "def double(x):\n    return x + x"),
        ("HumanEval/0", "def double(x):\n    return int(x) * 2"),
        ("HumanEval/0", equal),
        ("HumanEval/0", "def double(x):\n    while True: pass"),
        ("HumanEval/0", "import os\ndef double(x):\n    os._exit(0)"),
        ("HumanEval/1", "def ratio(a, b):\n    return a / b + 1e-9"),
        ("HumanEval/1", "def ratio(a, b):\n    return a / b + 1e-3"),
        (
            "HumanEval/2",
            "def find_zero(xs):\n    return -xs[0] / xs[1] + 1e-6",
        ),
        ("HumanEval/2", "def find_zero(xs):\n    return 0.0"),
        (
            "HumanEval/3",
            "def halves(n):\n    return [x / 2 if x % 2 else x // 2 for x in range(n)]",
        ),
        (
            "HumanEval/3",
            "def halves(n):\n    return [x / 2 + (x == 19_999) for x in range(n)]",
        ),
        (
            "HumanEval/3",
            "def halves(n):\n    return tuple(x / 2 for x in range(n))",
        ),
    ];
    let right = (Some(true), true);
    let wrong = (Some(false), false);
    let cheat = (Some(true), false);
    let plus = suite(root.path(), &HUMANEVAL_PLUS, PLUS);
    let expected = [
        right, wrong, cheat, wrong, wrong, right, wrong, right, wrong, right, wrong, wrong,
    ];
    assert_eq!(scores(&plus, &env, &replies).await, expected);
    // The original inputs do not notice that `int` cuts off a fraction.
    let base = suite(root.path(), &HUMANEVAL, BASE);
    assert_eq!(scores(&base, &env, &replies[..2]).await, [right, right]);
    let mbpp = suite(root.path(), &MBPP_PLUS, PLUS);
    let replies = [
        (
            "Mbpp/2",
            "def similar_elements(a, b):\n    assert type(a) is tuple\n    return [x for x in b if x in a]",
        ),
        ("Mbpp/2", "def similar_elements(a, b):\n    return a"),
        (
            "Mbpp/794",
            "def text_starta_endb(text):\n    return text[0] == 'a'",
        ),
        (
            "Mbpp/794",
            "def text_starta_endb(text):\n    return 'yes' if text < 'b' else None",
        ),
        ("Mbpp/794", "def text_starta_endb(text):\n    return 'yes'"),
        ("Mbpp/9", "def double(x):\n    return [x + x]"),
        ("Mbpp/9", "def double(x):\n    return [abs(x) + x]"),
    ];
    let expected = [right, wrong, right, right, wrong, right, wrong];
    assert_eq!(scores(&mbpp, &env, &replies).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn references_pass_and_wrong_programs_fail() {
    let (root, folder) = (files(), tempfile::tempdir().unwrap());
    let Some(env) = env(folder.path()) else {
        return;
    };
    for (entry, plus) in [
        (&HUMANEVAL_PLUS, PLUS),
        (&HUMANEVAL, BASE),
        (&MBPP_PLUS, PLUS),
    ] {
        let suite = suite(root.path(), entry, plus);
        let audit = suite.audit(&env, &AuditOptions::default()).await.unwrap();
        assert_eq!(audit.problems, []);
        let all = suite.executed.tasks.len();
        let references = format!("{all} of {all} references pass `strict`, {all} pass `upstream`");
        assert!(audit.summary.contains(&references), "{}", audit.summary);
    }
    // A reference that fails is a fault of the file, not of the program.
    let text = fs::read_to_string(root.path().join("MbppPlus.jsonl")).unwrap();
    let text = text.replace("return tuple(", "return tuple(unknown, ");
    fs::write(root.path().join("MbppPlus.jsonl"), text).unwrap();
    let suite = suite(root.path(), &MBPP, BASE);
    let audit = suite.audit(&env, &AuditOptions::default()).await.unwrap();
    let [(task, problem)] = &audit.problems[..] else {
        panic!("{:?}", audit.problems)
    };
    assert_eq!(task, "Mbpp/2");
    assert!(
        problem.contains("the reference solution of Mbpp/2 does not run"),
        "{problem}"
    );
    let references = "2 of 3 references pass `strict`, 2 pass `upstream`";
    assert!(audit.summary.contains(references), "{}", audit.summary);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_constant_program_is_counted() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(env) = env(folder.path()) else {
        return;
    };
    let function = |name: &str, entry: &str, result: &str| {
        let prompt = format!("def {entry}(x):\n");
        let body = format!("    return {result}\n");
        let inputs = [json!([[1], [2]]), json!([[3]])];
        row(name, &prompt, entry, &body, inputs)
    };
    let rows = [
        function("HumanEval/0", "is_small", "x < 3"),
        function("HumanEval/1", "is_positive", "x > 0"),
    ];
    let rows = rows.concat();
    fs::write(root.path().join("HumanEvalPlus.jsonl"), rows).unwrap();
    // Only the last input tells the first function from one that is always true.
    for (entry, plus, expected) in [(&HUMANEVAL, BASE, 2_u64), (&HUMANEVAL_PLUS, PLUS, 1)] {
        let suite = suite(root.path(), entry, plus);
        let audit = suite.audit(&env, &AuditOptions::default()).await.unwrap();
        assert_eq!(audit.problems, []);
        let (constant, total) = (&audit.json["constants"]["strict"], &audit.json["total"]);
        assert!(constant.as_str().unwrap().contains("is_positive is_small"));
        for score in ["strict", "upstream"] {
            assert_eq!(total["constant"][score], expected, "{}", audit.summary);
        }
    }
}

#[test]
fn numbers_that_json_or_floats_do_not_hold_are_tagged() {
    let text = r#"{"a": [12, -1234567890123456789, 0.1234567890123456789, 1e300, NaN], "b\"1234567890123456789": -Infinity}"#;
    let tagged = task::with_tagged_numbers(text);
    let expected = r#"{"a": [12, {"$int":"-1234567890123456789"}, 0.1234567890123456789, 1e300, {"$float":"NaN"}], "b\"1234567890123456789": {"$float":"-Infinity"}}"#;
    assert_eq!(tagged, expected);
}

#[test]
fn invalid_files_are_reported_with_the_place() {
    let root = files();
    let file = root.path().join("HumanEvalPlus.jsonl");
    let good = fs::read_to_string(&file).unwrap();
    for (from, to, problem) in [
        (
            "\"entry_point\":\"ratio\"",
            "\"entry\":\"ratio\"",
            "HumanEvalPlus.jsonl:2: missing field `entry_point`",
        ),
        (
            "\"entry_point\":\"ratio\"",
            "\"entry_point\":\"a b\"",
            "HumanEval/1: `entry_point`: `a b`",
        ),
        (
            "HumanEval/1",
            "HumanEval",
            "HumanEval: `task_id` does not end",
        ),
    ] {
        fs::write(&file, good.replace(from, to)).unwrap();
        let error = EvalPlus::open(root.path(), &HUMANEVAL, BASE).err().unwrap();
        assert!(error.contains(problem), "{error}");
    }
    fs::remove_file(&file).unwrap();
    let error = EvalPlus::open(root.path(), &HUMANEVAL, BASE).err().unwrap();
    assert!(error.contains("HumanEvalPlus.jsonl.gz"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn some_tasks_of_the_repositories_pass_the_audit() {
    for (entry, count) in [(&HUMANEVAL_PLUS, 164), (&MBPP_PLUS, 378)] {
        let Some(root) = checkout(entry) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let Some(env) = env(folder.path()) else {
            return;
        };
        let suite = suite(&root, entry, PLUS);
        assert_eq!(suite.executed.tasks.len(), count);
        let selection = Selection {
            max_tasks: Some(8),
            seed: 7,
            ..Selection::default()
        };
        let options = AuditOptions {
            selection,
            quick: false,
        };
        let audit = suite.audit(&env, &options).await.unwrap();
        assert_eq!(audit.problems, [], "{}", audit.summary);
    }
}

/// Programs for a task: its reference, those of the audit, and near misses that only a tolerance decides.
fn planted(suite: &EvalPlus, task: &FunctionTask) -> Vec<String> {
    let mut questions = suite.executed.answers.questions.iter();
    let question = questions.find(|one| one.name() == task.name).unwrap();
    let audited = question.mutants().into_iter();
    let mut programs: Vec<String> = audited.map(|(_, reply)| task.program(&reply)).collect();
    programs.push(task.solution.clone());
    let entry = &task.entry;
    programs.extend(
        [
            "return value",
            "return float(value)",
            "return value + 1e-7",
            "return value + 1e-5",
            "return value + 1",
            "return [value[0] + 1e-7, *value[1:]]",
            "return list(value)",
            "return tuple(value)",
            "return not value",
            "return str(value)",
            "return numpy.asarray(value)",
            "print(value); return value",
            "args[0].clear(); return value",
        ]
        .map(|end| {
            format!(
                "{}\nimport numpy\n_right = {entry}\ndef {entry}(*args):\n    value = _right(*args)\n    {end}\n",
                task.solution
            )
        }),
    );
    programs
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_score_equals_evalplus() {
    let folder = tempfile::tempdir().unwrap();
    let Some((env, python)) = env(folder.path()).zip(environment("evalplus")) else {
        return;
    };
    for (entry, base_entry, key, file) in [
        (
            &HUMANEVAL_PLUS,
            &HUMANEVAL,
            "humaneval",
            "HumanEvalPlus.jsonl",
        ),
        (&MBPP_PLUS, &MBPP, "mbpp", "MbppPlus.jsonl"),
    ] {
        let Some(root) = checkout(entry) else {
            return;
        };
        let plus = suite(&root, entry, PLUS);
        let base = suite(&root, base_entry, BASE);
        let tasks = plus.executed.tasks.values();
        let tasks: Vec<_> = tasks
            .step_by(plus.executed.tasks.len() / compared_tasks())
            .collect();
        let programs: Vec<_> = tasks.iter().map(|task| planted(&plus, task)).collect();
        let unpacked = root.join(file);
        let unpacked = match unpacked.is_file() {
            true => unpacked,
            false => {
                let text = task::unpack(&root, &format!("{file}.gz")).unwrap();
                let unpacked = folder.path().join(file);
                fs::write(&unpacked, text).unwrap();
                unpacked
            }
        };
        let theirs = |asked: Vec<(&str, Vec<&String>)>| -> Vec<Vec<(bool, bool)>> {
            let asked = asked
                .iter()
                .map(|(task, programs)| json!([key, task, programs]));
            let question = json!({"files": {key: unpacked}, "programs": asked.collect::<Vec<_>>()});
            let found = ask_python(&python, EVALPLUS, Path::new(""), &question);
            serde_json::from_value(found).unwrap()
        };
        let all = tasks.iter().zip(&programs);
        let found = theirs(
            all.map(|(task, programs)| (&*task.name, programs.iter().collect()))
                .collect(),
        );
        let of_base = verdicts_of(&base, &env, &tasks, &programs).await;
        let of_plus = verdicts_of(&plus, &env, &tasks, &programs).await;
        let mut differences = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            for (number, program) in programs[at].iter().enumerate() {
                let ours = (of_base[at][number], of_plus[at][number]);
                // A program near the time limit passes by chance: EvalPlus is asked twice.
                if ours != found[at][number]
                    && ours != theirs(vec![(&task.name, vec![program])])[0][0]
                {
                    differences.push((&task.name, found[at][number], ours, program));
                }
            }
        }
        let count = programs.iter().flatten().count();
        println!("{key}: {count} programs");
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

/// What EvalPlus says of programs.
const EVALPLUS: &str = include_str!("evalplus_verdicts.py");

/// Tasks of each benchmark that are compared with EvalPlus' program; `PYBENCH_EVALPLUS_TASKS` is another number.
fn compared_tasks() -> usize {
    let asked = std::env::var("PYBENCH_EVALPLUS_TASKS");
    asked.map_or(12, |asked| asked.parse().expect("a number"))
}

/// Our `upstream` verdicts on the programs of each task.
async fn verdicts_of(
    suite: &EvalPlus,
    env: &SuiteEnv,
    tasks: &[&Arc<FunctionTask>],
    programs: &[Vec<String>],
) -> Vec<Vec<bool>> {
    let executor = suite.executor(env);
    let wanted = tasks.iter().zip(programs).map(|(task, programs)| Answers {
        name: task.name.clone(),
        task: suite.executed.tasks[&task.name].clone(),
        answers: programs.clone(),
    });
    let wanted = wanted.collect();
    let failures = suite.executed.add_verdicts(env, &executor, wanted).await;
    assert!(failures.unwrap().is_empty());
    let verdict = |task: &FunctionTask, program: &String| {
        suite
            .executed
            .verdicts
            .get(&task.name, program)
            .unwrap()
            .upstream
    };
    let each = tasks.iter().zip(programs);
    each.map(|(task, programs)| programs.iter().map(|one| verdict(task, one)).collect())
        .collect()
}

#[test]
fn fuzz_replies() {
    let root = files();
    let suite = suite(root.path(), &HUMANEVAL, BASE);
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        for task in suite.executed.tasks.values() {
            let _ = task.program(&text);
        }
    });
}
