//! What every store guarantees, wherever it keeps its files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pybench_run::{
    BucketStore, ExitCode, ExpectedFile, Journal, ObjectServer, RunError, RunFolder, Store,
    WhenChanged,
};
use pybench_testing::faults::{Fate, S3Faults, S3Proxy};
use pybench_testing::{postgres, s3};
use pybench_types::id::Digest;

/// Makes a test of each function for each kind of store.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod folder {
            $(#[test]
            fn $name() {
                let root = tempfile::tempdir().unwrap();
                super::$name(&pybench_run::FolderStore::new(&root.path().join("store")));
            })*
        }

        mod s3_server {
            $(#[test]
            fn $name() {
                if let Some(server) = super::s3::server() {
                    super::$name(&super::BucketStore::new(&server, stringify!($name)).unwrap());
                }
            })*
        }
    };
}

conformance![
    a_file_comes_back_as_it_was,
    a_key_is_never_replaced,
    what_is_missing_is_no_error,
    a_file_that_is_too_large_does_not_appear,
    a_damaged_file_does_not_appear,
    a_folder_with_too_many_files_is_refused,
    keys_are_listed_by_folder,
    wrong_keys_are_refused,
    a_large_file_comes_back_as_it_was,
    many_threads_store_the_same_file,
];

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn fetched(store: &dyn Store, key: &str, to: &Path) -> Option<Vec<u8>> {
    let found = store.fetch(key, to).unwrap();
    found.then(|| std::fs::read(to).unwrap())
}

fn a_file_comes_back_as_it_was(store: &dyn Store) {
    let files = Files::new();
    for bytes in [&b""[..], b"abc", &[0; 70_000]] {
        let key = format!("files/{}", Digest::of_bytes(bytes));
        store.put(&key, &files.write("in", bytes)).unwrap();
        assert_eq!(store.size(&key).unwrap(), Some(bytes.len() as u64));
        assert_eq!(fetched(store, &key, &files.path("out")).unwrap(), bytes);
    }
    // Only complete files appear.
    assert_eq!(std::fs::read_dir(files.0.path()).unwrap().count(), 2);
}

fn a_key_is_never_replaced(store: &dyn Store) {
    let files = Files::new();
    store.put("a/b", &files.write("in", b"first")).unwrap();
    store.put("a/b", &files.write("in", b"second")).unwrap();
    assert_eq!(fetched(store, "a/b", &files.path("out")).unwrap(), b"first");
    store.delete("a/b").unwrap();
    store.put("a/b", &files.path("in")).unwrap();
    assert_eq!(
        fetched(store, "a/b", &files.path("out")).unwrap(),
        b"second"
    );
}

fn what_is_missing_is_no_error(store: &dyn Store) {
    let files = Files::new();
    assert_eq!(fetched(store, "a/missing", &files.path("out")), None);
    assert!(!files.path("out").exists());
    assert_eq!(store.size("a/missing").unwrap(), None);
    assert_eq!(store.list("none").unwrap(), Vec::<String>::new());
    store.delete("a/missing").unwrap();
    // A file of this machine is one.
    assert!(store.put("a/b", &files.path("missing")).is_err());
    assert_eq!(store.size("a/b").unwrap(), None);
}

fn a_file_that_is_too_large_does_not_appear(store: &dyn Store) {
    let (files, key) = (Files::new(), "a/large");
    store.put(key, &files.write("in", b"abc")).unwrap();
    let to = files.path("out");
    let error = store.fetch_up_to(key, &to, 2).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::BadInput);
    assert!(error.to_string().contains("more than 2 bytes"), "{error}");
    assert!(!to.exists());
    assert!(store.fetch_up_to(key, &to, 3).unwrap());
    assert_eq!(std::fs::read(&to).unwrap(), b"abc");
    assert!(!store.fetch_up_to("a/missing", &to, 3).unwrap());
}

fn a_damaged_file_does_not_appear(store: &dyn Store) {
    let files = Files::new();
    let [right, wrong] = [&b"abc"[..], b"abd"].map(Digest::of_bytes);
    let key = format!("files/{right}");
    store.put(&key, &files.write("in", b"abd")).unwrap();
    let to = files.path("out/file");
    let fetch = |digest| store.fetch_expected(&key, &to, &ExpectedFile::with_digest(digest));
    let error = fetch(&right).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::BadInput);
    for words in [right.as_str(), wrong.as_str()] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(std::fs::read_dir(files.path("out")).unwrap().count(), 0);
    assert!(fetch(&wrong).unwrap());
    assert_eq!(std::fs::read(&to).unwrap(), b"abd");
}

