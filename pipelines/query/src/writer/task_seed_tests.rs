use std::collections::{BTreeMap, BTreeSet};

use super::*;
use pybench_testing::files::{cars, picture};

fn query(tasks: usize, more: &str) -> Query {
    let text = format!(
        "tasks = {tasks}\n{more}\n[writer]\ntries = 3\n\
         generator = {{ kind = 'openai', model = 'g', base_url = 'http://h' }}\n"
    );
    toml::from_str(&text).unwrap()
}

fn files() -> Vec<SourceFile> {
    let tables = (0..4).map(|n| cars(&format!("cars{n}.csv")));
    let pictures = (0..3).map(|n| picture(&format!("picture{n}.png")));
    tables.chain(pictures).collect()
}

fn seeds(query: &Query) -> Result<TaskSeeds, RunError> {
    let library = Library::embedded().unwrap();
    TaskSeeds::new(&library, &files(), query, query.writer.as_ref().unwrap(), 7)
}

fn first<'a>(seeds: &'a TaskSeeds) -> Vec<TaskSeed<'a>> {
    (0..seeds.slots())
        .map(|slot| seeds.at(slot, 0).unwrap())
        .collect()
}

fn counts<T: Ord>(things: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    things.for_each(|thing| *counts.entry(thing).or_default() += 1);
    counts
}

#[test]
fn tasks_are_balanced_and_reproducible() {
    let query = query(60, "languages = { en = 0.75, zh = 0.25 }");
    let (one, other) = (seeds(&query).unwrap(), seeds(&query).unwrap());
    let (all, again) = (first(&one), first(&other));
    let items = |seeds: &[TaskSeed<'_>]| seeds.iter().map(|i| i.item.clone()).collect::<Vec<_>>();
    assert_eq!(items(&all), items(&again));
    assert_eq!(items(&all).into_iter().collect::<BTreeSet<_>>().len(), 60);
    let samples: BTreeSet<_> = all.iter().map(|seed| seed.sample).collect();
    assert_eq!(samples.len(), 60);
    assert_eq!(counts(all.iter().map(|i| i.language))[&Language::Zh], 15);
    let difficulties = counts(all.iter().map(|i| i.difficulty));
    assert!(
        difficulties.values().all(|count| *count == 20),
        "{difficulties:?}"
    );
    let categories = counts(all.iter().map(|i| i.keyword.category));
    assert!(
        categories.values().all(|count| *count == 12),
        "{categories:?}"
    );
    for seed in &all {
        let kinds: Vec<_> = seed.files.iter().map(|file| file.kind).collect();
        assert_eq!(kinds.is_empty(), seed.keyword.files.is_empty(), "{seed:?}");
        assert!(kinds.iter().all(|kind| seed.keyword.files.contains(kind)));
    }
    // Files of one type are used equally often.
    let used = counts(all.iter().flat_map(|i| &i.files).map(|file| &file.name));
    let of = |end: &str| {
        used.iter()
            .filter(|(name, _)| name.ends_with(end))
            .map(|(_, n)| *n)
            .collect::<Vec<_>>()
    };
    for end in [".csv", ".png"] {
        let used = of(end);
        assert!(
            used.iter().max().unwrap() - used.iter().min().unwrap() <= 1,
            "{end}: {used:?}"
        );
    }
}

#[test]
fn weights_shift_the_balance_and_zero_excludes() {
    let weights = "[writer.balance]\ncategories = { chart = 3, math = 0, text = 0, software = 0 }\n\
                   keywords = { 'rotate image' = 0 }\ndifficulties = { easy = 0, hard = 3 }";
    let mut query = query(40, "");
    query.writer.as_mut().unwrap().balance =
        toml::from_str(&weights.replace("[writer.balance]\n", "")).unwrap();
    let seeds = seeds(&query).unwrap();
    let all = first(&seeds);
    let categories = counts(all.iter().map(|i| i.keyword.category));
    assert_eq!(
        categories,
        BTreeMap::from([(Category::Chart, 30), (Category::ImageAudio, 10)])
    );
    assert!(all.iter().all(|i| i.keyword.name != "rotate image"));
    let difficulties = counts(all.iter().map(|i| i.difficulty));
    assert_eq!(
        difficulties,
        BTreeMap::from([(Difficulty::Medium, 10), (Difficulty::Hard, 30)])
    );
}

#[test]
fn the_next_attempt_keeps_the_topic_and_changes_the_file() {
    let query = query(30, "keywords = ['group by', 'merge', 'derivative']");
    let seeds = seeds(&query).unwrap();
    for slot in 0..seeds.slots() {
        let attempts: Vec<_> = (0..3)
            .map(|attempt| seeds.at(slot, attempt).unwrap())
            .collect();
        let [one, two, _] = attempts.as_slice() else {
            panic!()
        };
        assert_eq!(
            (&one.keyword, one.language, one.difficulty),
            (&two.keyword, two.language, two.difficulty)
        );
        assert_ne!(one.sample, two.sample);
        let names = |seed: &TaskSeed<'_>| {
            seed.files
                .iter()
                .map(|f| f.name.clone())
                .collect::<BTreeSet<_>>()
        };
        match &*one.keyword.name {
            "derivative" => assert!(names(one).is_empty()),
            "merge" => {
                assert_eq!(names(one).len(), 2);
                assert!(names(one).is_disjoint(&names(two)));
            }
            _ => assert_ne!(names(one), names(two)),
        }
        assert!(seeds.at(slot, 3).is_none());
    }
    assert!(seeds.at(30, 0).is_none());
}

#[test]
fn a_run_without_applicable_keywords_is_refused() {
    let error = seeds(&query(3, "keywords = ['trim audio']"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no keyword is left"), "{error}");
    let mut wrong = query(3, "");
    let keywords = &mut wrong.writer.as_mut().unwrap().balance.keywords;
    keywords.insert("rotate imag".into(), 2.0);
    let error = seeds(&wrong).unwrap_err().to_string();
    assert!(error.contains("did you mean `rotate image`?"), "{error}");
}

#[test]
fn required_files_leave_out_keywords_without_files() {
    let fileless = |more: &str| {
        let query = query(40, more);
        let seeds = seeds(&query).unwrap();
        let without = first(&seeds);
        without.iter().filter(|seed| seed.files.is_empty()).count()
    };
    assert!(fileless("") > 0);
    assert_eq!(fileless("files = 'required'"), 0);
}
