//! What every store guarantees, wherever it keeps its files.

use std::path::{Path, PathBuf};

use pybench_run::{Journal, RunFolder, S3Store, Store, WhenChanged};
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
                    super::$name(&super::S3Store::new(&server, stringify!($name)).unwrap());
                }
            })*
        }
    };
}

conformance![
    a_file_comes_back_as_it_was,
    a_key_is_never_replaced,
    what_is_missing_is_no_error,
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