fn a_folder_with_too_many_files_is_refused(store: &dyn Store) {
    let files = Files::new();
    let path = files.write("in", b"x");
    for key in ["many/a", "many/b/c"] {
        store.put(key, &path).unwrap();
    }
    assert_eq!(store.list_up_to("many", 2).unwrap().len(), 2);
    let error = store.list_up_to("many", 1).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::BadInput);
    assert!(error.to_string().contains("more than 1 files"), "{error}");
}

fn keys_are_listed_by_folder(store: &dyn Store) {
    let files = Files::new();
    let path = files.write("in", b"x");
    for key in ["l/b", "l/a/c", "l/a/b", "lx/a", "m"] {
        store.put(key, &path).unwrap();
    }
    assert_eq!(store.list("l").unwrap(), ["l/a/b", "l/a/c", "l/b"]);
    assert_eq!(store.list("l/a").unwrap(), ["l/a/b", "l/a/c"]);
}

fn wrong_keys_are_refused(store: &dyn Store) {
    let files = Files::new();
    let path = files.write("in", b"x");
    for key in ["", "/a", "../a", "a//b", "a/.tmp"] {
        assert!(store.put(key, &path).is_err(), "{key}");
        assert!(store.fetch(key, &path).is_err(), "{key}");
        assert!(store.delete(key).is_err(), "{key}");
    }
}

fn a_large_file_comes_back_as_it_was(store: &dyn Store) {
    let files = Files::new();
    // Three parts, the last one of one byte.
    let bytes: Vec<u8> = (0..(16 << 20) + 1).map(|n: u32| (n % 251) as u8).collect();
    let path = files.write("in", &bytes);
    store.put("large/a", &path).unwrap();
    store.put("large/a", &path).unwrap();
    assert_eq!(store.size("large/a").unwrap(), Some(bytes.len() as u64));
    assert!(fetched(store, "large/a", &files.path("out")).unwrap() == bytes);
    assert_eq!(store.list("large").unwrap(), ["large/a"]);
}

fn many_threads_store_the_same_file(store: &dyn Store) {
    let files = Files::new();
    let path = files.write("in", &[7; 100_000]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..4 {
                    store.put(&format!("same/{n}"), &path).unwrap();
                }
            });
        }
    });
    assert_eq!(store.list("same").unwrap().len(), 4);
    assert_eq!(
        fetched(store, "same/0", &files.path("out")).unwrap(),
        [7; 100_000]
    );
}

/// A store behind a proxy, with two seconds for a request.
fn behind(proxy: &S3Proxy, server: &ObjectServer, name: &str) -> BucketStore {
    let server = ObjectServer {
        endpoint: Some(proxy.endpoint()),
        timeout_seconds: 2,
        ..server.clone()
    };
    BucketStore::new(&server, name).unwrap()
}

#[test]
fn requests_that_fail_or_take_too_long_are_repeated() {
    let Some(server) = s3::server() else {
        return;
    };
    let faults = S3Faults {
        errors: 0.25,
        slow: 0.05,
        delay: Duration::from_millis(2_500),
        seed: 7,
    };
    let proxy = S3Proxy::start(server.endpoint.as_deref().unwrap(), faults);
    let (store, files) = (behind(&proxy, &server, "flaky"), Files::new());
    let bytes = |n: u32| vec![n as u8; 1_000 * n as usize];
    for n in 0..24 {
        let path = files.write("in", &bytes(n));
        store.put(&format!("files/{n:02}"), &path).unwrap();
        store.put(&format!("files/{n:02}"), &path).unwrap();
    }
    let large: Vec<u8> = (0..(16 << 20) + 1).map(|n: u32| (n % 251) as u8).collect();
    store.put("large/a", &files.write("large", &large)).unwrap();
    for n in 0..24 {
        let read = fetched(&store, &format!("files/{n:02}"), &files.path("out"));
        assert!(read.unwrap() == bytes(n), "{n}");
    }
    assert!(fetched(&store, "large/a", &files.path("out")).unwrap() == large);
    assert_eq!(store.list("files").unwrap().len(), 24);
    store.delete("files/00").unwrap();
    assert_eq!(store.size("files/00").unwrap(), None);
    assert!(
        proxy.errors() > 5 && proxy.slow() > 1,
        "{} errors, {} slow answers",
        proxy.errors(),
        proxy.slow()
    );
    // Without the proxy: whatever was begun is ended, and all files stay.
    let store = BucketStore::new(&server, "flaky").unwrap();
    store.end_uploads().unwrap();
    assert_eq!(store.end_uploads().unwrap(), 0);
    assert_eq!(store.list("large").unwrap(), ["large/a"]);
}

