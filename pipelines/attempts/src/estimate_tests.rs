use super::*;

fn task(query: &str) -> Task {
    Task {
        id: Digest::of_bytes(query.as_bytes()),
        query: query.to_owned(),
        ..pybench_testing::task::task()
    }
}

fn sum(recipe: &Recipe, tasks: &[Task], completed: &Completed) -> Estimate {
    super::sum(recipe, &TaskSize::of_all(recipe, tasks), completed)
}

fn recipe(teacher: &str) -> Recipe {
    let text = format!(
        "name = \"t\"\ncrawl = {{ sources = [] }}\nquery = {{ tasks = 1 }}\nteacher = {teacher}\n\
         rollout = {{ samples = 2, max_turns = 3, sampling = {{ temperature = 0.0, top_p = 1.0, max_tokens = 100 }} }}"
    );
    toml::from_str(&text).unwrap()
}

const PAID: &str = "{ kind = \"openai\", model = \"m\", base_url = \"http://h\", price = { prompt = 1.0, completion = 2.0 } }";

#[test]
fn bounds_enclose_the_cost_of_an_attempt() {
    let (recipe, tasks) = (recipe(PAID), [task("q"), task("longer query")]);
    let all = sum(&recipe, &tasks, &Completed::default());
    let range = |from, expected, to| Range { from, expected, to };
    assert_eq!((all.attempts, all.calls), (4, range(4, 12, 12)));
    assert_eq!(all.completion_tokens, range(4, 1200, 1200));
    let opening: u64 = tasks
        .iter()
        .map(|t| token_bound(&agent::format(recipe.rollout.format).initial_messages(t)))
        .sum();
    let grown = 4 * 3 * (100 + 4 * 8000 + 1024);
    assert_eq!(all.prompt_tokens.to, 2 * 3 * opening + grown);
    let money = all.micro_usd.unwrap();
    assert_eq!(money.to, all.prompt_tokens.to + 2400);
    assert!(money.from > 0 && money.from < money.expected && money.expected < money.to);
    // Each of two samples reads the first messages three times, and its first two turns three times in all.
    let read = 2 * 3 * opening / 4 + 4 * 3 * (100 + EXPECTED_OBSERVATION);
    assert!(all.prompt_tokens.expected.abs_diff(read) < 4, "{all}");
}

#[test]
fn batches_cost_half() {
    let tasks = [task("q"), task("longer query")];
    let of = |teacher: &str| sum(&recipe(teacher), &tasks, &Completed::default());
    let (live, batched) = (
        of(PAID),
        of(&PAID.replace("model =", "batch = true, model =")),
    );
    assert!(
        batched.to_string().contains("openai:m, in batches"),
        "{batched}"
    );
    assert_eq!(batched.calls, live.calls);
    let (live, batched) = (live.micro_usd.unwrap(), batched.micro_usd.unwrap());
    // The cost of each attempt is rounded up.
    assert!(
        (live.to..=live.to + 2 * 4).contains(&(2 * batched.to)),
        "{batched:?} {live:?}"
    );
    assert!(
        (live.from..=live.from + 2 * 4).contains(&(2 * batched.from)),
        "{batched:?} {live:?}"
    );
}

#[test]
fn completed_attempts_are_not_counted_again() {
    let (recipe, tasks) = (recipe(PAID), [task("q")]);
    let first = attempt_id(&recipe, &recipe.teacher, &tasks[0].id, 0);
    let mut completed = Completed::default();
    completed.attempted.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &completed);
    assert_eq!((rest.done, rest.attempts, rest.calls.to), (1, 1, 3));
}

