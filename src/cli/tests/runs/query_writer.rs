//! Models write tasks: their faults, their cost, and that nothing is paid for twice.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::support::cast;
use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{RunFixture, code, interpreter_is_here};
use crate::support::kill::kill_after;
use pybench_query::review::{Decision, ReviewLine};
use pybench_synthesize::status::funnel;
use pybench_types::task::{Task, TaskOrigin};
use pybench_types::trajectory::Verdict;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

const QUERY: &str = "query";
const CRAWL: &str = "crawl";
const SYNTHESIZE: &str = "synthesize";
/// What a call costs, in millionths of a dollar.
const CALL: u64 = 110;
/// Without proposed checks, and so without an interpreter.
const PLAIN: &str = "checks = 'none'";

async fn writer_endpoint(delay: Duration) -> Endpoint {
    Endpoint::start(move |request| async move {
        tokio::time::sleep(delay).await;
        cast::answer(&request)
    })
    .await
}

/// With its files crawled.
fn crawled(text: &str) -> RunFixture {
    let fixture = RunFixture::bare(text);
    cast::add_tables(&fixture);
    succeed(fixture.program(CRAWL, &[]));
    fixture
}

fn succeed(mut command: Command) -> (String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(code(&output), Some(0), "{stdout}\n{stderr}");
    (stdout, stderr)
}

fn artifact(fixture: &RunFixture) -> String {
    std::fs::read_to_string(fixture.folder().join("tasks.jsonl")).unwrap()
}

fn verdicts(fixture: &RunFixture) -> String {
    std::fs::read_to_string(fixture.folder().join("verdicts.jsonl")).unwrap()
}

