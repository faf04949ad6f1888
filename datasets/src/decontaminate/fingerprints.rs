//! Benchmarks as hashes, so that a program can carry what it has to recognize without the tasks themselves.
//!
//! A fingerprint has 32 bits of the hash of each n-gram of a query, sorted, the BLAKE3 of each file, and a
//! [`TableSketch`] of each table. There is no order and there are no hashes of single words, which a dictionary would
//! undo; 32 bits of a sequence of four words or eight characters, or of a row of a table, fit a great many of them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use pybench_types::id::Digest;

use super::{BenchmarkIndex, BenchmarkTask, Table, TableSketch, Words, sorted_unique};

/// First line of a file with fingerprints.
const HEADER: &str = "# pybench fingerprints 2";
/// What the first line of every version begins with. Files of version 1 have no tables.
const ANY_HEADER: &str = "# pybench fingerprints ";
/// Hexadecimal digits of an n-gram, and of a row of a table.
const DIGITS: usize = 8;
/// A benchmark with more n-grams than this is large: only a sample of each text is kept.
const MAX_NGRAMS: usize = 300_000;
/// Number of n-grams in the sample of a text: those with the smallest hashes.
const SAMPLE: usize = 24;

/// A benchmark that the program recognizes by its fingerprints, which `just fingerprints` writes.
pub struct KnownSuite {
    /// Name in fingerprints.
    pub name: &'static str,
    /// Name for readers.
    pub title: &'static str,
    text: &'static str,
}

/// The benchmarks that every dataset is compared with.
pub const KNOWN_SUITES: [KnownSuite; 10] = [
    KnownSuite {
        name: "pybench",
        title: "PyBench",
        text: include_str!("pybench.fingerprints"),
    },
    KnownSuite {
        name: "wikitablequestions",
        title: "WikiTableQuestions",
        text: include_str!("wikitablequestions.fingerprints"),
    },
    KnownSuite {
        name: "da-dev",
        title: "InfiAgent DA-Dev",
        text: include_str!("da-dev.fingerprints"),
    },
    KnownSuite {
        name: "qrdata",
        title: "QRData",
        text: include_str!("qrdata.fingerprints"),
    },
    KnownSuite {
        name: "m3tooleval",
        title: "M3ToolEval",
        text: include_str!("m3tooleval.fingerprints"),
    },
    KnownSuite {
        name: "mint",
        title: "MINT",
        text: include_str!("mint.fingerprints"),
    },
    KnownSuite {
        name: "humaneval",
        title: "HumanEval",
        text: include_str!("humaneval.fingerprints"),
    },
    KnownSuite {
        name: "mbpp",
        title: "MBPP",
        text: include_str!("mbpp.fingerprints"),
    },
    KnownSuite {
        name: "gsm8k",
        title: "GSM8K",
        text: include_str!("gsm8k.fingerprints"),
    },
    KnownSuite {
        name: "mmlu",
        title: "MMLU",
        text: include_str!("mmlu.fingerprints"),
    },
];

/// The 32 bits of an n-gram's hash that fingerprints keep.
pub(super) const MASK: u64 = u32::MAX as u64;

/// Whether a text is a file with fingerprints.
pub fn is_fingerprints(text: &str) -> bool {
    text.starts_with(ANY_HEADER)
}

/// The fingerprints of tasks, one line each: suite, task, n-grams, files, tables. Tasks without a query are called
/// `file`. Of a large benchmark, a sample of each query is kept.
pub fn write(tasks: &[BenchmarkTask]) -> String {
    let mut ngrams: Vec<Vec<u32>> = tasks.iter().map(ngrams).collect();
    if ngrams.iter().map(Vec::len).sum::<usize>() > MAX_NGRAMS {
        ngrams.iter_mut().for_each(|ngrams| ngrams.truncate(SAMPLE));
    }
    let lines = tasks.iter().zip(&ngrams);
    let mut lines: Vec<String> = lines.map(|(task, ngrams)| line(task, ngrams)).collect();
    lines.sort();
    lines.dedup();
    format!("{HEADER}\n{}", lines.concat())
}

/// The n-grams of a query, sorted.
fn ngrams(task: &BenchmarkTask) -> Vec<u32> {
    let ngrams = Words::of(&task.query);
    let ngrams = sorted_unique(ngrams.ngrams().map(|ngram| ngram & MASK));
    let ngrams = ngrams.into_iter().map(|ngram| ngram as u32);
    ngrams.chain(task.ngrams.iter().copied()).collect()
}

fn line(task: &BenchmarkTask, ngrams: &[u32]) -> String {
    let index = match ngrams.is_empty() && task.query.is_empty() {
        true => "file",
        false => &task.index,
    };
    let files: Vec<&str> = task.files.iter().map(Digest::as_str).collect();
    let sketches = task.tables.iter().filter_map(Table::sketch);
    let sketches = sketches.chain(task.sketches.iter().cloned());
    let sketches: Vec<String> = sketches.map(|sketch| sketch_field(&sketch)).collect();
    format!(
        "{}\t{index}\t{}\t{}\t{}\n",
        task.suite,
        hex(ngrams),
        files.join(" "),
        sketches.join(" ")
    )
}

