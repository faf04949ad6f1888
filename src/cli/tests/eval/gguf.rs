//! A GGUF file as an agent, with the real engine. Skipped if the engine is not built or the model is missing.

use pybench_eval::record::{AgentKind, Outcome};
use pybench_eval::run::{AgentChoice, run};

use crate::fixture::{ALONE, SuiteFixture, recipe, setup, tools};
use crate::support::{fixture as project, small_model};

/// SHA-256 of the catalog's model.
const SMOLLM2: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gguf_file_is_evaluated() {
    let (Some(interpreter), Some(model)) = (tools(), small_model()) else {
        return;
    };
    let fixture = SuiteFixture::new();
    let rows: Vec<_> = ALONE
        .iter()
        .map(|index| serde_json::json!({"index": index.to_string(), "user": "What is 2 to the power of 1000?", "file_paths": []}))
        .collect();
    std::fs::write(
        fixture.path("bench/data/meta/task.json"),
        serde_json::json!(rows).to_string(),
    )
    .unwrap();
    std::fs::copy(&model, fixture.path("small.gguf")).unwrap();
    let agent = AgentChoice::Gguf {
        model: "small.gguf".to_owned(),
        sha256: Some(SMOLLM2.to_owned()),
        context: Some(4_096),
        about: None,
    };
    let mut asked = recipe("t", &[("small", agent)]);
    asked.tasks = Some("134-135".to_owned());
    asked.rollout.max_turns = 2;
    asked.rollout.sampling.max_tokens = 24;
    let bench = pybench_eval::suites::pybench::PyBench::new(
        pybench_eval::suites::pybench::upstream::Upstream::open(&fixture.path("bench")).unwrap(),
    )
    .unwrap();
    let setup = setup(&fixture, "run", bench, asked, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let agent = &evaluation.fingerprint.agents["small"];
    assert_eq!(agent.kind, AgentKind::Model);
    assert!(
        agent.about.contains("small-b179c9523d0e"),
        "{}",
        agent.about
    );
    assert_eq!(evaluation.attempts.len(), 2);
    for attempt in &evaluation.attempts {
        assert_eq!(attempt.outcome, Outcome::Ran, "{attempt:?}");
        assert!(
            attempt.tokens_in > 100 && attempt.tokens_out > 0,
            "{attempt:?}"
        );
        assert_eq!(attempt.micro_usd, Some(0));
        assert!(attempt.scores.strict.is_some());
    }
}

/// The same engine as the teacher of a rollout, with a model of the catalog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gguf_file_is_a_teacher() {
    if tools().is_none() || small_model().is_none() {
        return;
    }
    let teacher = "{ kind = 'embedded', model = 'smollm2-135m-instruct', context = 4096 }";
    let rest = "[rollout]\nmax_turns = 2\n[rollout.sampling]\nmax_tokens = 24\n";
    let fixture = project::RunFixture::new(&project::recipe(2, teacher, rest)).await;
    let output = fixture.rollout(&[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(project::code(&output), Some(0), "{stderr}");
    let first = fixture.artifact();
    let trajectories = fixture.trajectories();
    assert_eq!(trajectories.len(), 2);
    for trajectory in &trajectories {
        assert_eq!(
            trajectory.teacher,
            "gguf:smollm2-135m-instruct-b179c9523d0e"
        );
        let spent = trajectory
            .turns
            .iter()
            .map(|turn| turn.usage.completion_tokens);
        assert!(spent.sum::<u64>() > 0);
    }
    // A second run makes no further calls.
    assert_eq!(
        project::code(&fixture.rollout(&[]).output().unwrap()),
        Some(0)
    );
    assert_eq!(fixture.artifact(), first);
}
