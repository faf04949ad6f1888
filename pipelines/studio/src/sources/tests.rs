use std::sync::mpsc::channel;
use std::thread;

use pybench_run::FolderStore;

use super::*;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(300);

fn dataset(text: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    let nested = folder.path().join("d/data");
    std::fs::create_dir_all(&nested).unwrap();
    std::fs::write(nested.join("train.jsonl"), text).unwrap();
    let source = TrajectorySource::Dataset(folder.path().join("d"));
    let what = What::One {
        name: "d".into(),
        source,
    };
    let sources = Sources::new(what, folder.path().join("cache"));
    (folder, sources)
}

const ROW: &str = r#"{"messages": [{"role": "user", "content": "Count."}]}"#;

#[test]
fn an_index_follows_files_in_nested_folders() {
    let (folder, sources) = dataset(ROW);
    let count = |sources: &Sources| {
        let opened = sources.open("d").unwrap().unwrap();
        opened.index.page(&Default::default()).unwrap().total
    };
    assert_eq!(count(&sources), 1);
    assert!(sources.open("other").unwrap().is_none());
    std::fs::write(
        folder.path().join("d/data/train.jsonl"),
        format!("{ROW}\n{ROW}"),
    )
    .unwrap();
    let What::One { source, .. } = sources.what else {
        panic!()
    };
    let what = What::One {
        name: "d".into(),
        source,
    };
    let again = Sources::new(what, folder.path().join("cache"));
    assert_eq!(count(&again), 2);
    // The older index is gone.
    assert_eq!(folder.path().join("cache").read_dir().unwrap().count(), 1);
}

#[test]
fn runs_are_found_by_exact_name_only() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/r");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("journal.sqlite"), "").unwrap();
    std::fs::create_dir_all(folder.path().join("runs/other")).unwrap();
    let what = What::Runs(folder.path().join("runs"));
    let sources = Sources::new(what, folder.path().join("cache"));
    let list = sources.list();
    assert_eq!(list.len(), 1);
    assert_eq!((&*list[0].name, &*list[0].state), ("r", "unreadable"));
    for name in ["other", "", ".", "..", "../runs/r", "./r", "r/"] {
        assert!(sources.open(name).unwrap().is_none(), "{name:?}");
    }
}

#[test]
fn the_list_follows_the_state_of_a_run_whose_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/r");
    std::fs::create_dir_all(&run).unwrap();
    let journal = Journal::open(&run.join("journal.sqlite")).unwrap();
    journal.enqueue("rollout", ["a"]).unwrap();
    let what = What::Runs(folder.path().join("runs"));
    let sources = Sources::new(what, folder.path().join("cache"));
    let state = || sources.list().remove(0).state;
    assert_eq!(state(), "unfinished");
    // A process takes the run, and has not written anything yet.
    let process = File::create(run.join("lock")).unwrap();
    process.lock().unwrap();
    assert_eq!(state(), "running");
    drop(process);
    assert_eq!(state(), "unfinished");
}

