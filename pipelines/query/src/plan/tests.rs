use std::collections::HashMap;

use super::*;
use pybench_testing::files::{cars, picture};

fn recipe(tasks: usize, share: f64) -> Query {
    let text = format!("tasks = {tasks}\ntemplate_share = {share}");
    toml::from_str(&text).unwrap()
}

fn files() -> Vec<SourceFile> {
    let tables = (0..5).map(|i| cars(&format!("cars{i}.csv")));
    let pictures = (0..5).map(|i| picture(&format!("picture{i}.png")));
    tables.chain(pictures).collect()
}

fn planned(query: &Query, seed: u64) -> Vec<PlannedTask> {
    planned_without(query, seed, &[])
}

/// A plan in which these tasks were replaced.
fn planned_without(query: &Query, seed: u64, dropped: &[usize]) -> Vec<PlannedTask> {
    let folder = tempfile::tempdir().unwrap();
    let store = ContentStore::open(folder.path()).unwrap();
    let library = small_library();
    let files = files();
    let mut planner = Planner::new(&library, &files, query, seed, &store).unwrap();
    let mut plan = planner.plan(languages(query, seed));
    let others: Vec<_> = dropped
        .iter()
        .map(|at| planner.replace(&plan[*at]).unwrap())
        .collect();
    let mut number = 0..;
    plan.retain(|_| !dropped.contains(&number.next().unwrap()));
    plan.extend(others);
    plan
}

/// A library of three templates, so that counts do not change when templates are added.
fn small_library() -> Library {
    let folder = tempfile::tempdir().unwrap();
    let root = std::path::Path::new(pybench_testing::ROOT).join("pipelines/library/templates");
    for name in [
        "chart/csv-group-mean",
        "image_audio/image-rotate",
        "math/math-derivative",
    ] {
        let to = folder.path().join("templates").join(format!("{name}.toml"));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root.join(format!("{name}.toml")), to).unwrap();
    }
    Library::read(folder.path()).unwrap()
}

fn counts<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

/// A template without Chinese text takes part in English tasks only.
#[test]
fn chinese_tasks_come_from_templates_with_chinese_text() {
    let folder = tempfile::tempdir().unwrap();
    let store = ContentStore::open(folder.path()).unwrap();
    let root = std::path::Path::new(pybench_testing::ROOT).join("pipelines/library/templates");
    for name in ["math-derivative", "fraction-sum"] {
        let text = std::fs::read_to_string(root.join(format!("math/{name}.toml"))).unwrap();
        let mut template: toml::Table = text.parse().unwrap();
        if name == "fraction-sum" {
            template["query"].as_table_mut().unwrap().remove("zh");
        }
        let to = folder
            .path()
            .join("templates/math")
            .join(format!("{name}.toml"));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, toml::to_string(&template).unwrap()).unwrap();
    }
    let library = Library::read(folder.path()).unwrap();
    let mut query = recipe(20, 1.0);
    query.languages = [(Language::En, 0.5), (Language::Zh, 0.5)].into();
    let mut planner = Planner::new(&library, &[], &query, 1, &store).unwrap();
    let plan = planner.plan(languages(&query, 1));
    assert_eq!(plan.len(), 20);
    let chinese = plan.iter().filter(|task| task.language == Language::Zh);
    let templates = counts(chinese.map(|task| &*task.template));
    assert_eq!(templates, [("math-derivative", 10)].into());
}

#[test]
fn the_plan_has_the_requested_size_and_is_balanced() {
    let plan = planned(&recipe(30, 0.4), 3);
    assert_eq!(plan.len(), 30);
    let templates = counts(plan.iter().map(|p| p.template.clone()));
    assert_eq!(
        templates.values().copied().collect::<Vec<_>>(),
        [10, 10, 10]
    );
    let languages = counts(plan.iter().map(|p| p.language));
    assert_eq!(languages[&Language::En], 18);
    let used = counts(plan.iter().flat_map(|p| p.files.clone()));
    assert!(used.values().all(|n| *n == 2), "{used:?}");
    let items = counts(plan.iter().map(|p| p.item.clone()));
    assert_eq!(items.len(), 30);
}

#[test]
fn no_template_exceeds_its_share() {
    let plan = planned(&recipe(40, 0.25), 3);
    let templates = counts(plan.iter().map(|p| p.template.clone()));
    assert!(templates.values().all(|n| *n <= 10), "{templates:?}");
    assert_eq!(plan.len(), 30, "three templates of ten each");
}

#[test]
fn the_seed_determines_the_plan() {
    assert_eq!(planned(&recipe(20, 1.0), 5), planned(&recipe(20, 1.0), 5));
    assert_ne!(planned(&recipe(20, 1.0), 5), planned(&recipe(20, 1.0), 6));
}

#[test]
fn others_take_the_places_of_dropped_tasks() {
    let query = recipe(20, 1.0);
    let before = planned(&query, 5);
    let after = planned_without(&query, 5, &[3, 7]);
    assert_eq!(after.len(), 20);
    assert!(after[18..].iter().all(|planned| !before.contains(planned)));
    let languages = |plan: &[PlannedTask]| counts(plan.iter().map(|planned| planned.language));
    assert_eq!(languages(&after), languages(&before));
}

#[test]
fn every_possible_task_is_planned_once() {
    let mut query = recipe(200, 1.0);
    query.keywords = vec!["rotate image".into()];
    let plan = planned(&query, 1);
    assert_eq!(plan.len(), 10, "five pictures, two angles");
    query.keywords = vec!["rotate images".into()];
    let library = Library::embedded().unwrap();
    let error = known_keywords(&library, &query).unwrap_err().to_string();
    assert!(error.contains("did you mean `rotate image`?"), "{error}");
}

#[test]
fn languages_have_exact_shares() {
    let languages = |query: &Query| allocate(query.tasks, &query.languages, &mut rng(&1));
    let allocated = languages(&recipe(7, 1.0));
    assert_eq!(counts(allocated.into_iter())[&Language::En], 4);
    let mut query = recipe(3, 1.0);
    query.languages = [(Language::Zh, 1.0)].into();
    assert_eq!(languages(&query), [Language::Zh; 3]);
}

#[test]
fn required_files_leave_out_templates_without_inputs() {
    let mut query = recipe(12, 1.0);
    let fileless = |plan: &[PlannedTask]| plan.iter().filter(|task| task.files.is_empty()).count();
    let any = planned(&query, 1);
    assert!(fileless(&any) > 0);
    query.files = FileUse::Required;
    let required = planned(&query, 1);
    assert_eq!((required.len(), fileless(&required)), (12, 0));
}
