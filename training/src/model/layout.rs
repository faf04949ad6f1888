//! The positions of documents in a batch.

use tch::{Device, Kind, Tensor};

use crate::torch::fused::Sequences;

/// Tokens that attend to each other and to no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Column of the first token.
    pub start: i64,
    pub length: i64,
}

/// The documents in each row of a batch of `rows` × `width` tokens. Columns outside of documents are padding.
/// Describes packed, padded and plain batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    width: i64,
    rows: Vec<Vec<Document>>,
}

impl Layout {
    /// Consecutive documents with these lengths in each row. `None` if a row is longer than `width` or a document
    /// is empty.
    pub fn packed(width: i64, lengths: &[Vec<i64>]) -> Option<Self> {
        let rows = lengths.iter().map(|row| {
            let mut start = 0;
            let documents = row.iter().map(|&length| {
                let document = Document { start, length };
                start += length;
                (length > 0).then_some(document)
            });
            let documents: Option<Vec<_>> = documents.collect();
            documents.filter(|_| start <= width)
        });
        Some(Self {
            width,
            rows: rows.collect::<Option<_>>()?,
        })
    }

    /// One document per row, without padding.
    pub fn plain(rows: usize, width: i64) -> Self {
        let document = Document {
            start: 0,
            length: width,
        };
        Self {
            width,
            rows: vec![vec![document]; rows],
        }
    }

    pub fn width(&self) -> i64 {
        self.width
    }

    pub fn rows(&self) -> &[Vec<Document>] {
        &self.rows
    }

    /// Whether every row is one document without padding.
    pub fn is_plain(&self) -> bool {
        self.rows
            .iter()
            .all(|row| matches!(row[..], [document] if document.length == self.width))
    }

    /// Row, first column and length of each document, int64 `[n, 3]`.
    pub fn documents(&self) -> Tensor {
        let rows = self.rows.iter().enumerate();
        let all: Vec<i64> = rows
            .flat_map(|(row, documents)| {
                let row = row as i64;
                documents.iter().flat_map(move |d| [row, d.start, d.length])
            })
            .collect();
        Tensor::from_slice(&all).view([-1, 3])
    }

    /// All columns of all rows as consecutive sequences; padding forms sequences of its own.
    pub fn sequences(&self, device: Device) -> Sequences {
        let (mut offsets, mut longest) = (vec![0i32], 0);
        for (row, documents) in self.rows.iter().enumerate() {
            let start = row as i64 * self.width;
            let edges = documents.iter().flat_map(|d| [d.start, d.start + d.length]);
            for edge in edges.chain([self.width]) {
                let before = offsets.last().map_or(0, |&last| i64::from(last));
                if start + edge > before {
                    longest = longest.max(start + edge - before);
                    offsets.push((start + edge) as i32);
                }
            }
        }
        Sequences {
            offsets: Tensor::from_slice(&offsets).to_device(device),
            longest,
        }
    }

    /// Position of each token in its document, `[rows, width]`, int64; 0 in padding.
    pub fn positions(&self, device: Device) -> Tensor {
        let mut positions = vec![0i64; self.rows.len() * self.width as usize];
        for (row, documents) in self.rows.iter().enumerate() {
            for document in documents {
                let start = row * self.width as usize + document.start as usize;
                for (offset, position) in positions[start..start + document.length as usize]
                    .iter_mut()
                    .enumerate()
                {
                    *position = offset as i64;
                }
            }
        }
        Tensor::from_slice(&positions)
            .view([self.rows.len() as i64, self.width])
            .to_kind(Kind::Int64)
            .to_device(device)
    }
}
