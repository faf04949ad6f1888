//! Compares the near duplicates that are found with the exact result of comparing all pairs.

use std::collections::BTreeSet;

use pybench_datasets::dedup::{
    Clusters, DedupField, DedupSettings, Deduplicator, RowDeduplicator, RowTexts,
};
use pybench_datasets::text::mix;
use pybench_testing::rows as common;
use pybench_types::trajectory::{Message, Role};

/// Deterministic random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 % bound as u64) as usize
    }
}

/// A random word. As in natural language, few words are frequent and many are rare.
fn word(chance: &mut Chance) -> String {
    let rank = 1 << chance.below(12);
    format!("w{}", chance.below(rank + 1))
}

fn query(chance: &mut Chance) -> Vec<String> {
    let length = 12 + chance.below(40);
    (0..length).map(|_| word(chance)).collect()
}

/// A query with some words changed.
fn near(original: &[String], changes: usize, chance: &mut Chance) -> Vec<String> {
    let mut copy = original.to_vec();
    for _ in 0..changes {
        let at = chance.below(copy.len());
        match chance.below(3) {
            0 => copy[at] = word(chance),
            1 => copy.insert(at, word(chance)),
            _ => drop(copy.remove(at)),
        }
    }
    copy
}

/// 1,200 texts: originals, and copies with 0 to 7 changes.
fn corpus() -> Vec<String> {
    let mut chance = Chance(7);
    let mut texts: Vec<String> = Vec::new();
    for _ in 0..400 {
        let original = query(&mut chance);
        texts.push(original.join(" "));
        for _ in 0..2 {
            let changes = chance.below(8);
            texts.push(near(&original, changes, &mut chance).join(" "));
        }
    }
    texts
}

fn clusters(texts: &[String], settings: DedupSettings, rank: impl Fn(usize) -> u32) -> Clusters {
    let folder = tempfile::tempdir().unwrap();
    let mut found = Deduplicator::new(folder.path(), settings).unwrap();
    for (number, text) in texts.iter().enumerate() {
        found.add(text, rank(number)).unwrap();
    }
    found.finish().unwrap()
}

fn jaccard(a: &BTreeSet<u64>, b: &BTreeSet<u64>) -> f64 {
    let common = a.intersection(b).count() as f64;
    common / ((a.len() + b.len()) as f64 - common)
}

#[test]
fn near_duplicates_match_the_exact_result() {
    let texts = corpus();
    for threshold in [0.8, 0.4] {
        matches_the_exact_result(&texts, threshold);
    }
    let folder = tempfile::tempdir().unwrap();
    let low = DedupSettings {
        threshold: 0.3,
        ..DedupSettings::of(DedupField::Query)
    };
    let refused = Deduplicator::new(folder.path(), low).err().unwrap();
    assert!(refused.to_string().contains("from 0.35 to 1"), "{refused}");
}

fn matches_the_exact_result(texts: &[String], threshold: f64) {
    let settings = DedupSettings {
        threshold,
        ..DedupSettings::of(DedupField::Query)
    };
    let found = clusters(texts, settings, |_| 0);
    let sets: Vec<BTreeSet<u64>> = texts
        .iter()
        .map(|text| DedupField::Query.shingles(text).into_iter().collect())
        .collect();
    let (mut sure, mut missed, mut joined, mut far) = (0, 0, 0, 0);
    for a in 0..texts.len() {
        for b in a + 1..texts.len() {
            let exact = jaccard(&sets[a], &sets[b]);
            let together = found.keeper[a] == found.keeper[b];
            if exact >= threshold {
                sure += 1;
                missed += usize::from(!together);
            }
            if together {
                joined += 1;
                // Members of a cluster can be similar to a third text only.
                far += usize::from(exact < threshold - 0.15);
            }
        }
    }
    let recall = 1.0 - missed as f64 / sure as f64;
    let precision = 1.0 - far as f64 / joined as f64;
    println!(
        "near duplicates at {threshold}: recall {recall:.4} of {sure} pairs, precision {precision:.4} of {joined}"
    );
    assert!(sure > 100 && joined > 100, "{sure} {joined}");
    assert!(recall >= 0.98, "{recall}");
    assert!(precision >= 0.98, "{precision}");
}

