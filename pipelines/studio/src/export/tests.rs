use super::*;
use crate::evaluation::tests::write;
use crate::sources::What;

/// What only hostile text would make.
const ATTACK: &str = "<script>window.owned=1</script><img src=x onerror=alert(1)>\"'";
/// A secret as a model might print it.
const SECRET: &str = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH";

/// Two evaluations of the same tasks, of an agent whose name and code are an attack.
fn runs(folder: &Path) -> Sources {
    for name in ["x", "y"] {
        let run = folder.join("runs").join(name);
        fs::create_dir_all(&run).unwrap();
        let task = format!("{ATTACK}{SECRET}");
        let attempts = [
            (ATTACK, "10", Some(true)),
            (ATTACK, "2", Some(false)),
            (ATTACK, &*task, None),
        ];
        write(&run, &attempts);
    }
    Sources::new(What::Runs(folder.join("runs")), folder.join("cache"))
}

fn args(folder: &Path, trajectories: &[&str]) -> ExportArgs {
    ExportArgs {
        what: None,
        out: folder.join("site"),
        trajectories: trajectories.iter().map(|text| (*text).to_owned()).collect(),
        runs_dir: None,
    }
}

fn export(folder: &Path, trajectories: &[&str]) -> Result<String, RunError> {
    run(&args(folder, trajectories), &runs(folder))
}

/// The files of a folder with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

/// A page as a browser reads it: the templates also escape slashes.
fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap().replace("&#x2f;", "/")
}

fn pages(folder: &Path) -> Vec<(String, String)> {
    let files = files(&folder.join("site")).into_keys();
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "html"));
    pages
        .map(|path| (path.display().to_string(), read(&path)))
        .collect()
}

#[test]
fn a_site_has_leaderboards_tasks_and_the_chosen_trajectories() {
    let folder = tempfile::tempdir().unwrap();
    let text = export(folder.path(), &["x/2", "y?strict=failed"]).unwrap();
    assert!(text.contains("3 task pages, 2 trajectories"), "{text}");
    let site = folder.path().join("site");
    let index = read(&site.join("index.html"));
    // The published rows, ours, and the tasks in their order.
    assert!(index.contains("GPT-4o-mini") && index.contains("s: strict"));
    let (second, tenth) = (index.find("s/2<"), index.find("s/10<"));
    assert!(second.unwrap() < tenth.unwrap(), "{index}");
    let task = read(&site.join("tasks/s/2.html"));
    assert!(task.contains("../../trajectories/y/") && !task.contains("../../trajectories/x/"));
    // The scores of both evaluations, and the check with what was expected.
    assert_eq!(task.matches("strict failed").count(), 2, "{task}");
    let trajectories = files(&site.join("trajectories"));
    assert_eq!(trajectories.len(), 2);
    let results = fs::read(site.join(CONTENTS)).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
    assert!(results["leaderboards"].as_array().unwrap().len() >= 2);
}

#[test]
fn the_same_data_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let made = || {
        export(folder.path(), &["x?"]).unwrap();
        files(&folder.path().join("site"))
    };
    let first = made();
    // An earlier export is replaced.
    assert_eq!(first, made());
    assert!(first.len() >= 8, "{:?}", first.keys());
}

#[test]
fn exports_to_the_same_folder_may_end_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let (args, sources) = (args(folder.path(), &[]), runs(folder.path()));
    run(&args, &sources).unwrap();
    std::thread::scope(|scope| {
        let export = || run(&args, &sources).unwrap();
        let exports = [(); 4].map(|()| scope.spawn(export));
        for one in exports {
            assert!(one.join().unwrap().contains("3 task pages"));
        }
    });
    assert!(folder.path().join("site").join(CONTENTS).is_file());
}

#[test]
fn nothing_in_a_site_is_executed_or_loaded_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let text = export(folder.path(), &["x?", "y?"]).unwrap();
    for (path, page) in pages(folder.path()) {
        let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'self';";
        let policy_at = page.find(policy).unwrap();
        assert!(policy_at < page.find("<title>").unwrap(), "{path}");
        for forbidden in [
            "<script",
            "<img src=x",
            "=\"http",
            "=\"//",
            "url(",
            "@import",
            "<style",
            " style=",
        ] {
            assert!(!page.contains(forbidden), "{path} has {forbidden}");
        }
        assert!(!page.contains(SECRET), "{path}");
    }
    // The attack was there, as text, and the secret was replaced.
    assert!(
        pages(folder.path())
            .iter()
            .any(|(_, page)| page.contains("&lt;script&gt;window.owned=1"))
    );
    assert!(text.contains("replaced secrets"), "{text}");
}

#[test]
fn links_of_a_site_lead_to_its_pages() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), &["x?"]).unwrap();
    let mut links = 0;
    for (path, page) in pages(folder.path()) {
        for link in page.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap();

            let target = match link.split('#').next().unwrap() {
                "" => PathBuf::from(&path),
                target => Path::new(&path).parent().unwrap().join(target),
            };
            assert!(target.is_file(), "{path}: {link}");
            links += 1;
        }
    }
    assert!(links > 10);
}

#[test]
fn what_cannot_be_exported_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (choice, expected) in [
        ("x", "names no trajectory"),
        ("x/one", "no number"),
        ("x/9", "there is no trajectory 9"),
        ("z/1", "no run or dataset `z`"),
        ("x?nothing=1", "unknown field"),
        ("x?strict=never", "no trajectory matches"),
    ] {
        let error = export(folder.path(), &[choice]).unwrap_err().to_string();
        assert!(error.contains(expected), "{choice}: {error}");
        assert!(!folder.path().join("site").exists(), "{choice}");
    }
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("thesis.txt"), "mine").unwrap();
    let error = export(folder.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("no export of the studio"), "{error}");
    assert!(site.join("thesis.txt").is_file());
}