fn hex(hashes: &[u32]) -> String {
    let mut text = String::with_capacity(DIGITS * hashes.len());
    for hash in hashes {
        let _ = write!(text, "{hash:0DIGITS$x}");
    }
    text
}

fn parse_hex(text: &str) -> Option<Vec<u32>> {
    let whole = text.is_ascii() && text.len().is_multiple_of(DIGITS);
    let hashes = text.as_bytes().chunks(DIGITS).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    });
    hashes.collect::<Option<_>>().filter(|_| whole)
}

/// A table: hash of its columns, number of rows, zero bits, sample.
fn sketch_field(sketch: &TableSketch) -> String {
    let TableSketch {
        columns,
        rows,
        zero_bits,
        sample,
    } = sketch;
    format!("{columns:x}:{rows}:{zero_bits}:{}", hex(sample))
}

fn parse_sketch(text: &str) -> Option<TableSketch> {
    let mut parts = text.split(':');
    let mut next = || parts.next();
    let sketch = TableSketch {
        columns: u64::from_str_radix(next()?, 16).ok()?,
        rows: next()?.parse().ok()?,
        zero_bits: next()?.parse().ok()?,
        sample: parse_hex(next()?)?,
    };
    let ended = next().is_none() && sketch.sample.is_sorted();
    ended.then_some(sketch)
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// The number of a line that is no fingerprint.
pub fn read(text: &str) -> Result<Vec<BenchmarkTask>, usize> {
    let lines = text.lines().enumerate().skip(1);
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let task = |(number, line)| parse(line).ok_or(number + 1);
    lines.map(task).collect()
}

fn parse(line: &str) -> Option<BenchmarkTask> {
    let mut fields = line.split('\t');
    let (suite, index, ngrams, files) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let files = files.split_whitespace();
    let files = files.map(|file| Digest::try_from(file.to_owned()).ok());
    let sketches = fields.next().unwrap_or_default().split_whitespace();
    let task = BenchmarkTask {
        suite: suite.to_owned(),
        index: index.to_owned(),
        ngrams: parse_hex(ngrams)?,
        files: files.collect::<Option<_>>()?,
        sketches: sketches.map(parse_sketch).collect::<Option<_>>()?,
        ..BenchmarkTask::default()
    };
    fields.next().is_none().then_some(task)
}

/// The tasks and files of all [`KNOWN_SUITES`].
pub fn known_tasks() -> Vec<BenchmarkTask> {
    // A test reads the texts; a program without one of them would not compare with that suite.
    let suites = KNOWN_SUITES.iter();
    let tasks = suites.flat_map(|suite| read(suite.text).unwrap_or_default());
    tasks.collect()
}

/// An index of all [`KNOWN_SUITES`].
pub fn known() -> BenchmarkIndex {
    BenchmarkIndex::new(known_tasks())
}

/// Digest of the fingerprints of all [`KNOWN_SUITES`]: what a comparison depends on besides the rows.
pub fn known_digest() -> &'static Digest {
    static DIGEST: LazyLock<Digest> = LazyLock::new(|| {
        let texts: Vec<&str> = KNOWN_SUITES.iter().map(|suite| suite.text).collect();
        Digest::of_json(&texts)
    });
    &DIGEST
}