/// What was left out, and how often.
fn left_out(fixture: &RunFixture) -> Vec<(String, u64)> {
    let counts = funnel(&fixture.journal()).unwrap().queries;
    let mut counts: Vec<_> = counts.into_iter().map(|c| (c.what, c.count)).collect();
    counts.sort();
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_corrected_or_left_out_and_never_a_verdict() {
    let server = writer_endpoint(Duration::ZERO).await;
    let fixture = crawled(&cast::recipe(&server.base_url(), 12, PLAIN, ""));
    succeed(fixture.program(QUERY, &[]));
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    assert!(tasks.len() >= 10, "{}", tasks.len());
    let (mut corrected, mut first) = (0, 0);
    for task in &tasks {
        assert_eq!(task.id, task.compute_id());
        assert!(!task.query.contains("pricee"), "{}", task.query);
        let TaskOrigin::Writer {
            round, generator, ..
        } = &task.origin
        else {
            panic!("{:?}", task.origin);
        };
        assert_eq!(generator, "openai:g");
        *(if *round > 1 {
            &mut corrected
        } else {
            &mut first
        }) += 1;
        assert!(task.query.contains(&task.files[0].name) && task.query.contains(&task.outputs[0]));
    }
    assert!(
        corrected > 0 && first > 0,
        "{corrected} corrected, {first} at once"
    );
    // No sorted table 4: the checker never gave an opinion, which is no verdict.
    assert!(
        tasks
            .iter()
            .all(|task| !task.query.starts_with("In sales4.csv, sort"))
    );
    let asked = server.calls();
    let refused = asked
        .keys()
        .filter(|body| body.contains("\"model\":\"k\"") || body.contains("\"model\":\"c\""));
    let refused: Vec<_> = refused.filter(|body| body.contains("pricee")).collect();
    assert!(
        refused.is_empty(),
        "what rules refuse is shown to no checker"
    );
    let praised = asked.keys().any(|body| body.contains("magnificent"));
    let reported = left_out(&fixture);
    assert_eq!(
        reported
            .iter()
            .any(|(what, _)| what == "content checker abstained"),
        praised,
        "{reported:?}"
    );

    let spent = fixture.spent();
    assert_eq!(spent.calls, u64::from(server.call_count()));
    assert_eq!(spent.micro_usd, CALL * spent.calls);
    let before = artifact(&fixture);
    succeed(fixture.program(QUERY, &[]));
    assert_eq!((artifact(&fixture), fixture.spent()), (before, spent));
}

#[tokio::test(flavor = "multi_thread")]
async fn near_duplicates_are_written_again_and_then_left_out() {
    let same = json!({
        "query": "Differentiate x**3 - 2*x and state the result behind `Result: `.",
        "outputs": [], "uses": [], "makes": [], "sketch": "import sympy\nprint(sympy.diff('x**3 - 2*x'))",
    });
    let server = Endpoint::start(move |request| {
        let said = match request["model"].as_str().unwrap() {
            "g" => same.to_string(),
            "k" => json!({"needed": true, "reason": "r"}).to_string(),
            _ => json!({"supported": true, "missing": [], "reason": "r"}).to_string(),
        };
        std::future::ready(Answer::Content(said))
    })
    .await;
    let text = cast::recipe(&server.base_url(), 3, "checks = 'none'\ntries = 2", "");
    let text = text.replace("'group by', 'filter', 'sort'", "'derivative'");
    let fixture = crawled(&text);
    let (_, stderr) = succeed(fixture.program(QUERY, &[]));
    assert!(stderr.contains("1 of 3 tasks"), "{stderr}");
    assert_eq!(fixture.lines::<Task>("tasks.jsonl").len(), 1);
    assert_eq!(left_out(&fixture), [("near duplicate".to_owned(), 4)]);
    // Five drafts are asked for, each of its own, and two opinions on each.
    assert_eq!(server.call_count(), 5 * 3);
}

/// An embedder at that endpoint.
fn embeddings(server: &Endpoint, similarity: f64) -> String {
    format!(
        "embeddings = {{ similarity = {similarity}, endpoint = {{ kind = 'openai', model = 'e', base_url = '{}', \
         price = {{ prompt = 1.0, completion = 0.0 }} }} }}",
        server.base_url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_mean_the_same_are_found_priced_and_paid_for_once() {
    let server = writer_endpoint(Duration::ZERO).await;
    let writer = format!("{PLAIN}\ntries = 1\n{}", embeddings(&server, 0.9));
    let fixture = crawled(&cast::recipe(&server.base_url(), 9, &writer, ""));
    let (_, stderr) = succeed(fixture.program(QUERY, &[]));
    assert!(stderr.contains("3 of 9 tasks"), "{stderr}");
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    let keywords: BTreeSet<_> = tasks.iter().map(|task| &*task.keyword).collect();
    assert_eq!(keywords.len(), 3, "one of each");
    let alike = left_out(&fixture);
    let alike = alike.iter().find(|(what, _)| what == "near duplicate");
    let asked = server.calls();
    let placed = asked
        .keys()
        .filter(|body| body.contains("\"input\""))
        .count() as u64;
    assert_eq!(alike.unwrap().1, placed - 3);
    // An embedding costs its seven tokens.
    let (spent, calls) = (fixture.spent(), u64::from(server.call_count()));
    assert_eq!(spent.calls, calls);
    assert_eq!(spent.micro_usd, CALL * (calls - placed) + 7 * placed);
    assert_eq!(repeated(&server), 0);
    // Neither the same run nor another one of this project asks again.
    let before = artifact(&fixture);
    succeed(fixture.program(QUERY, &[]));
    std::fs::remove_dir_all(fixture.folder()).unwrap();
    succeed(fixture.program(CRAWL, &[]));
    succeed(fixture.program(QUERY, &[]));
    assert_eq!(
        (artifact(&fixture), u64::from(server.call_count())),
        (before, calls)
    );
    assert_eq!(fixture.spent().micro_usd, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_has_no_embeddings_is_a_failure_of_ours() {
    let server = writer_endpoint(Duration::ZERO).await;
    let broken = Endpoint::always(Answer::Bytes(b"{\"data\": []}".to_vec())).await;
    let writer = format!("{PLAIN}\n{}", embeddings(&broken, 0.9));
    let rest = "[rollout]\nattempts = 2\n";
    let fixture = crawled(&cast::recipe(&server.base_url(), 2, &writer, rest));
    let output = fixture.program(QUERY, &[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(5), "{stderr}");
    assert!(stderr.contains("0 embeddings for one text"), "{stderr}");
    let rejected = left_out(&fixture);
    let rejected = rejected.iter().find(|(by, _)| !by.ends_with("abstained"));
    assert_eq!(rejected, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prices_and_a_preview_pays_for_its_tasks_alone() {
    let server = writer_endpoint(Duration::ZERO).await;
    let fixture = crawled(&cast::recipe(&server.base_url(), 6, PLAIN, ""));
    let (stdout, _) = succeed(fixture.program(SYNTHESIZE, &["--dry-run"]));
    assert_eq!(server.call_count(), 0);
    assert!(
        stdout.contains("writing tasks") && stdout.contains("solving them"),
        "{stdout}"
    );
    let priced = stdout.lines().filter(|line| line.starts_with("cost "));
    assert_eq!(priced.count(), 2, "{stdout}");
    let (stdout, _) = succeed(fixture.program(QUERY, &["--preview", "1"]));
    assert_eq!(stdout.matches("── ").count(), 1, "{stdout}");
    let paid = fixture.spent();
    assert!(paid.calls < 12, "{paid:?}");
    succeed(fixture.program(QUERY, &[]));
    assert_eq!(fixture.lines::<Task>("tasks.jsonl").len(), 6);
}

#[test]
fn the_run_of_the_papers_size_is_priced() {
    let path =
        std::path::Path::new(pybench_testing::ROOT).join("pipelines/recipes/pyinstruct.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let fixture = RunFixture::bare(&text);
    cast::add_tables(&fixture);
    let local = "crawl.sources=[{source='local', path='files'}]";
    let args = [
        "--dry-run",
        "--set",
        local,
        "--set",
        "crawl.fallback=[]",
        "--run",
        "t",
    ];
    let (stdout, _) = succeed(fixture.program(SYNTHESIZE, &args));
    eprintln!("{stdout}");
    assert!(
        stdout.contains("attempts left") && !stdout.contains("unknown"),
        "{stdout}"
    );
    // Writing, and solving with judging: the budget is between the least and the most.
    let priced = stdout.lines().filter_map(|line| {
        let (_, range) = line.strip_prefix("cost ")?.split_once('(')?;
        let (from, to) = range.trim_end_matches(')').split_once(" to ")?;
        let number = |usd: &str| usd.replace(['$', ','], "").parse::<f64>().unwrap();
        Some([from, to].map(number))
    });
    let [from, to] = priced.fold([0.0, 0.0], |all, more| [all[0] + more[0], all[1] + more[1]]);
    let budget = fixture.recipe.budget.usd.unwrap();
    assert!(0.0 < from && from < budget && budget < to, "{stdout}");
    assert_eq!(fixture.spent().calls, 0);
}

fn start(fixture: &RunFixture, program: &str) -> Child {
    fixture
        .program(program, &[])
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Runs to the end, killed at most so many times before at random moments; how often it was.
fn run_killed(
    fixture: &RunFixture,
    program: &str,
    kills: u32,
    longest: Duration,
    rng: &mut ChaCha8Rng,
) -> u32 {
    for delivered in 0..kills {
        let moment = longest.mul_f64(rng.random_range(0.0..1.0));
        if let Some(status) = kill_after(start(fixture, program), moment) {
            assert!(status.success(), "{status}");
            return delivered;
        }
    }
    let status = start(fixture, program).wait().unwrap();
    assert!(status.success(), "{status}");
    kills
}

/// Requests received more than once, over and above the first.
fn repeated(server: &Endpoint) -> u64 {
    server
        .calls()
        .values()
        .map(|count| u64::from(*count) - 1)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_change_no_task_and_cost_nothing() {
    let server = writer_endpoint(Duration::from_millis(30)).await;
    let text = cast::recipe(&server.base_url(), 12, PLAIN, "");
    let undisturbed = crawled(&text);
    let begun = Instant::now();
    succeed(undisturbed.program(QUERY, &[]));
    let whole = begun.elapsed();
    let (expected, asked) = (artifact(&undisturbed), server.calls().len());
    let calls = u64::from(server.call_count());
    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed run took {whole:?}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut kills = 0;
    while kills < 8 {
        let fixture = crawled(&text);
        server.forget();
        kills += run_killed(&fixture, QUERY, 8 - kills, whole, &mut rng);
        assert_eq!(artifact(&fixture), expected, "after {kills} kills");
        assert_eq!(server.calls().len(), asked, "the same questions");
        assert_eq!(fixture.cost("settled"), CALL * calls, "each paid for once");
        assert!(u64::from(server.call_count()) <= calls + fixture.spent().uncertain);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proposed_checks_prove_themselves_or_are_dropped() {
    if !interpreter_is_here() {
        return;
    }
    let server = writer_endpoint(Duration::ZERO).await;
    let fixture = crawled(&cast::recipe(
        &server.base_url(),
        6,
        "checks = 'optional'",
        "",
    ));
    succeed(fixture.program(QUERY, &[]));
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    for task in &tasks {
        let (keyword, file) = (&*task.keyword, &*task.files[0].name);
        let dropped = matches!(
            (keyword, file),
            ("group by", "sales3.csv") | ("sort", "sales2.csv")
        );
        assert_eq!(
            task.checks.is_empty(),
            dropped,
            "{keyword} {file}: {:?}",
            left_out(&fixture)
        );
        assert_eq!(task.reference.is_empty(), dropped);
        assert!(!task.reference.contains("rows = row\n"), "it was corrected");
    }
    let proven = tasks.iter().filter(|task| !task.checks.is_empty()).count();
    assert!(proven >= 3, "{proven}");
    let spent = fixture.spent();
    succeed(fixture.program(QUERY, &[]));
    assert_eq!(fixture.spent(), spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_cast_gives_exactly_as_many_rows_over_kills_and_to_the_cent() {
    if !interpreter_is_here() {
        return;
    }
    const ROWS: usize = 5;
    // Far more than the calls cost: each reserves what it may cost at most, and at a kill that is charged.
    const CAP: u64 = 1_000_000;
    let server = writer_endpoint(Duration::from_millis(20)).await;
    let rest = format!("[goal]\naccept = {ROWS}\n\n[rollout]\nconcurrency = 2\n");
    let text = cast::recipe(&server.base_url(), 9, "checks = 'required'", &rest);
    let text = text.replace("usd = 10.0", &format!("usd = {}", CAP as f64 / 1e6));
    let undisturbed = crawled(&text);
    let begun = Instant::now();
    succeed(undisturbed.program(SYNTHESIZE, &[]));
    let whole = begun.elapsed();
    let accepted = |fixture: &RunFixture| {
        let verdicts: Vec<Verdict> = fixture.lines("verdicts.jsonl");
        verdicts.iter().filter(|verdict| verdict.accepted).count()
    };
    assert_eq!(accepted(&undisturbed), ROWS);
    let asked = server.calls().len();
    let calls = u64::from(server.call_count());
    let again = server.calls().into_iter();
    let again = again.filter(|(body, count)| *count > 1 && body.contains("\"model\":\"t\""));
    assert_eq!(
        again.count(),
        0,
        "what trials paid for is not paid for again"
    );
    assert_eq!(undisturbed.spent().micro_usd, CALL * calls);
    let tasks: Vec<Task> = undisturbed.lines("tasks.jsonl");
    assert!(tasks.iter().all(|task| !task.checks.is_empty()));
    let played: Vec<_> = ["g", "k", "c", "t", "j"]
        .into_iter()
        .filter(|name| {
            server
                .calls()
                .keys()
                .any(|body| body.contains(&format!("\"model\":\"{name}\"")))
        })
        .collect();
    assert_eq!(played.len(), 5, "{played:?} had a part");
    let (expected, graded) = (artifact(&undisturbed), verdicts(&undisturbed));

    // A cap that is too low stops the run without being exceeded, and a higher one goes on.
    let fixture = crawled(&text);
    server.forget();
    let caps = (1..).map(|step| 3_000 * step);
    let stopped = caps.map(|cap: u64| {
        let usd = format!("budget.usd={}", cap as f64 / 1e6);
        let output = fixture
            .program(SYNTHESIZE, &["--set", &usd])
            .output()
            .unwrap();
        assert!(fixture.spent().micro_usd <= cap && cap < CAP, "{output:?}");
        (code(&output), fixture.spent().calls)
    });
    let stopped: Vec<_> = stopped.take_while(|(code, _)| *code != Some(0)).collect();
    assert!(
        stopped.iter().all(|(code, _)| *code == Some(6)),
        "{stopped:?}"
    );
    assert!(stopped.iter().any(|(_, calls)| *calls > 0), "{stopped:?}");
    assert_eq!(
        (accepted(&fixture), artifact(&fixture)),
        (ROWS, expected.clone())
    );
    assert_eq!(
        (u64::from(server.call_count()), fixture.spent().micro_usd),
        (calls, CALL * calls)
    );

    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed run took {whole:?}; {asked} calls");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut kills = 0;
    while kills < 3 {
        let fixture = crawled(&text);
        server.forget();
        // So soon after each start that one run takes them all.
        kills += run_killed(&fixture, SYNTHESIZE, 3 - kills, whole / 5, &mut rng);
        assert_eq!(
            (accepted(&fixture), artifact(&fixture), verdicts(&fixture)),
            (ROWS, expected.clone(), graded.clone())
        );
        let spent = fixture.spent();
        assert_eq!(
            server.calls().len(),
            asked,
            "the same questions after {kills} kills"
        );
        let made = u64::from(server.call_count());
        assert!(made <= calls + spent.uncertain, "{made} calls, {spent:?}");
        // To the cent: every answer once, and what calls in flight at a kill may have cost.
        assert_eq!(fixture.cost("settled"), CALL * calls);
        assert_eq!(spent.micro_usd, CALL * calls + fixture.cost("uncertain"));
        assert_eq!(spent.uncertain == 0, fixture.cost("uncertain") == 0);
        assert!(spent.micro_usd <= CAP, "{spent:?}");
    }
    eprintln!("{kills} kills, exactly {ROWS} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_accept_change_and_reject() {
    let server = writer_endpoint(Duration::ZERO).await;
    let fixture = crawled(&cast::recipe(&server.base_url(), 4, PLAIN, ""));
    let review = fixture.path("review.jsonl");
    let missing = fixture
        .program(QUERY, &["--export", "review.jsonl"])
        .output()
        .unwrap();
    assert_eq!(code(&missing), Some(3));
    succeed(fixture.program(QUERY, &[]));
    let (stdout, _) = succeed(fixture.program(QUERY, &["--export", "review.jsonl"]));
    assert!(stdout.contains("4 tasks in review.jsonl"), "{stdout}");
    let read = || -> Vec<ReviewLine> {
        let text = std::fs::read_to_string(&review).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let write = |lines: &[ReviewLine], more: &str| {
        let lines = lines
            .iter()
            .map(|line| serde_json::to_string(line).unwrap() + "\n");
        std::fs::write(&review, lines.collect::<String>() + more).unwrap();
    };
    let mut lines = read();
    // Every wrong line is named, and nothing is imported.
    lines[0].query += " More.";
    lines[1].decision = Decision::Change;
    lines[2].decision = Decision::Change;
    lines[2].outputs = vec!["output/other.csv".into()];
    let twice = lines[3].clone();
    lines.push(twice);
    write(&lines, "{\"task\": 1}\n");
    let refused = fixture
        .program(QUERY, &["--import", "review.jsonl"])
        .output()
        .unwrap();
    assert_eq!(code(&refused), Some(3));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    for expected in [
        "review.jsonl:1: the line was edited, but its decision is `accept`: set it to `change`",
        "review.jsonl:2: the decision is `change`, but nothing was edited: set it to `accept`",
        "review.jsonl:3: outputs: the query does not say",
        "is listed twice: remove one line",
        "review.jsonl:6: invalid review line",
        "nothing was imported",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let before = artifact(&fixture);

    succeed(fixture.program(QUERY, &["--export", "review.jsonl"]));
    let mut lines = read();
    assert!(lines.iter().all(|line| line.decision == Decision::Accept));
    lines[1].decision = Decision::Reject;
    lines[2].decision = Decision::Change;
    lines[2].query = lines[2].query.replace("In sales", "In the table sales");
    write(&lines, "");
    let (stdout, _) = succeed(fixture.program(QUERY, &["--import", "review.jsonl"]));
    assert!(
        stdout.contains("{+the table +}") || stdout.contains("{+ the table+}"),
        "{stdout}"
    );
    assert!(
        stdout.contains("2 accepted, 1 changed, 1 rejected; 3 tasks"),
        "{stdout}"
    );
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    assert_eq!(tasks.len(), 3);
    assert_eq!(tasks[1].query, lines[2].query);
    assert!(tasks.iter().all(|task| task.id == task.compute_id()));
    // Decisions hold when the stage runs again, and can be taken back.
    let (after, paid) = (artifact(&fixture), fixture.spent());
    succeed(fixture.program(QUERY, &[]));
    assert_eq!((artifact(&fixture), fixture.spent()), (after, paid));
    let mut lines = {
        succeed(fixture.program(QUERY, &["--export", "review.jsonl"]));
        read()
    };
    assert_eq!(lines[1].decision, Decision::Reject);
    assert_eq!(lines[2].decision, Decision::Change);
    let tasks: Vec<Task> = before
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (line, task) in lines.iter_mut().zip(&tasks) {
        line.decision = Decision::Accept;
        line.query.clone_from(&task.query);
    }
    write(&lines, "");
    succeed(fixture.program(QUERY, &["--import", "review.jsonl"]));
    assert_eq!(artifact(&fixture), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_stops_the_writer_and_a_higher_one_goes_on() {
    let server = writer_endpoint(Duration::ZERO).await;
    let fixture = crawled(&cast::recipe(&server.base_url(), 6, PLAIN, ""));
    // A budget of just more than the first call may cost: what is reserved is far above what is used.
    let caps = (6..60).map(|cap| cap * 500);
    let mut stopped = caps.map(|cap: u64| {
        let usd = format!("budget.usd={}", cap as f64 / 1e6);
        let output = fixture.program(QUERY, &["--set", &usd]).output().unwrap();
        assert_eq!(code(&output), Some(6), "{output:?}");
        assert!(fixture.spent().micro_usd <= cap);
        fixture.spent().calls > 0
    });
    assert!(stopped.any(|began| began));
    let before = server.call_count();
    succeed(fixture.program(QUERY, &[]));
    assert_eq!(fixture.lines::<Task>("tasks.jsonl").len(), 6);
    assert_eq!(repeated(&server), 0, "{before} calls before");
}
