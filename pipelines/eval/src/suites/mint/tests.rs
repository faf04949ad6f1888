use std::collections::BTreeMap;
use std::fs;

use pybench_interpreter::{Limits, SessionSpec};
use serde_json::{Value, json};

use super::super::evaluator_tests::{checkout, env, score_all};
use super::super::executed::{AnswerExecutor as _, Verdict};
use super::verdicts::Executed;
use super::*;

/// Files in the layout of the benchmark, with one task of each set.
fn small(root: &Path) {
    let rows = [
        (
            "theoremqa",
            json!({"id": 1, "prompt": "1 + 1?", "reference": 2, "answer_type": "integer"}),
        ),
        (
            "gsm8k",
            json!({"id": 0, "prompt": "1 + 1? ", "reference": "2"}),
        ),
        (
            "mmlu",
            json!({"id": 0, "prompt": "1 + 1?\nOptions: A ) 1 , B ) 2", "reference": "b"}),
        ),
        (
            "math",
            json!({"id": 0, "prompt": "1 + 1?", "reference": "2.0"}),
        ),
        (
            "mbpp",
            json!({"id": 0, "prompt": "\"\"\"\nAdd one.\nassert f(1)==2\n\"\"\"\n", "text": "Add one.",
                "code": "def f(x):\r\n    return {1, (2, None)} if x == [] else x + 1", "reference": "assert f(1)==2\nassert f(2)==3\nassert f([])=={1, (2, None)}"}),
        ),
        (
            "humaneval",
            json!({"id": 0, "prompt": "def g(x):\n    \"\"\" Halve. \"\"\"", "canonical_solution": "    return x / 2\n",
                "reference": "\n\ndef check(candidate):\n    assert abs(candidate(x=3) - 1.5) < 1e-6\n    assert candidate(4) == 2\n\n\ncheck(g)"}),
        ),
    ];
    for (set, row) in rows {
        let folder = root.join("data/processed").join(set);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("test_prompts.json"), format!("{row}\n")).unwrap();
    }
    fs::create_dir_all(root.join("mint/tasks")).unwrap();
    fs::write(root.join("mint/tasks/base.py"), "").unwrap();
    let module = "class TheoremqaTask:
    def __init__(self, id, prompt, reference, answer_type):
        self.reference = reference
    def success(self, solution):
        return eval(solution) == self.reference
";
    fs::write(root.join("mint/tasks/reasoning.py"), module).unwrap();
}

#[tokio::test]
async fn references_pass_and_wrong_answers_fail() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let suite = Mint::open(root.path()).unwrap();
    let tasks = suite.tasks(&env, &Selection::default()).await.unwrap();
    assert_eq!(tasks.available.len(), SETS.len());
    for task in &tasks.available {
        assert!(
            suite
                .solution(&task.task)
                .unwrap()
                .answer
                .starts_with("<solution>")
        );
    }
    let audit = suite.audit(&env, &AuditOptions::default()).await.unwrap();
    assert_eq!(audit.problems, [], "{}", audit.summary);
    let total = &audit.json["total"];
    assert_eq!(total["reference"], json!({"strict": 6, "upstream": 6}));
    assert_eq!(total["nulls_passing"]["strict"], 0);
    // Among them are two programs that return a value that equals everything, and `self.reference`.
    let weak = total["mutants_passing"]["upstream"].as_u64().unwrap();
    assert!(weak >= 8, "{}", audit.summary);
}

#[tokio::test]
async fn programs_are_executed_apart_from_their_tests() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let suite = Mint::open(root.path()).unwrap();
    let executor = suite.executor(&env).unwrap();
    let program = "def g(x):\n    return x / 2";
    let by_frames = "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals['check'] = frame.f_locals.get('x')\n    \
                     frame = frame.f_back\ndef g(x): return 0";
    for (answer, upstream, strict) in [
        (program, true, true),
        ("```python\ndef g(x):\n    return x / 2\n```", false, true),
        ("def g(x):\n    return 1", false, false),
        ("    return x / 2", false, false),
        ("g = 1", false, false),
        (by_frames, false, false),
        ("def g(x):\n    while True: pass", false, false),
        (
            "def g(x):\n    print(x); open('notes', 'w').write('x'); return x / 2",
            true,
            true,
        ),
        ("import os\nos._exit(0)", false, false),
        (
            "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
            false,
            false,
        ),
        ("def g(x):\n    input()\n    return x / 2", false, false),
        (
            "class A(float):\n    __sub__ = lambda *_: 0.0\n    __eq__ = lambda *_: True\ndef g(x):\n    return A(9)",
            true,
            false,
        ),
    ] {
        let executed = &suite.executed.tasks["humaneval/0"];
        let verdicts = executor
            .verdicts(executed, &[answer.to_owned()])
            .await
            .unwrap();
        assert_eq!(verdicts, [Verdict { upstream, strict }], "{answer}");
    }
    // An answer that ends the session does not decide about the others.
    let answers = [
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "2",
    ]
    .map(str::to_owned);
    let programs = [answers[0].clone(), program.to_owned()];
    let executed = &suite.executed.tasks["humaneval/0"];
    let verdicts = executor.verdicts(executed, &programs).await.unwrap();
    assert_eq!((verdicts[0].strict, verdicts[1].strict), (false, true));
    let executed = &suite.executed.tasks["theoremqa/1"];
    let answers = ["2", "1 + 1", "self.reference", "3", "(", "exit()"].map(str::to_owned);
    let verdicts = executor.verdicts(executed, &answers).await.unwrap();
    let passed: Vec<bool> = verdicts.iter().map(|verdict| verdict.upstream).collect();
    assert_eq!(passed, [true, true, true, false, false, false]);
}

