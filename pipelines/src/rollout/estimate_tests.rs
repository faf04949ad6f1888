use super::*;

#[path = "../../../tests/support/task.rs"]
mod any;

fn task(query: &str) -> Task {
    Task {
        id: Digest::of_bytes(query.as_bytes()),
        query: query.to_owned(),
        ..any::task()
    }
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
fn bounds_enclose_what_a_try_can_cost() {
    let (recipe, tasks) = (recipe(PAID), [task("q"), task("longer query")]);
    let all = sum(&recipe, &tasks, &Ended::default());
    assert_eq!((all.tries, all.calls), (4, Range { from: 4, to: 12 }));
    assert_eq!(all.completion_tokens, Range { from: 4, to: 1200 });
    let opening: u64 = tasks
        .iter()
        .map(|t| token_bound(&agent::format(recipe.rollout.format).opening(t)))
        .sum();
    let grown = 4 * 3 * (100 + 4 * 8000 + 1024);
    assert_eq!(all.prompt_tokens.to, 2 * 3 * opening + grown);
    let money = all.micro_usd.unwrap();
    assert_eq!(money.to, all.prompt_tokens.to + 2400);
    assert!(money.from > 0 && money.from < money.to);
}

#[test]
fn batches_cost_half() {
    let tasks = [task("q"), task("longer query")];
    let of = |teacher: &str| sum(&recipe(teacher), &tasks, &Ended::default());
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
    // Each try is rounded up.
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
fn what_is_done_is_not_counted_again() {
    let (recipe, tasks) = (recipe(PAID), [task("q")]);
    let first = try_id(&recipe, &recipe.teacher, &tasks[0], 0);
    let mut ended = Ended::default();
    ended.tried.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &ended);
    assert_eq!((rest.done, rest.tries, rest.calls.to), (1, 1, 3));
}

#[test]
fn a_goal_lowers_the_least_and_stronger_teachers_raise_the_most() {
    let mut recipe = recipe(PAID);
    let tasks = [task("q"), task("longer query")];
    let plain = sum(&recipe, &tasks, &Ended::default());
    recipe.goal.accept = Some(1);
    let goal = sum(&recipe, &tasks, &Ended::default());
    assert_eq!((goal.calls.from, goal.calls.to), (1, plain.calls.to));
    let text = PAID.replace("\"m\"", "\"n\"");
    let text = text.replace("prompt = 1.0", "prompt = 10.0");
    recipe.stronger = vec![
        toml::from_str::<toml::Table>(&format!("t = {text}")).unwrap()["t"]
            .clone()
            .try_into()
            .unwrap(),
    ];
    let both = sum(&recipe, &tasks, &Ended::default());
    assert_eq!(both.tries, 2 * plain.tries);
    assert!(both.micro_usd.unwrap().to > 2 * plain.micro_usd.unwrap().to);
    assert_eq!(both.teacher, "openai:m, openai:n");
}

#[test]
fn tasks_that_are_not_written_yet_are_bounded_too() {
    let mut recipe = recipe(PAID);
    recipe.query.tasks = 2;
    let ahead = ahead(&recipe, 1000);
    let written = sum(
        &recipe,
        &[task("q"), task(&"long".repeat(200))],
        &Ended::default(),
    );
    assert_eq!((ahead.tries, ahead.calls), (written.tries, written.calls));
    assert!(ahead.prompt_tokens.from <= written.prompt_tokens.from);
    assert!(ahead.prompt_tokens.to > written.prompt_tokens.to);
    let (ahead, written) = (ahead.micro_usd.unwrap(), written.micro_usd.unwrap());
    assert!(ahead.from <= written.from && ahead.to > written.to);
}

#[test]
fn parallel_calls_may_show_more() {
    let mut recipe = recipe(PAID);
    let one = sum(&recipe, &[task("q")], &Ended::default());
    recipe.rollout.format = pybench::run::FormatChoice::Tools;
    let many = sum(&recipe, &[task("q")], &Ended::default());
    assert!(many.prompt_tokens.to > 10 * one.prompt_tokens.to);
}

#[test]
fn a_judge_is_named_and_priced() {
    let mut recipe = recipe(PAID);
    let tasks = [task("a query")];
    let plain = sum(&recipe, &tasks, &Ended::default());
    assert!(!plain.to_string().contains("judge"));
    let text = format!("t = {}", PAID.replace("\"m\"", "\"j\""));
    let table: toml::Table = toml::from_str(&text).unwrap();
    recipe.grade.judge = Some(JudgeChoice {
        teacher: table["t"].clone().try_into().unwrap(),
        sees: false,
    });
    let judged = sum(&recipe, &tasks, &Ended::default());
    // Two samples: one question at least, two at most.
    assert_eq!(judged.calls.from, plain.calls.from + 1);
    assert_eq!(judged.calls.to, plain.calls.to + 2);
    let (with, without) = (judged.micro_usd.unwrap(), plain.micro_usd.unwrap());
    let opinion = judge::most("a query".len(), false);
    let price = money::price(&recipe.teacher).unwrap();
    assert_eq!(with.to - without.to, 2 * price.micro_usd(opinion));
    assert!(with.from > without.from);
    let said = judged.to_string();
    assert!(said.contains("openai:j: 1 to 2 of these calls"), "{said}");
    // What was tried is judged still, and what was graded is not judged again.
    let first = try_id(&recipe, &recipe.teacher, &tasks[0], 0);
    let mut ended = Ended::default();
    ended.tried.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &ended);
    assert_eq!(rest.judge.unwrap().1, Range { from: 1, to: 2 });
    ended.graded.insert(first.to_string());
    let rest = sum(&recipe, &tasks, &ended);
    assert_eq!(rest.judge.unwrap().1, Range { from: 0, to: 1 });
    let sees = judge::most(1, true).prompt_tokens;
    assert!(sees > judge::most(1, false).prompt_tokens);
}

#[test]
fn what_a_trial_paid_for_may_cost_nothing_again() {
    let mut recipe = recipe(PAID);
    let tasks = [task("q")];
    let text = format!("[writer]\ngenerator = {PAID}\ntrials = 1\n");
    let table: toml::Table = toml::from_str(&text).unwrap();
    recipe.query.writer = Some(table["writer"].clone().try_into().unwrap());
    let calls = |recipe: &Recipe| sum(recipe, &tasks, &Ended::default()).calls;
    assert_eq!(calls(&recipe), Range { from: 1, to: 6 });
    recipe.rollout.reuse = false;
    assert_eq!(calls(&recipe), Range { from: 2, to: 6 });
}

#[test]
fn the_expert_costs_nothing() {
    let estimate = sum(
        &recipe("{ kind = \"expert\" }"),
        &[task("q")],
        &Ended::default(),
    );
    assert_eq!(estimate.micro_usd, Some(Range::default()));
    assert!(
        estimate
            .to_string()
            .contains("US dollars         0.00 to 0.00")
    );
}