#[test]
fn planted_duplicates_are_found_and_nothing_else() {
    let mut chance = Chance(11);
    // Long enough that a text with one changed word is a near duplicate and unrelated texts are not.
    let originals: Vec<Vec<String>> = (0..1000)
        .map(|n| {
            let mut words = query(&mut chance);
            words.extend(query(&mut chance));
            words.push(format!("number{n}"));
            words
        })
        .collect();
    let mut texts: Vec<String> = originals.iter().map(|words| words.join(" ")).collect();
    for original in originals.iter().take(300) {
        texts.push(near(original, 1, &mut chance).join(" "));
    }
    let found = clusters(&texts, DedupSettings::of(DedupField::Query), |_| 0);
    let planted = (0..300)
        .filter(|n| found.keeper[1000 + n] == *n as u32)
        .count();
    let wrong = (0..1000).filter(|n| !found.keeps(*n)).count();
    println!("planted near duplicates: {planted} of 300 found, {wrong} of 1000 others joined");
    assert!(planted >= 297, "{planted}");
    assert!(wrong <= 1, "{wrong}");
    assert_eq!(found.groups().len(), planted, "each a cluster of two");
}

#[test]
fn little_memory_gives_the_same_clusters() {
    let texts = corpus();
    let plenty = DedupSettings::of(DedupField::Query);
    let little = DedupSettings {
        memory: 4096,
        ..plenty
    };
    assert_eq!(
        clusters(&texts, plenty, |_| 0),
        clusters(&texts, little, |_| 0)
    );
}

#[test]
fn the_text_with_the_highest_rank_is_kept_or_the_first_on_a_tie() {
    let text = "one two three four five six seven eight".to_owned();
    let texts = vec![
        text.clone(),
        "something else entirely here".into(),
        text.clone(),
        text,
    ];
    let settings = DedupSettings::of(DedupField::Query);
    assert_eq!(clusters(&texts, settings, |_| 0).keeper, [0, 1, 0, 0]);
    let ranks = [1, 9, 5, 5];
    let found = clusters(&texts, settings, |n| ranks[n]);
    assert_eq!(found.keeper, [2, 1, 2, 2]);
    assert_eq!(
        found.groups().into_iter().collect::<Vec<_>>(),
        [(2, vec![0, 2, 3])]
    );
}

/// Rows without cells have their replies instead.
#[test]
fn exact_copies_without_code_are_found() {
    let row = |number: usize, reply: &str| {
        let mut row = common::row(number);
        row.query = "How many rows does the file have, and how many of them are complete?".into();
        row.messages.truncate(2);
        row.messages.push(Message::new(Role::Assistant, reply));
        row
    };
    let answer = "Finished: the file has 17 rows, and 12 of them are complete.";
    let other = "Finished: I could not open it.";
    let rows = [row(1, answer), row(2, answer), row(3, other)];
    for fields in [
        &[DedupField::Code][..],
        &[DedupField::Query, DedupField::Code],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let settings: Vec<_> = fields
            .iter()
            .map(|field| DedupSettings::of(*field))
            .collect();
        let mut found = RowDeduplicator::new(folder.path(), &settings).unwrap();
        for row in &rows {
            found.add(&RowTexts::of(row), 0).unwrap();
        }
        assert_eq!(found.finish().unwrap().keeper, [0, 0, 2], "{fields:?}");
    }
}

#[test]
fn chinese_texts_code_and_empty_texts_are_compared_correctly() {
    let query = DedupSettings::of(DedupField::Query);
    let texts: Vec<String> = [
        "请读取数据文件并画出每个月的平均温度折线图，保存到指定的路径",
        "请读取数据文件，并画出每个月的平均温度折线图；保存到指定的路径。",
        "请统计文本中每个词出现的次数，然后生成一张词云图片",
        "",
        " ",
    ]
    .map(str::to_owned)
    .to_vec();
    assert_eq!(clusters(&texts, query, |_| 0).keeper, [0, 0, 2, 3, 4]);
    let code = DedupSettings::of(DedupField::Code);
    let texts: Vec<String> = [
        "import pandas as pd\ndf = pd.read_csv('a.csv')\nprint(df.mean())",
        "import pandas as pd  # data\n\ndf=pd.read_csv(\"a.csv\")\nprint( df.mean() )",
        "import pandas as pd\ndf = pd.read_csv('b.csv')\ndf.plot(kind='bar')\n",
    ]
    .map(str::to_owned)
    .to_vec();
    assert_eq!(clusters(&texts, code, |_| 0).keeper, [0, 0, 2]);
}