#[test]
fn broken_files_are_reported() {
    let root = tempfile::tempdir().unwrap();
    small(root.path());
    for (set, row, problem) in [
        ("gsm8k", "{", "gsm8k/test_prompts.json:1"),
        (
            "gsm8k",
            "{\"id\": 7, \"prompt\": \"q\", \"reference\": 2}",
            "gsm8k: task 7",
        ),
        (
            "mmlu",
            "{\"id\": 7, \"prompt\": \"q\", \"reference\": \"a\"}",
            "has no letter",
        ),
        (
            "mbpp",
            "{\"id\": 7, \"prompt\": \"q\", \"reference\": \"assert f()\"}",
            "no reference solution",
        ),
        (
            "theoremqa",
            "{\"id\": 7, \"prompt\": \"q\", \"reference\": 1}",
            "`answer_type`",
        ),
    ] {
        let path = root
            .path()
            .join("data/processed")
            .join(set)
            .join("test_prompts.json");
        let before = fs::read(&path).unwrap();
        fs::write(&path, row).unwrap();
        let error = Mint::open(root.path()).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
        fs::write(&path, before).unwrap();
    }
}

#[test]
fn fuzz_replies() {
    let root = tempfile::tempdir().unwrap();
    small(root.path());
    let questions = questions(root.path(), &Arc::default()).unwrap();
    bolero::check!().for_each(|bytes: &[u8]| {
        let reply = format!("<solution>{}</solution>", String::from_utf8_lossy(bytes));
        score_all(&questions, &reply);
    });
}

/// Their reading of a reply and their checks, as their environment calls them.
const PROGRAM: &str = r#"
import contextlib, importlib, io, json, logging, os, sys, types
def module(name, **values):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(values)
def package(name, **values):
    module(name, **values)
    sys.modules[name].__path__ = [name.replace(".", "/")]
for name in ("mint", "mint.envs"):
    package(name)
package("mint.utils", load_file=lambda path: "")
package("mint.tasks", Task=None)
module("mint.agents")
sys.modules["mint"].agents = sys.modules["mint.agents"]
module("mint.prompt", ToolPromptTemplate=None)
package("mint.tools", Tool=None, get_toolset_description=None)
module("mint.tools.python_tool", PythonREPL=None)
logging.disable(logging.CRITICAL)
env = importlib.import_module("mint.envs.general_env").GeneralEnv
Action = importlib.import_module("mint.datatypes").Action
reasoning = importlib.import_module("mint.tasks.reasoning")
codegen = importlib.import_module("mint.tasks.codegen")
CLASSES = {"gsm8k": reasoning.ReasoningTask, "math": reasoning.ReasoningTask, "mmlu": reasoning.MultipleChoiceTask,
           "theoremqa": reasoning.TheoremqaTask, "mbpp": codegen.MBPPTask, "humaneval": codegen.HumanEvalTask}
def passes(task, reply):
    try:
        action = Action(reply, not "<solution>" in reply)
        if action.use_tool:
            return False
        return bool(task.success(env.parse_action(None, action)["answer"]))
    except Exception:
        return False
prompts, results = [], []
with open("question.json", encoding="utf-8") as file:
    asked = json.load(file)
for set, row, replies in asked:
    task = CLASSES[set](**row)
    prompts.append(task.prompt)
    with contextlib.redirect_stdout(io.StringIO()):
        results.append([passes(task, reply) for reply in replies])
with open("output/answer.json", "w") as file:
    json.dump([prompts, results], file)
