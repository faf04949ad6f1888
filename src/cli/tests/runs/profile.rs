//! `synthesize --profile`: the journal is in PostgreSQL, and the dataset has the same bytes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_run::{ExitCode, Journal};
use pybench_testing::postgres;

use crate::kill::dataset;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::support::kill::kill_after;

/// From three pictures to shards.
fn recipe(teacher: &str) -> String {
    format!(
        "name = 't'\nseed = 7\nteacher = {teacher}\n\n[[crawl.sources]]\nsource = 'local'\npath = 'files'\n\
         license = 'CC0-1.0'\n\n[query]\ntasks = 6\ntemplate_share = 0.5\n\
         keywords = ['rotate image', 'derivative', 'integral']\n\n[rollout]\nconcurrency = 2\n\n\
         [shard]\nheld_out_templates = 1\ntest_fraction = 0.3\n"
    )
}

fn in_profile(fixture: &RunFixture, profile: &Path) -> std::process::Command {
    let mut command = fixture.program("synthesize", &[]);
    command.arg("--profile").arg(profile);
    command
}

/// Requests received more than once, over and above the first.
fn repeated(server: &Endpoint) -> u64 {
    let calls = server.calls();
    calls.values().map(|count| u64::from(*count) - 1).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_in_postgresql_gives_the_same_bytes_over_kills() {
    if !interpreter_is_here() {
        return;
    }
    let Some(profile) = postgres::profile() else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(60)).await;
    let new_run = || RunFixture::bare(&recipe(&openai(&server.base_url(), FREE)));

    let local = new_run();
    for stage in ["crawl", "query"] {
        let written = local.program(stage, &[]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    tasks.set(local.lines("tasks.jsonl")).unwrap();
    let output = local.program("synthesize", &[]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected = dataset(&local);
    let shards = expected
        .keys()
        .filter(|path| path.extension().is_some_and(|end| end == "parquet"));
    assert_eq!(shards.count(), 2);
    let asked = server.calls().len();

    // Undisturbed.
    server.forget();
    let remote = new_run();
    let begun = Instant::now();
    let output = in_profile(&remote, &profile).output().unwrap();
    let whole = begun.elapsed();
    assert!(output.status.success(), "{output:?}");
    assert!(dataset(&remote) == expected, "another dataset");
    assert_eq!((server.calls().len(), repeated(&server)), (asked, 0));
    assert!(!remote.folder().join("journal.sqlite").exists());
    let pointer = std::fs::read_to_string(remote.folder().join("journal.toml")).unwrap();
    assert!(pointer.contains("schema = \"run_t_"), "{pointer}");
    let journal = Journal::read_run(&remote.folder()).unwrap();
    assert_eq!(journal.spent().unwrap().calls, asked as u64);
    drop(journal);
    // Other commands find the journal.
    for command in ["status", "show"] {
        let mut program = crate::support::pybench(command);
        let output = program.arg(remote.folder()).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    // The same command again, with and without the profile, changes nothing and pays for nothing.
    for mut again in [
        in_profile(&remote, &profile),
        remote.program("synthesize", &[]),
    ] {
        assert!(again.output().unwrap().status.success());
        assert!(dataset(&remote) == expected, "another dataset");
        assert_eq!(repeated(&server), 0);
    }

    // Killed at several moments.
    let killed = new_run();
    server.forget();
    let mut kills = 0;
    for part in [0.3, 0.5, 0.7] {
        let mut command = in_profile(&killed, &profile);
        let child = command.process_group(0).spawn().unwrap();
        match kill_after(child, whole.mul_f64(part)) {
            Some(status) => assert!(status.success(), "{status}"),
            None => kills += 1,
        }
    }
    assert!(kills > 0, "no process was killed in the middle");
    let output = in_profile(&killed, &profile).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        dataset(&killed) == expected,
        "another dataset after {kills} kills"
    );
    assert_eq!(server.calls().len(), asked, "the same conversations");
    let spent = Journal::read_run(&killed.folder())
        .unwrap()
        .spent()
        .unwrap();
    assert!(
        repeated(&server) <= spent.uncertain,
        "{} paid twice, {spent:?}",
        repeated(&server)
    );
    eprintln!(
        "{kills} kills, {} calls in flight at them; a run took {whole:?}",
        spent.uncertain
    );

    // Another recipe starts over, and leaves no schema behind.
    let pointer = std::fs::read_to_string(killed.folder().join("journal.toml")).unwrap();
    let pointer: toml::Table = toml::from_str(&pointer).unwrap();
    let schema = pointer["schema"].as_str().unwrap();
    // Other tests have runs of this name on the same server.
    let schemas = || {
        postgres::sql(&format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '{schema}'"
        ))
    };
    assert_eq!(schemas(), "1");
    let mut crawl = killed.program("crawl", &["--set", "seed=8", "--start-over"]);
    let output = crawl.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(schemas(), "0");
    assert!(!killed.folder().join("journal.toml").exists());
}

#[test]
fn a_run_whose_journal_is_elsewhere_is_a_conflict() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let fixture = RunFixture::bare(&recipe("{ kind = 'expert' }"));
    drop(fixture.context());
    let output = in_profile(&fixture, &profile).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(ExitCode::Conflict as i32),
        "{output:?}"
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("is in SQLite; move it with `pybench run move"),
        "{text}"
    );

    let output = in_profile(&fixture, Path::new("missing.toml"))
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(ExitCode::BadInput as i32),
        "{output:?}"
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("profile missing.toml: No such file"),
        "{text}"
    );
}