#[test]
fn a_store_that_refuses_the_key_is_not_asked_for_long() {
    let Some(server) = s3::server() else {
        return;
    };
    let stranger = ObjectServer {
        access_key: Some("stranger".to_owned()),
        ..server
    };
    let (store, files) = (
        BucketStore::new(&stranger, "refused").unwrap(),
        Files::new(),
    );
    let error = store.put("files/a", &files.write("in", b"abc"));
    let error = error.unwrap_err();
    assert!(matches!(error, RunError::StoreRefused(_)), "{error:?}");
    assert_eq!(error.exit_code(), ExitCode::Environment);
    let text = error.to_string();
    assert!(text.contains(&store.describe()), "{text}");
    assert!(text.contains("check the key"), "{text}");
}

/// A proxy that loses the first reply to a request that `is_meant`.
fn losing(server: &ObjectServer, is_meant: fn(&str) -> bool) -> S3Proxy {
    let lost = AtomicBool::new(false);
    let endpoint = server.endpoint.as_deref().unwrap();
    S3Proxy::with(endpoint, Duration::ZERO, move |line| {
        match is_meant(line) && !lost.swap(true, Ordering::Relaxed) {
            true => Fate::ReplyLost,
            false => Fate::Passed,
        }
    })
}

#[test]
fn an_upload_whose_first_reply_was_lost_is_ended() {
    let Some(server) = s3::server() else {
        return;
    };
    let proxy = losing(&server, |line| {
        line.starts_with("POST ") && line.contains("?uploads")
    });
    let (store, files) = (behind(&proxy, &server, "lost_begin"), Files::new());
    let path = files.write("in", &vec![3; 9 << 20]);
    store.put("large/a", &path).unwrap();
    assert_eq!(proxy.errors(), 1);
    // The store of another run does not touch it.
    let other = BucketStore::new(&server, "lost").unwrap();
    assert_eq!(other.end_uploads().unwrap(), 0);
    assert_eq!(store.end_uploads().unwrap(), 1);
    assert_eq!(store.end_uploads().unwrap(), 0);
    assert_eq!(store.size("large/a").unwrap(), Some(9 << 20));
}

#[test]
fn a_file_whose_last_reply_was_lost_is_there() {
    let Some(server) = s3::server() else {
        return;
    };
    let proxy = losing(&server, |line| {
        line.starts_with("POST ") && line.contains("uploadId=")
    });
    let (store, files) = (behind(&proxy, &server, "lost_end"), Files::new());
    let path = files.write("in", &vec![3; 9 << 20]);
    store.put("large/a", &path).unwrap();
    assert_eq!(proxy.errors(), 1);
    assert_eq!(store.end_uploads().unwrap(), 0);
    assert_eq!(store.size("large/a").unwrap(), Some(9 << 20));
}

/// An ended run is copied once for each state that it ended with; the program reads such copies (src/cli/tests/runs/workers.rs).
#[test]
fn an_ended_run_is_copied_to_its_bucket() {
    let (Some(server), Some(profile)) = (s3::server(), postgres::profile()) else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let mut settings = pybench_run::Profile::load(&profile).unwrap();
    settings.store = Some(server.clone());
    let profile = root.path().join("p.toml");
    std::fs::write(&profile, toml::to_string(&settings).unwrap()).unwrap();
    let run = root.path().join("copied-run");
    let folder =
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile))
            .unwrap();
    folder.write("dataset/data/train.parquet", b"rows").unwrap();
    let copies = BucketStore::new(&server, "copied-run").unwrap();
    folder.copy_to_bucket().unwrap();
    assert_eq!(copies.list("copies").unwrap().len(), 1);
    // Nothing has changed.
    folder.copy_to_bucket().unwrap();
    assert_eq!(copies.list("copies").unwrap().len(), 1);
    folder.write("dataset/data/train.parquet", b"more").unwrap();
    folder.copy_to_bucket().unwrap();
    let lists = copies.list("copies").unwrap();
    assert_eq!(lists.len(), 2);
    assert!(lists[1].starts_with("copies/00000002-"), "{lists:?}");
    // recipe, journal, and the shard before and after.
    assert_eq!(copies.list("blobs").unwrap().len(), 4);
    // Another run of the same name leaves them alone.
    let other = root.path().join("other/copied-run");
    let changed = WhenChanged::default();
    let other = RunFolder::open_in_profile(&other, "seed = 2\n", &changed, Some(&profile));
    let refused = other.unwrap().copy_to_bucket().unwrap_err();
    assert_eq!(refused.exit_code(), ExitCode::Conflict);
    let owner = run.to_str().unwrap();
    assert!(refused.to_string().contains(owner), "{refused}");
    assert_eq!(copies.list("copies").unwrap(), lists);
}