/// Titles of the [`KNOWN_SUITES`] as an enumeration in a sentence.
pub fn known_titles() -> String {
    let titles: Vec<&str> = KNOWN_SUITES.iter().map(|suite| suite.title).collect();
    match titles.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The title of a suite, or its name if the program does not know it.
pub fn title(suite: &str) -> &str {
    let mut known = KNOWN_SUITES.iter();
    let known = known.find(|known| known.name == suite);
    known.map_or(suite, |known| known.title)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const QUERY: &str = "Plot the monthly sales of every shop in the attached table as a stacked bar chart, with a \
                         legend, and save the picture under the name of the table.";

    fn task() -> BenchmarkTask {
        BenchmarkTask {
            suite: "secret".into(),
            index: "7".into(),
            query: QUERY.into(),
            files: vec![Digest::of_bytes(b"sales")],
            ..BenchmarkTask::default()
        }
    }

    #[test]
    fn a_copy_is_recognized_by_fingerprints_alone() {
        let text = write(&[task()]);
        assert!(is_fingerprints(&text));
        let tasks = read(&text).unwrap();
        assert!(tasks[0].query.is_empty());
        let index = BenchmarkIndex::new(tasks);
        let copy = format!("Hello! {}", QUERY.to_uppercase().replace(',', " "));
        let hits = index.query(&copy);
        assert_eq!((hits.len(), &*hits[0].task), (1, "secret/7"));
        assert!(hits[0].contaminated && hits[0].share > 0.99, "{hits:?}");
        assert!(index.file(&Digest::of_bytes(b"sales"))[0].contaminated);
        let other = "Plot the yearly rainfall of every town in the attached table as a line, with a title, and save \
                     the picture as a PNG file of 300 dpi.";
        assert!(index.query(other).iter().all(|hit| !hit.contaminated));
    }

    #[test]
    fn no_word_and_no_order_is_kept() {
        let text = write(&[task()]);
        let words = QUERY.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| word.len() > 3) {
            assert!(
                !text.to_lowercase().contains(&word.to_lowercase()),
                "{word}"
            );
            let hash = format!("{:08x}", crate::text::hash(&[word.to_lowercase()]) & MASK);
            assert!(!text.contains(&hash), "{word}");
        }
        let ngrams = &read(&text).unwrap()[0].ngrams;
        assert!(ngrams.len() > 20 && ngrams.is_sorted());
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_line() {
        let text = write(&[task()]);
        for damage in [
            "x\t1\tzz\t\n",
            "x\t1\t00000001\n",
            "x\t1\t00000001\tabc\n",
            "x\t1\t000\t\n",
            "x\t1\t\t\t7:1\n",
            "x\t1\t\t\t7:1:0:0000000200000001\n",
            "x\t1\t\t\t\tmore\n",
        ] {
            assert_eq!(read(&(text.clone() + damage)).unwrap_err(), 3, "{damage:?}");
        }
    }

    #[test]
    fn tables_are_written_and_read() {
        let header = ["shop", "month", "sales"].map(str::to_owned);
        let rows = (0..40).map(|n| {
            let row = [
                format!("shop {n}"),
                format!("{}", n % 12),
                format!("{}", 31 * n),
            ];
            row.map(Some).to_vec()
        });
        let table = Table::new(&header, rows);
        let with_table = BenchmarkTask {
            tables: vec![table.clone()],
            ..task()
        };
        let read_back = read(&write(&[with_table])).unwrap();
        assert_eq!(read_back[0].sketches, [table.sketch().unwrap()]);
        assert_eq!(
            read(&write(&read_back)).unwrap(),
            read_back,
            "written again"
        );
        let hits = BenchmarkIndex::new(read_back).table(&table);
        assert!(hits.len() == 1 && hits[0].contaminated, "{hits:?}");
        let version_1 = write(&[task()])
            .replace("s 2\n", "s 1\n")
            .replace("\t\n", "\n");
        assert_eq!(read(&version_1).unwrap(), read(&write(&[task()])).unwrap());
    }

    #[test]
    fn a_sample_stands_for_a_long_query_of_a_large_benchmark() {
        let words = |task: usize| {
            let words = (0..200).map(|n| format!("w{} ", task * 1000 + n));
            words.collect::<String>()
        };
        let tasks: Vec<BenchmarkTask> = (0..1600)
            .map(|number| BenchmarkTask {
                suite: "x".into(),
                index: number.to_string(),
                query: words(number),
                ..BenchmarkTask::default()
            })
            .collect();
        let sampled = read(&write(&tasks)).unwrap();
        assert!(sampled.iter().all(|task| task.ngrams.len() == SAMPLE));
        let index = BenchmarkIndex::new(sampled);
        let hits = index.query(&format!("Hello! {}", words(7)));
        assert!(hits.len() == 1 && hits[0].contaminated, "{hits:?}");
        assert_eq!(hits[0].task, "x/7");
        assert!(index.query(&words(1600)).is_empty());
        let few = read(&write(&tasks[..1500])).unwrap();
        assert!(few.iter().all(|task| task.ngrams.len() == 197));
    }

    #[test]
    fn the_program_knows_every_suite() {
        let mut size = 0;
        for suite in &KNOWN_SUITES {
            size += suite.text.len();
            assert!(
                is_fingerprints(suite.text) && suite.text.is_ascii(),
                "{}",
                suite.name
            );
            let tasks = read(suite.text).unwrap();
            let asked = tasks.iter().filter(|task| !task.ngrams.is_empty());
            let asked: HashSet<&str> = asked.map(|task| task.index.as_str()).collect();
            let expected = match suite.name {
                "pybench" => 143,
                // Three of its 4,344 questions have fewer than four words.
                "wikitablequestions" => 4341,
                "da-dev" => 257,
                "qrdata" => 251,
                "m3tooleval" => 82,
                "mint" => 409,
                "humaneval" => 164,
                "mbpp" => 378,
                "mmlu" => 14_079,
                _ => 1319,
            };
            assert_eq!(asked.len(), expected, "{}", suite.name);
            assert!(tasks.iter().all(|task| task.suite == suite.name));
            let has_files = tasks.iter().any(|task| !task.files.is_empty());
            let only_text = ["mint", "humaneval", "mbpp", "gsm8k", "mmlu"].contains(&suite.name);
            assert_eq!(has_files, !only_text, "{}", suite.name);
        }
        assert!(size < 5 << 20, "{size} bytes");
    }
}
