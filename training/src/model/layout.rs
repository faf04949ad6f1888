//! Where documents lie in a batch.

use tch::{Device, Kind, Tensor};

/// A run of tokens that see each other and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Column of the first token.
    pub start: i64,
    /// Tokens.
    pub length: i64,
}

/// The documents of every row of a batch of `rows` × `width` tokens. Columns that belong to none are
/// padding: nothing looks at them. Packed, padded and plain batches are all of this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    width: i64,
    rows: Vec<Vec<Document>>,
}

impl Layout {
    /// Rows of documents that lie one after another from column 0 on; `lengths[row]` are theirs.
    /// `None` when a row is longer than `width` or a document is empty.
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

    /// Rows of one document each that fill the batch.
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

    /// Columns.
    pub fn width(&self) -> i64 {
        self.width
    }

    /// The documents of each row.
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