/// A run folder that lost its files reads them from the store of its profile.
#[test]
fn a_run_folder_is_filled_from_the_store() {
    let (Some(server), Some(profile)) = (s3::server(), postgres::profile()) else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let mut settings = pybench_run::Profile::load(&profile).unwrap();
    settings.store = Some(server);
    let profile = root.path().join("p.toml");
    std::fs::write(&profile, toml::to_string(&settings).unwrap()).unwrap();
    let run = root.path().join("filled");
    let open = || {
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile))
            .unwrap()
    };
    let numbers =
        pybench_run::artifacts::Artifact::<u32>::new("numbers.jsonl", "a number", "count");
    let folder = open();
    let id = folder.store().put(b"abc").unwrap();
    numbers.write(&folder, [1, 2].map(Ok)).unwrap();
    numbers.write(&folder, [1, 2, 3].map(Ok)).unwrap();
    drop(folder);
    std::fs::remove_dir_all(run.join("files")).unwrap();
    std::fs::remove_file(run.join("numbers.jsonl")).unwrap();
    let folder = open();
    assert_eq!(folder.store().get(&id).unwrap(), b"abc");
    assert_eq!(numbers.read_all(folder.root()).unwrap(), [1, 2, 3]);
    assert!(Journal::exists(folder.root()));
}

/// A worker whose machine has neither the folder of the run nor its files.
#[test]
fn a_worker_on_another_machine_finds_the_run() {
    let (Some(server), Some(profile)) = (s3::server(), postgres::profile()) else {
        return;
    };
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut settings = pybench_run::Profile::load(&profile).unwrap();
    settings.store = Some(server);
    let text = toml::to_string(&settings).unwrap();
    let profiles = [&here, &there].map(|folder| folder.path().join("p.toml"));
    for profile in &profiles {
        std::fs::write(profile, &text).unwrap();
    }
    let (run, elsewhere) = (here.path().join("far-run"), there.path().join("far-run"));
    RunFolder::attach(&elsewhere, &profiles[1]).unwrap();
    assert!(
        !RunFolder::can_join(&elsewhere).unwrap(),
        "it has not begun"
    );

    let recipe = "seed = 1\n";
    let open = |run: &Path| {
        RunFolder::open_in_profile(run, recipe, &WhenChanged::default(), Some(&profiles[0]))
            .unwrap()
    };
    // The names of their schemas begin alike.
    drop(open(&here.path().join("far_run")));
    let numbers =
        pybench_run::artifacts::Artifact::<u32>::new("numbers.jsonl", "a number", "count");
    let folder = open(&run);
    let id = folder.store().put(b"abc").unwrap();
    numbers.write(&folder, [1, 2].map(Ok)).unwrap();

    let join = || {
        RunFolder::attach(&elsewhere, &profiles[1]).unwrap();
        assert!(RunFolder::can_join(&elsewhere).unwrap());
        let worker = RunFolder::join(&elsewhere, &profiles[1]).unwrap();
        pybench_run::artifacts::remove_stale_artifacts(&worker).unwrap();
        worker
    };
    let worker = join();
    assert_eq!(worker.frozen_recipe().unwrap(), recipe);
    assert_eq!(worker.store().get(&id).unwrap(), b"abc");
    assert_eq!(numbers.read_all(&elsewhere).unwrap(), [1, 2]);
    let made = worker.store().put(b"made there").unwrap();
    assert_eq!(folder.store().get(&made).unwrap(), b"made there");
    // An artifact that was written again.
    numbers.write(&folder, [3].map(Ok)).unwrap();
    let worker = join();
    assert_eq!(numbers.read_all(worker.root()).unwrap(), [3]);
    // The coordinator's own folder is left as it is.
    RunFolder::attach(&run, &profiles[0]).unwrap();
    assert!(run.join("recipe.toml").is_file());

    // The run starts over, with another schema.
    drop((folder, worker));
    let changed = "seed = 2\n";
    let again =
        RunFolder::open_in_profile(&run, changed, &WhenChanged::StartOver, Some(&profiles[0]))
            .unwrap();
    let worker = join();
    assert_eq!(worker.frozen_recipe().unwrap(), changed);
    assert_eq!(
        worker
            .store()
            .get(&again.store().put(b"new").unwrap())
            .unwrap(),
        b"new"
    );
}
