use super::file::{MAX_LINE, ReadError, read_lines};
use super::*;

pub(crate) fn fingerprint(agents: &[(&str, AgentKind)]) -> EvalFingerprint {
    let agents = agents.iter().map(|(label, kind)| {
        let agent = Agent {
            kind: *kind,
            about: format!("{label}, made for a test"),
            format: "pybench".to_owned(),
            sampling: None,
        };
        ((*label).to_owned(), agent)
    });
    EvalFingerprint {
        suites: Default::default(),
        task_set: "made for a test".to_owned(),
        tasks: Digest::of_bytes(b"tasks"),
        checker: "checker".to_owned(),
        environment: "environment".to_owned(),
        prompts: "prompts".to_owned(),
        limits: [("max_turns".to_owned(), 10)].into(),
        agents: agents.collect(),
    }
}

pub(crate) fn attempt(agent: &str, task: &str, seed: u64, passed: bool) -> Attempt {
    Attempt {
        agent: agent.to_owned(),
        suite: "pybench".to_owned(),
        task: task.to_owned(),
        category: "chart".to_owned(),
        keyword: None,
        clusters: Vec::new(),
        seed,
        outcome: Outcome::Ran,
        scores: Scores {
            upstream: Some(true),
            fixed: Some(passed),
            strict: Some(passed),
        },
        headline: Headline::default(),
        checks: vec![Check::new(
            Score::Strict,
            "text output/a.txt",
            passed,
            "1",
            "2",
        )],
        judgment: None,
        turns: 3,
        max_turns: 10,
        ended_early: false,
        tokens_in: 100,
        tokens_out: 50,
        micro_usd: Some(7),
        seconds: 1.5,
        prompt: "Do it.".to_owned(),
        inputs: Vec::new(),
        trajectory: None,
        outputs: Vec::new(),
    }
}

fn bytes(evaluation: &Evaluation) -> Vec<u8> {
    let mut out = Vec::new();
    evaluation.write_to(&mut out).unwrap();
    out
}

fn refused(bytes: &[u8]) -> (usize, String) {
    match read_lines(bytes) {
        Err(ReadError::Line(line, problem)) => (line, problem),
        Err(ReadError::Io(error)) => panic!("{error}"),
        Ok(_) => panic!("read"),
    }
}

#[test]
fn written_records_are_read_back_in_order() {
    let fingerprint = fingerprint(&[("a", AgentKind::Model), ("b", AgentKind::Null)]);
    let attempts = vec![
        attempt("b", "2", 0, false),
        attempt("a", "10", 1, true),
        attempt("a", "10", 0, true),
        attempt("a", "2", 0, true),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let evaluation = Evaluation::new(fingerprint, attempts);
    evaluation.write(&path).unwrap();
    let read = Evaluation::read(&path).unwrap();
    assert_eq!(read, evaluation);
    let keys: Vec<_> = read
        .attempts
        .iter()
        .map(|a| (&*a.task, &*a.agent, a.seed))
        .collect();
    assert_eq!(
        keys,
        [("2", "a", 0), ("2", "b", 0), ("10", "a", 0), ("10", "a", 1)]
    );
    let mut shuffled = read.attempts.clone();
    shuffled.reverse();
    assert_eq!(
        bytes(&Evaluation::new(read.fingerprint.clone(), shuffled)),
        bytes(&read)
    );
}

#[test]
fn invalid_lines_are_reported_with_their_number() {
    let good = Evaluation::new(
        fingerprint(&[("a", AgentKind::Model)]),
        vec![attempt("a", "1", 0, true)],
    );
    let good = String::from_utf8(bytes(&good)).unwrap();
    assert_eq!(refused(b"").0, 1);
    let record = good.lines().nth(1).unwrap();
    let twice = format!("{good}\n{record}\n");
    let (line, problem) = refused(twice.as_bytes());
    assert!(line == 4 && problem.contains("already"), "{line} {problem}");
    for (from, to, says) in [
        (
            "\"agent\":\"a\"",
            "\"agent\":\"x\"",
            "agent `x` is not listed",
        ),
        (
            "\"seconds\":1.5",
            "\"seconds\":-1.0",
            "not a valid duration",
        ),
        (
            "{\"outcome\":\"ran\"}",
            "{\"outcome\":\"not_run\",\"reason\":\"r\"}",
            "it has a score",
        ),
        ("\"turns\":3", "\"turns\":3,\"more\":1", "unknown field"),
    ] {
        assert!(good.contains(from), "{from} in {good}");
        let (line, problem) = refused(good.replace(from, to).as_bytes());
        assert!(line == 2 && problem.contains(says), "{line} {problem}");
    }
    let long = format!("{good}{}", " ".repeat(MAX_LINE as usize + 1));
    assert!(refused(long.as_bytes()).1.contains("longer"));
}

#[test]
fn files_with_different_fingerprints_do_not_merge() {
    let part = |agent: &str| {
        let attempts = vec![attempt(agent, "1", 0, true)];
        Evaluation::new(fingerprint(&[(agent, AgentKind::Model)]), attempts)
    };
    let whole = Evaluation::merge(vec![part("a"), part("b")]).unwrap();
    assert_eq!(
        (whole.attempts.len(), whole.fingerprint.agents.len()),
        (2, 2)
    );
    let mut other = part("b");
    other.fingerprint.checker = "another".to_owned();
    let error = Evaluation::merge(vec![part("a"), other]).unwrap_err();
    assert!(error.contains("a different checker"), "{error}");
    let error = Evaluation::merge(vec![part("a"), part("a")]).unwrap_err();
    assert!(error.contains("two files"), "{error}");
    let mut other_suite = part("b");
    other_suite.fingerprint.checker = "another".to_owned();
    other_suite
        .fingerprint
        .limits
        .insert("max_turns".to_owned(), 1);
    other_suite.attempts[0].suite = "gsm8k".to_owned();
    let whole = Evaluation::merge(vec![part("a"), other_suite]).unwrap();
    assert_eq!(whole.fingerprint.checker, "checker; another");
    assert_eq!(
        whole.fingerprint.limits.len(),
        2,
        "{:?}",
        whole.fingerprint.limits
    );
    assert!(Evaluation::merge(Vec::new()).is_err());
}

#[test]
fn texts_are_truncated_at_character_boundaries() {
    assert_eq!(cut("äöü", 3), "äöü");
    assert_eq!(cut("äöü", 2), "äö… [cut]");
    let check = Check::new(Score::Strict, "n", false, &"é".repeat(3 * MAX_SHOWN), "");
    assert!(check.expected.chars().count() < MAX_SHOWN + 10);
}

#[test]
fn fuzz_records_never_panic() {
    let good = Evaluation::new(
        fingerprint(&[("a", AgentKind::Model)]),
        vec![attempt("a", "1", 0, true)],
    );
    let good = bytes(&good);
    bolero::check!().for_each(|bytes: &[u8]| {
        let _ = read_lines(bytes);
        let mut changed = good.clone();
        for (place, byte) in bytes
            .chunks_exact(3)
            .map(|c| (usize::from(c[0]) << 8 | usize::from(c[1]), c[2]))
        {
            let at = place % changed.len();
            changed[at] = byte;
        }
        if let Ok(read) = read_lines(&changed[..]) {
            assert_eq!(
                read_lines(&self::bytes(&read)[..]).ok().map(|r| r.attempts),
                Some(read.attempts)
            );
        }
    });
}