#[test]
fn files_of_a_dataset_are_checked() {
    let (folder, sources) = dataset(ROW);
    let files = folder.path().join("d/files");
    std::fs::create_dir_all(&files).unwrap();
    let (good, bad) = (Digest::of_bytes(b"good"), Digest::of_bytes(b"other"));
    std::fs::write(files.join(good.as_str()), "good").unwrap();
    std::fs::write(files.join(bad.as_str()), "bad").unwrap();
    let opened = sources.open("d").unwrap().unwrap();
    assert_eq!(opened.file(&good).unwrap(), b"good");
    // As `shard` writes them: by the first digits of their names.
    let nested = Digest::of_bytes(b"nested");
    let part = files.join(&nested.as_str()[..2]);
    std::fs::create_dir_all(&part).unwrap();
    std::fs::write(part.join(nested.as_str()), "nested").unwrap();
    assert_eq!(opened.file(&nested).unwrap(), b"nested");
    for (id, why) in [(&bad, "damaged"), (&Digest::of_bytes(b"none"), "not part")] {
        let error = opened.file(id).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn files_of_a_run_in_a_bucket_are_fetched_when_they_are_opened() {
    let [folder, bucket] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let run = folder.path().join("runs/r");
    std::fs::create_dir_all(&run).unwrap();
    crate::evaluation::tests::write(&run, &[("m", "1", Some(true))]);
    let store = FolderStore::new(bucket.path());
    let [good, page, damaged] =
        ["good", "page", "damaged"].map(|text| Digest::of_bytes(text.as_bytes()));
    let file = folder.path().join("file");
    for (id, bytes) in [(&good, "good"), (&page, "page"), (&damaged, "other")] {
        std::fs::write(&file, bytes).unwrap();
        let key = format!("files/{}/{id}", &id.as_str()[..2]);
        store.put(&key, &file).unwrap();
    }
    let what = What::Runs(folder.path().join("runs"));
    let sources = Sources::new(what, folder.path().join("cache"));
    let sources = sources.with_bucket(Some(Arc::new(store)));
    let opened = sources.open("r").unwrap().unwrap();
    assert!(opened.has(good.as_str()) && !opened.path(&good).exists());
    assert_eq!(opened.file(&good).unwrap(), b"good");
    assert!(opened.path(&good).exists());
    opened.open_file(&page).unwrap();
    opened.fetch_all([&page, &good]).unwrap();
    for (id, why) in [
        (&damaged, "is damaged"),
        (&Digest::of_bytes(b"none"), "not part"),
    ] {
        let error = opened.file(id).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_decision_leaves_the_index_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/r");
    std::fs::create_dir_all(&run).unwrap();
    crate::evaluation::tests::write(&run, &[("m", "1", Some(true))]);
    std::fs::write(run.join("lock"), "").unwrap();
    let what = What::Runs(folder.path().join("runs"));
    let sources = Sources::new(what, folder.path().join("cache"));
    let opened = sources.open("r").unwrap().unwrap();
    let (row, _) = opened.index.record(1).unwrap().unwrap();
    let review = crate::review::Review {
        trajectory: row.id,
        reviewer: "ann".to_owned(),
        decision: None,
        label: "odd".to_owned(),
        comment: String::new(),
    };
    opened.save(|folder| review.save(folder)).unwrap();
    let source = TrajectorySource::Run(run.clone());
    assert_eq!(opened.state(), state(&source).unwrap());
    // While a process works on the run, the index is made again, since the process may have added something.
    let lock = File::create(run.join("lock")).unwrap();
    lock.lock().unwrap();
    let before = opened.state();
    opened.save(|folder| review.save(folder)).unwrap();
    assert_eq!(opened.state(), before);
}

#[test]
fn the_old_list_is_shown_until_the_new_one_is_complete() {
    let (folder, sources) = dataset(ROW);
    let What::One { source, .. } = &sources.what else {
        panic!()
    };
    let state = || state(source).unwrap();
    let old = Arc::new(sources.index(source, state()).unwrap());
    old.index.wait().unwrap();
    let mut open = OpenSource::new(old.clone());
    let rows = format!("{ROW}\n").repeat(20_000);
    std::fs::write(folder.path().join("d/data/train.jsonl"), rows).unwrap();
    let new = Arc::new(sources.index(source, state()).unwrap());
    open.replace(new.clone());
    assert!(open.is_growing() && Arc::ptr_eq(open.shown(), &old));
    new.index.wait().unwrap();
    assert!(!open.is_growing() && Arc::ptr_eq(open.shown(), &new));
    assert_eq!(open.newer(), None);
    let whole = sources.open_whole("d").unwrap().unwrap();
    let page = whole.index.page(&Default::default()).unwrap();
    assert_eq!((page.total, page.indexing), (20_000, None));
}

#[test]
fn a_source_that_opens_slowly_delays_only_those_who_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["large", "small"] {
        let run = folder.path().join("runs").join(name);
        std::fs::create_dir_all(&run).unwrap();
        crate::evaluation::tests::write(&run, &[("m", "1", Some(true))]);
    }
    let what = What::Runs(folder.path().join("runs"));
    let sources = Arc::new(Sources::new(what, folder.path().join("cache")));
    let ask = |name: &'static str| {
        let sources = sources.clone();
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(sources.open(name).unwrap().unwrap()));
        receiver
    };
    // As while the first request for it begins an index.
    let slot = sources.slot("large");
    let opening = lock(&slot);
    let waiting = [ask("large"), ask("large")];
    ask("small").recv_timeout(LONG).unwrap();
    assert!(waiting.iter().all(|one| one.try_recv().is_err()));
    drop(opening);
    let [one, other] = waiting.map(|one| one.recv_timeout(LONG).unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

#[test]
fn a_complete_list_stays_when_the_files_cannot_be_indexed_any_more() {
    let (folder, sources) = dataset(ROW);
    let path = folder.path().join("d/data/train.jsonl");
    let What::One { source, .. } = &sources.what else {
        panic!()
    };
    let state = || state(source).unwrap();
    let begin = || Arc::new(sources.index(source, state()).unwrap());
    let page = |open: &OpenSource| open.shown().page(ListQuery::default()).unwrap();
    let old = begin();
    old.index.wait().unwrap();
    let mut open = OpenSource::new(old.clone());
    for rows in [1, 20_000] {
        std::fs::write(&path, format!("{ROW}\n").repeat(rows) + "no\n").unwrap();
        let broken = begin();
        open.replace(broken.clone());
        assert!(broken.index.wait().is_err());
        assert!(!open.is_growing() && Arc::ptr_eq(open.shown(), &old));
        assert_eq!(open.newer(), None);
        // It is not indexed again before the files change.
        assert!(open.newest().is_current(source, &state()));
        let page = page(&open);
        assert_eq!((page.total, page.indexing), (1, None));
        let failed = broken.index.progress().unwrap();
        assert!(!failed.problem.is_empty());
        assert_eq!(page.outdated, failed.problem);
        // What needs all trajectories does not take the old ones for all.
        assert!(open.shown().wait().is_err());
        assert!(crate::handlers::whole(open.shown(), "d").is_err());
    }
    std::fs::write(&path, format!("{ROW}\n{ROW}\n")).unwrap();
    let whole = begin();
    open.replace(whole.clone());
    whole.index.wait().unwrap();
    assert!(!open.is_growing());
    let page = page(&open);
    assert_eq!((page.total, &*page.outdated), (2, ""));
}
