//! Splits the rows of a csv file into a part for the agent and a part that only the checker gets.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::template::Split;

/// The two parts, each with the header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The part for the agent.
    pub(crate) train: Vec<u8>,
    /// Number of rows in `train`.
    pub(crate) train_rows: u64,
    /// The part for the checker.
    pub(crate) held_out: Vec<u8>,
}

/// Splits the bytes of a csv file. Returns `None` if it cannot be split by lines: quoted line breaks, an
/// encoding that is not a superset of ASCII, or a row count that differs from the profile's.
pub(crate) fn split(bytes: &[u8], rows: u64, split: &Split, rng: &mut ChaCha8Rng) -> Option<Parts> {
    // UTF-16 and UTF-32 have zero bytes.
    if bytes.contains(&0) {
        return None;
    }
    let mut lines = bytes
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let header = lines.next()?;
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    let quotes_pair_up = |line: &&[u8]| line.iter().filter(|b| **b == b'"').count() % 2 == 0;
    if lines.len() as u64 != rows || !lines.iter().all(quotes_pair_up) {
        return None;
    }
    let held_out = (lines.len() as f64 * split.fraction).round() as usize;
    if held_out == 0 || held_out >= lines.len() {
        return None;
    }
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.shuffle(rng);
    let mut is_held_out = vec![false; lines.len()];
    for index in order.into_iter().take(held_out) {
        is_held_out[index] = true;
    }
    let part = |wanted: bool| {
        let rows = lines
            .iter()
            .zip(&is_held_out)
            .filter(|(_, held)| **held == wanted);
        let mut part = header.to_vec();
        for (line, _) in rows {
            part.push(b'\n');
            part.extend_from_slice(line);
        }
        part.push(b'\n');
        part
    };
    Some(Parts {
        train: part(false),
        train_rows: (lines.len() - held_out) as u64,
        held_out: part(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn rule() -> Split {
        Split {
            fraction: 0.3,
            target: "y".into(),
        }
    }

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    #[test]
    fn every_row_is_in_exactly_one_part() {
        let text: String = (0..50).map(|i| format!("{i},\"a,{i}\"\r\n")).collect();
        let bytes = format!("x,y\r\n{text}").into_bytes();
        let parts = split(&bytes, 50, &rule(), &mut rng(1)).unwrap();
        let rows = |part: &[u8]| -> Vec<String> {
            let text = String::from_utf8(part.to_vec()).unwrap();
            assert!(text.starts_with("x,y\n"));
            text.lines().skip(1).map(str::to_owned).collect()
        };
        let (train, held_out) = (rows(&parts.train), rows(&parts.held_out));
        assert_eq!(
            (train.len(), held_out.len(), parts.train_rows),
            (35, 15, 35)
        );
        let mut all: Vec<_> = train.into_iter().chain(held_out).collect();
        all.sort_by_key(|row| row.split(',').next().unwrap().parse::<u32>().unwrap());
        let expected: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(all, expected);
        assert_eq!(split(&bytes, 50, &rule(), &mut rng(1)).unwrap(), parts);
        assert_ne!(split(&bytes, 50, &rule(), &mut rng(2)).unwrap(), parts);
    }

    #[test]
    fn files_that_cannot_be_split_by_lines_are_rejected() {
        let mut rng = rng(0);
        assert!(split(b"x\n\"a\nb\"\n", 1, &rule(), &mut rng).is_none());
        assert!(split(b"x\n\"a\nb\"\nc\nd\n", 4, &rule(), &mut rng).is_none());
        assert!(split(b"x\0\n1\0\n", 1, &rule(), &mut rng).is_none());
        assert!(split(b"x\n1\n", 1, &rule(), &mut rng).is_none());
        assert!(split(b"", 0, &rule(), &mut rng).is_none());
    }
}
