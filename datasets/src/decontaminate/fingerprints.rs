//! Benchmarks as hashes, so that a program can carry what it has to recognize without the tasks themselves.
//!
//! A fingerprint has 32 bits of the hash of each n-gram of a query, sorted, and the BLAKE3 of each file. There is no order
//! and there are no hashes of single words, which a dictionary would undo; 32 bits of a sequence of four words or eight
//! characters fit a great many sequences.

use std::fmt::Write as _;

use pybench_types::id::Digest;

use super::{BenchmarkIndex, BenchmarkTask, Words, sorted_unique};

/// First line of a file with fingerprints.
const HEADER: &str = "# pybench fingerprints 1";
/// Fingerprints of PyBench, which `just fingerprints` writes.
const PYBENCH: &str = include_str!("pybench.fingerprints");
/// Hexadecimal digits of an n-gram.
const DIGITS: usize = 8;

/// The 32 bits of an n-gram's hash that fingerprints keep.
pub(super) const MASK: u64 = u32::MAX as u64;

/// Whether a text is a file with fingerprints.
pub fn is_fingerprints(text: &str) -> bool {
    text.starts_with(HEADER)
}

/// The fingerprints of tasks, one line each: suite, task, n-grams, files. Tasks without a query are called `file`.
pub fn write(tasks: &[BenchmarkTask]) -> String {
    let mut lines: Vec<String> = tasks.iter().map(line).collect();
    lines.sort();
    lines.dedup();
    format!("{HEADER}\n{}", lines.concat())
}

fn line(task: &BenchmarkTask) -> String {
    let ngrams = Words::of(&task.query);
    let ngrams = sorted_unique(ngrams.ngrams().map(|ngram| ngram & MASK));
    let mut hex = String::with_capacity(DIGITS * ngrams.len());
    for ngram in &ngrams {
        let _ = write!(hex, "{ngram:0DIGITS$x}");
    }
    let index = match task.query.is_empty() {
        true => "file",
        false => &task.index,
    };
    let files: Vec<&str> = task.files.iter().map(Digest::as_str).collect();
    format!("{}\t{index}\t{hex}\t{}\n", task.suite, files.join(" "))
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
    let whole = ngrams.is_ascii() && ngrams.len().is_multiple_of(DIGITS);
    let ngrams = ngrams.as_bytes().chunks(DIGITS).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    });
    let files = files.split_whitespace();
    let files = files.map(|file| Digest::try_from(file.to_owned()).ok());
    let task = BenchmarkTask {
        suite: suite.to_owned(),
        index: index.to_owned(),
        ngrams: ngrams.collect::<Option<_>>()?,
        files: files.collect::<Option<_>>()?,
        ..BenchmarkTask::default()
    };
    (whole && fields.next().is_none()).then_some(task)
}

/// An index of PyBench's tasks and files.
pub fn pybench() -> BenchmarkIndex {
    // A test reads the file; a program without it warns of nothing.
    BenchmarkIndex::new(read(PYBENCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
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
        ] {
            assert_eq!(read(&(text.clone() + damage)).unwrap_err(), 3, "{damage:?}");
        }
    }

    #[test]
    fn the_program_knows_pybench() {
        assert!(is_fingerprints(PYBENCH) && PYBENCH.len() < 64 << 10);
        let tasks = read(PYBENCH).unwrap();
        let asked = tasks.iter().filter(|task| !task.ngrams.is_empty()).count();
        assert_eq!(asked, 143);
        assert!(PYBENCH.is_ascii(), "no text");
    }
}