#[test]
fn a_goal_lowers_the_lower_bound_and_escalation_raises_the_upper() {
    let mut recipe = recipe(PAID);
    let tasks = [task("q"), task("longer query")];
    let plain = sum(&recipe, &tasks, &Completed::default());
    recipe.goal.accept = Some(1);
    let goal = sum(&recipe, &tasks, &Completed::default());
    assert_eq!((goal.calls.from, goal.calls.to), (1, plain.calls.to));
    let text = PAID.replace("\"m\"", "\"n\"");
    let text = text.replace("prompt = 1.0", "prompt = 10.0");
    recipe.escalation = vec![
        toml::from_str::<toml::Table>(&format!("t = {text}")).unwrap()["t"]
            .clone()
            .try_into()
            .unwrap(),
    ];
    let both = sum(&recipe, &tasks, &Completed::default());
    assert_eq!(both.attempts, 2 * plain.attempts);
    assert!(both.micro_usd.unwrap().to > 2 * plain.micro_usd.unwrap().to);
    assert_eq!(both.teacher, "openai:m, openai:n");
}

#[test]
fn a_model_that_corrects_reads_the_turns_of_the_student() {
    let mut recipe = recipe(PAID);
    let model: toml::Table = toml::from_str(&format!("t = {PAID}")).unwrap();
    let model: ModelChoice = model["t"].clone().try_into().unwrap();
    recipe.escalation = vec![model.clone(), model];
    let of = |recipe: &Recipe| sum(recipe, &[task("q")], &Completed::default());
    let from_the_beginning = of(&recipe);
    recipe.rollout.corrections = true;
    let continued = of(&recipe);
    // On the first level of the escalation, each of two samples has three prompts with three turns of the student.
    let turn = 100 + 4 * 8000 + 1024;
    let context = 3 * turn + agent::MAX_CORRECTION_NOTE as u64;
    let (with, without) = (continued.prompt_tokens, from_the_beginning.prompt_tokens);
    assert_eq!(with.to - without.to, 2 * 3 * context);
    assert_eq!((with.from, with.expected), (without.from, without.expected));
    assert_eq!(continued.calls, from_the_beginning.calls);
    assert_eq!(
        continued.completion_tokens,
        from_the_beginning.completion_tokens
    );
    // The expert needs no tokens.
    recipe.escalation = vec![ModelChoice::Correction {
        idioms: vec![],
        style: None,
    }];
    let by_expert = of(&recipe).prompt_tokens.to;
    recipe.escalation.clear();
    assert_eq!(by_expert, of(&recipe).prompt_tokens.to);
}

#[test]
fn unwritten_tasks_have_bounds_too() {
    let mut recipe = recipe(PAID);
    recipe.query.tasks = 2;
    let unwritten = before_writing(&recipe, 1000);
    let written = sum(
        &recipe,
        &[task("q"), task(&"long".repeat(200))],
        &Completed::default(),
    );
    assert_eq!(
        (unwritten.attempts, unwritten.calls),
        (written.attempts, written.calls)
    );
    assert!(unwritten.prompt_tokens.from <= written.prompt_tokens.from);
    assert!(unwritten.prompt_tokens.to > written.prompt_tokens.to);
    let (unwritten, written) = (unwritten.micro_usd.unwrap(), written.micro_usd.unwrap());
    assert!(unwritten.from <= written.from && unwritten.to > written.to);
}

#[test]
fn parallel_tool_calls_raise_the_upper_bound() {
    let mut recipe = recipe(PAID);
    let one = sum(&recipe, &[task("q")], &Completed::default());
    recipe.rollout.format = pybench_run::FormatChoice::Tools;
    let many = sum(&recipe, &[task("q")], &Completed::default());
    assert!(many.prompt_tokens.to > 10 * one.prompt_tokens.to);
}