"#;

/// What the authors' code says: prompts, and verdicts on the replies.
async fn theirs(env: &SuiteEnv, root: &Path, asked: &Value) -> (Vec<String>, Vec<Vec<bool>>) {
    let question = tempfile::NamedTempFile::new().unwrap();
    fs::write(question.path(), asked.to_string()).unwrap();
    let modules = FILES.iter().filter(|file| file.ends_with(".py"));
    let modules = modules.map(|file| ((*file).to_owned(), root.join(file)));
    let mut inputs: BTreeMap<String, PathBuf> = modules.collect();
    inputs.insert("question.json".to_owned(), question.path().to_owned());
    let spec = SessionSpec {
        inputs,
        limits: Limits {
            cell_seconds: 1200,
            output_mib: 64,
            ..Limits::default()
        },
        ..SessionSpec::default()
    };
    let mut session = env.interpreter.start(spec).await.unwrap();
    let seen = session.execute(PROGRAM).await.unwrap();
    let outputs = session.read_outputs().await.unwrap();
    session.close().await.unwrap();
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let answer = outputs
        .files
        .iter()
        .find(|file| file.path == "output/answer.json");
    serde_json::from_slice(&answer.unwrap().bytes).unwrap()
}

/// Right, wrong and malformed replies.
fn planted(question: &MintQuestion) -> Vec<String> {
    let mut replies: Vec<String> = question.mutants().into_iter().map(|one| one.1).collect();
    let (reference, prompt) = (question.reference(), question.prompt());
    replies.extend([
        reference.clone(),
        prompt,
        String::new(),
        "<solution>".to_owned(),
    ]);
    if let Some(Executed::Program(program)) = question.executed() {
        replies.push(format!(
            "<solution>```python\n{}\n```</solution>",
            program.solution
        ));
        return replies;
    }
    let expected = question.expected();
    let number = expected.parse::<f64>().ok();
    let shifts = [1.0, 1.05, 0.95, 1.051, 0.949, 1.04, 0.96, 1.0401, 2.0];
    let shifted = shifts.iter().filter_map(|shift| number.map(|n| n * shift));
    let answers = shifted.flat_map(|n| [n.to_string(), format!("{n:.2}"), format!("{n:e}")]);
    let option = question.expected();
    let answers = answers.chain([
        expected.to_uppercase(),
        format!("\u{a0}{expected}\u{1c}"),
        format!("+{expected}"),
        format!("-{expected}"),
        format!("({expected})"),
        format!("[{expected}]"),
        format!("{expected},"),
        format!("{expected})"),
        format!("{expected} )"),
        format!("'{expected}'"),
        format!("${expected}$"),
        format!("{expected}%"),
        format!("{expected} or 7"),
        format!("x = {expected}"),
        format!("x ≈ {expected} = 0"),
        format!("approximately {expected}"),
        format!("{expected} m/s"),
        format!("USD {expected}"),
        format!("`{expected}`°"),
        format!("{expected} x 10^0"),
        format!("{expected} × 1"),
        format!("{expected}e0"),
        format!("0{expected}"),
        format!("0_{expected}"),
        format!("{expected}.0"),
        format!("1,{expected}"),
        format!("{expected}\nThat is all."),
        format!("not {option} but b) or a )"),
        expected.replace(".0", ""),
        expected.replace(['[', ']'], ""),
        expected.replace('[', "{").replace(']', "}"),
        "0".to_owned(),
        "1".to_owned(),
        "nan".to_owned(),
        "inf".to_owned(),
        "True".to_owned(),
        "yes".to_owned(),
        "None".to_owned(),
        "()".to_owned(),
        "[".to_owned(),
        "np.array([1, 6])".to_owned(),
        "Rational(1, 2)".to_owned(),
        "1j".to_owned(),
        "(1j, 2)".to_owned(),
        "1/0".to_owned(),
        "d".to_owned(),
        "none of the above".to_owned(),
        "abcd".to_owned(),
        "  ".to_owned(),
    ]);
    replies.extend(answers.map(|answer| format!("So <solution> {answer} </solution>.")));
    replies.extend([
        format!("{reference}\n<solution>7</solution>"),
        format!("<solution>7</solution>{reference}"),
        reference.replace("</solution>", ""),
        reference.replace("solution", "SOLUTION"),
        reference.replace("</solution>", "</solution></solution>"),
        reference.replace("<solution>", "<solution><solution>"),
    ]);
    if let "mmlu" = question.set().name {
        let options = question.task_prompt();
        let options = options.rsplit_once("Options: ").unwrap().1.to_owned();
        replies.extend(
            options
                .split(" , ")
                .map(|option| format!("<solution>{option}</solution>")),
        );
        let contents = options
            .split(" , ")
            .filter_map(|option| option.split_once(')'));
        replies.extend(contents.map(|(_, content)| format!("<solution>{content}</solution>")));
    }
    replies
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_score_equals_the_authors_evaluator() {
    let Some(root) = checkout(&ENTRY) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(env) = env(folder.path()) else {
        return;
    };
    let suite = Mint::open(&root).unwrap();
    let questions = &suite.questions;
    assert_eq!(questions.len(), COUNT);
    // Their check of a program takes two processes, so only some tasks have all replies.
    let replies = questions.iter().enumerate().map(|(at, question)| {
        let mut replies = planted(question);
        if let (Some(Executed::Program(_)), false) = (question.executed(), at % 5 == 0) {
            replies.truncate(4);
            replies.push(question.reference());
        }
        replies
    });
    let replies: Vec<Vec<String>> = replies.collect();
    let mut asked: Vec<Value> = Vec::new();
    for set in &SETS {
        for line in
            fs::read_to_string(root.join(format!("data/processed/{}/test_prompts.json", set.name)))
                .unwrap()
                .lines()
        {
            let row: Value = serde_json::from_str(line).unwrap();
            asked.push(json!([set.name, row, replies[asked.len()]]));
        }
    }
    let (prompts, theirs) = theirs(&env, &root, &json!(asked)).await;
    let wanted = questions.iter().zip(&replies);
    let wanted = wanted.filter_map(|(question, replies)| {
        suite
            .executed
            .to_execute(&question.name(), replies.iter().map(String::as_str))
    });
    let executor = suite.executor(&env).unwrap();
    let wanted = wanted.collect();
    let failures = suite.executed.add_verdicts(&env, &executor, wanted).await;
    assert!(failures.unwrap().is_empty());
    let (mut compared, mut passed) = (
        BTreeMap::<&str, usize>::new(),
        BTreeMap::<&str, usize>::new(),
    );
    for (at, question) in questions.iter().enumerate() {
        assert_eq!(question.task_prompt(), prompts[at]);
        for (reply, theirs) in replies[at].iter().zip(&theirs[at]) {
            let ours = question.upstream(reply);
            assert_eq!(ours, Some(*theirs), "{}: {reply}", question.name());
            *compared.entry(question.set().name).or_default() += 1;
            *passed.entry(question.set().name).or_default() += usize::from(*theirs);
        }
    }
    let total: usize = compared.values().sum();
    eprintln!("{total} compared: {compared:?}; of them passed: {passed:?}");
    assert!(passed.values().all(|passed| *passed > 40), "{passed:?}");
}

/// Comments with a number, and keeps the prompts.
#[derive(Default)]
struct User(std::sync::Mutex<Vec<String>>);

#[async_trait]
impl pybench_llm::ChatModel for User {
    fn name(&self) -> &str {
        "user"
    }
    fn price(&self) -> Option<pybench_run::Price> {
        None
    }
    async fn reply(
        &self,
        request: &pybench_llm::ChatRequest<'_>,
    ) -> Result<pybench_llm::Reply, pybench_llm::ChatError> {
        let mut prompts = self.0.lock().unwrap();
        prompts.push(request.messages[0].content.clone());
        Ok(pybench_llm::Reply {
            content: format!(" Comment {}.\n", prompts.len()),
            usage: Default::default(),
            truncated: false,
            repetition: false,
        })
    }
}

/// Feedback after turns with these replies; a reply that starts with `>` is a cell.
async fn after(
    feedback: &dyn TurnFeedback,
    task: &Task,
    replies: &[&str],
) -> pybench_agent::Feedback {
    use pybench_types::trajectory::{Message, Role, Turn};
    let turn = |reply: &&str| Turn {
        reply: (*reply).to_owned(),
        cell: reply.starts_with('>').then(String::new),
        observation: None,
        more: Vec::new(),
        usage: Default::default(),
    };
    let turns: Vec<Turn> = replies.iter().map(turn).collect();
    let opening = [
        Message::new(Role::System, "s"),
        Message::new(Role::User, &*task.query),
    ];
    let said = replies
        .iter()
        .map(|reply| Message::new(Role::Assistant, *reply));
    let messages: Vec<Message> = opening.into_iter().chain(said).collect();
    let context = pybench_agent::TurnContext {
        task,
        sample: 0,
        messages: &messages,
        opening: 2,
        turns: &turns,
        is_answer: !replies.last().unwrap().starts_with('>'),
    };
    feedback.after_turn(&context).await.unwrap()
}

#[tokio::test]
async fn agents_are_told_that_an_answer_is_wrong_and_what_they_have_left() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let suite = Mint::open(root.path()).unwrap();
    let tasks = suite
        .tasks(&env, &Selection::default())
        .await
        .unwrap()
        .available;
    let of = |name: &str| {
        tasks
            .iter()
            .find(|task| task.name == name)
            .unwrap()
            .task
            .clone()
    };
    let feedback = suite.feedback(&env, None).unwrap().unwrap();
    let (gsm8k, code) = (of("gsm8k/0"), of("humaneval/0"));
    assert!(feedback.applies(&gsm8k));
    let (right, wrong) = ("<solution>2</solution>", "<solution>3</solution>");
    for (replies, ends, message) in [
        (&[right][..], true, ""),
        (
            &[wrong],
            false,
            "Your answer is wrong.\nYou have 4 steps left and 1 chances to propose solution left.\n",
        ),
        (&[wrong, right], true, ""),
        (&[wrong, wrong], true, ""),
        (
            &[">1"],
            false,
            "You have 4 steps left and 2 chances to propose solution left.\n",
        ),
        (
            &[">1", ">2", ">3", ">4"],
            false,
            "You have 1 steps left and 2 chances to propose solution left.\nYou should take the last step to propose a solution.\n",
        ),
        (&[">1", ">2", ">3", ">4", ">5"], true, ""),
        (&[">1", ">2", ">3", ">4", right], true, ""),
    ] {
        let found = after(feedback.as_ref(), &gsm8k, replies).await;
        assert_eq!(
            (found.ends, found.message.as_str()),
            (ends, message),
            "{replies:?}"
        );
    }
    let found = after(feedback.as_ref(), &gsm8k, &["It is 2."]).await;
    assert!(
        !found.ends && found.message.starts_with("I don't understand"),
        "{found:?}"
    );
    assert!(
        found.message.contains("4 steps left and 2 chances"),
        "{found:?}"
    );
    let program = "<solution>def g(x): return x / 2</solution>";
    assert!(after(feedback.as_ref(), &code, &[program]).await.ends);
    let found = after(
        feedback.as_ref(),
        &code,
        &["<solution>def g(x): return x</solution>"],
    )
    .await;
    assert!(
        !found.ends && found.message.starts_with("Your answer is wrong."),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_model_comments_without_the_reference_unless_it_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let Some(env) = env(&root.path().join("run")) else {
        return;
    };
    small(root.path());
    let example = "Rules\nTask:\nan example {trajectory}";
    for set in ["reasoning", "mbpp", "humaneval"] {
        let folder = root.path().join("mint/tasks/in_context_examples").join(set);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("with_tool_and_feedback.txt"), example).unwrap();
    }
    let folder = root.path().join("mint/prompt/templates");
    fs::create_dir_all(&folder).unwrap();
    let template =
        "E[{in_context_example}] T[{tool_desc}] C[{trajectory}] S[{correct_solution}] {other}";
    fs::write(folder.join("template_feedback_agent.txt"), template).unwrap();
    let suite = Mint::open(root.path()).unwrap();
    let tasks = suite
        .tasks(&env, &Selection::default())
        .await
        .unwrap()
        .available;
    let task = &tasks
        .iter()
        .find(|task| task.name == "gsm8k/0")
        .unwrap()
        .task;
    let size = suite.comment_size(task).unwrap();
    assert_eq!(size.prompt, (template.len() + example.len()) as u64);
    for (sees_reference, solution) in [(false, "NOT GIVEN"), (true, "2")] {
        let user = Arc::new(User::default());
        let model = FeedbackModel {
            model: user.clone(),
            sees_reference,
        };
        let feedback = suite.feedback(&env, Some(model)).unwrap().unwrap();
        let found = after(feedback.as_ref(), task, &["<solution>7</solution>"]).await;
        let expected = "Your answer is wrong.\nYou have 4 steps left and 1 chances to propose solution left.\n";
        assert_eq!(
            found.message,
            format!("{expected}\nExpert feedback:\nComment 1.\n")
        );
        let prompts = user.0.lock().unwrap();
        let expected = format!(
            "E[Task:\nan example {{trajectory}}] T[] C[Task:\n1 + 1?\n\nAssistant:\n<solution>7</solution>\n\nObservation:\n{expected}] \
             S[Correct solution (please DO NOT disclose the correct solution to the assistant): {solution}\n] {{other}}"
        );
        assert_eq!(prompts[..], [expected]);
    }
}