#[test]
fn a_judge_is_listed_and_priced() {
    let mut recipe = recipe(PAID);
    let tasks = [task("a query")];
    let plain = sum(&recipe, &tasks, &Completed::default());
    assert!(!plain.to_string().contains("judge"));
    let text = format!("t = {}", PAID.replace("\"m\"", "\"j\""));
    let table: toml::Table = toml::from_str(&text).unwrap();
    recipe.grade.judge = Some(JudgeChoice {
        teacher: table["t"].clone().try_into().unwrap(),
        sees: false,
    });
    let judged = sum(&recipe, &tasks, &Completed::default());
    // Two samples: at least one call, at most two.
    assert_eq!(judged.calls.from, plain.calls.from + 1);
    assert_eq!(judged.calls.to, plain.calls.to + 2);
    let (with, without) = (judged.micro_usd.unwrap(), plain.micro_usd.unwrap());
    let opinion = judge::max_usage("a query".len(), false);
    let price = money::price(&recipe.teacher).unwrap();
    assert_eq!(with.to - without.to, 2 * price.micro_usd(opinion));
    assert!(with.from > without.from);
    let text = judged.to_string();
    assert!(
        text.contains("openai:j: about 1 (1 to 2) of these calls"),
        "{text}"
    );
    let range = |from, expected, to| Range { from, expected, to };
    // Finished attempts still need a judgment; graded ones do not.
    let first = attempt_id(&recipe, &recipe.teacher, &tasks[0].id, 0);
    let mut completed = Completed::default();
    completed.attempted.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &completed);
    assert_eq!(rest.judge.unwrap().1, range(1, 1, 2));
    completed.graded.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &completed);
    assert_eq!(rest.judge.unwrap().1, range(0, 0, 1));
    let sees = judge::max_usage(1, true).prompt_tokens;
    assert!(sees > judge::max_usage(1, false).prompt_tokens);
}

#[test]
fn replies_from_check_validation_may_be_reused() {
    let mut recipe = recipe(PAID);
    let tasks = [task("q")];
    let text = format!("[writer]\ngenerator = {PAID}\ntrials = 1\n");
    let table: toml::Table = toml::from_str(&text).unwrap();
    recipe.query.writer = Some(table["writer"].clone().try_into().unwrap());
    let calls = |recipe: &Recipe| sum(recipe, &tasks, &Completed::default()).calls;
    let range = |from, expected, to| Range { from, expected, to };
    assert_eq!(calls(&recipe), range(1, 3, 6));
    recipe.rollout.reuse = false;
    assert_eq!(calls(&recipe), range(2, 6, 6));
}

#[test]
fn the_expert_is_free() {
    let estimate = sum(
        &recipe("{ kind = \"expert\" }"),
        &[task("q")],
        &Completed::default(),
    );
    assert_eq!(estimate.micro_usd, Some(Range::default()));
    let text = estimate.to_string();
    assert!(text.contains("cost               $0\n"), "{text}");
    assert!(
        text.contains("calls              about 6 (2 to 6)"),
        "{text}"
    );
}

#[test]
fn comments_are_made_on_all_turns_but_the_last() {
    let (recipe, task) = (recipe(PAID), task("q"));
    let (rollout, limits) = (&recipe.rollout, &recipe.interpreter.limits);
    let format = agent::format(rollout.format);
    let size = TaskSize::of(format, &task);
    let of = |turns| {
        let comments = CommentSize {
            turns,
            prompt: 1000,
            reply: 60,
        };
        comments_on_attempt(rollout, format, limits, &size, &comments)
    };
    assert_eq!(of(1).calls.to, 0);
    assert_eq!(of(1).usage.high, Usage::default());
    let three = of(5);
    assert_eq!((three.calls.from, three.calls.to), (0, 2));
    assert_eq!(three.usage.low, Usage::default());
    // Two calls read the opening, the first turn, then two turns and the first comment.
    let turn = 100 + 4 * 8000 + 1024;
    let read = 2 * (1000 + size.initial) + 3 * turn;
    assert_eq!(three.usage.high.prompt_tokens, read + 60);
    assert_eq!(three.usage.high.completion_tokens, 120);
    // The agent reads the first comment twice and the second once.
    assert_eq!(three.read.high.prompt_tokens, 3 * 60);
    assert!(three.usage.expected.prompt_tokens < three.usage.high.prompt_tokens);
}
