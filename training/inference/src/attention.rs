//! Attention of new tokens over the pages of their sequences, with the softmax computed page by page.

use crate::cache::{Angles, CacheLayout, PAGE, Page, Sequence};
use crate::format::PANEL;
use crate::rows;
use crate::shared::Shared;
use crate::tile::{Kernel, Tile};
use crate::words::Words;

/// Rows of queries that a task computes together, if a key head has no more query heads than that.
const ROWS: usize = 48;

/// The attention of a model.
#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) layout: CacheLayout,
    /// Query heads of each key head.
    group: usize,
    kernel: Kernel,
}

/// Queries, keys and values of a pass, and the results.
pub(crate) struct Heads<'a> {
    /// `[rows, stride]`: queries, keys and values of all heads.
    pub(crate) qkv: Shared<'a, f32>,
    pub(crate) stride: usize,
    pub(crate) angles: Angles<'a>,
    /// `[rows, heads · head_dim]`.
    pub(crate) out: Shared<'a, f32>,
}

/// Buffers of one thread.
#[derive(Debug)]
pub(crate) struct Scratch {
    rotated: Vec<f32>,
    queries: Words,
    scores: Vec<[f32; PAGE]>,
    weights: Words,
    out: Words,
    largest: Vec<f32>,
    total: Vec<f32>,
    visible: Vec<[usize; 2]>,
}

impl Attention {
    pub(crate) fn new(layout: CacheLayout, heads: usize) -> Self {
        Self {
            layout,
            group: heads / layout.kv_heads,
            kernel: Kernel::best(layout.format),
        }
    }

    /// New tokens of a sequence that a task computes.
    fn block(&self) -> usize {
        (ROWS / self.group).max(1)
    }

    /// Tasks of [`Attention::attend`] for each key head of a sequence.
    pub(crate) fn tasks(&self, sequence: &Sequence<'_>) -> usize {
        sequence.count.div_ceil(self.block())
    }

    pub(crate) fn scratch(&self) -> Scratch {
        let (rows, layout) = (self.block() * self.group, &self.layout);
        let width = layout.value_panels() * PANEL;
        Scratch {
            rotated: vec![0.0; layout.head_dim],
            queries: Words::zeros(rows * layout.format.input_words(layout.head_dim)),
            scores: vec![[0.0; PAGE]; rows],
            weights: Words::zeros(rows * layout.format.input_words(PAGE)),
            out: Words::zeros(rows * width),
            largest: vec![0.0; rows],
            total: vec![0.0; rows],
            visible: vec![[0; 2]; rows],
        }
    }

    /// Stores the keys and values of the new tokens of a sequence, for one key head.
    ///
    /// # Safety
    ///
    /// Only one thread may do this for a head and a sequence, while nobody reads it or writes to `heads.qkv`.
    pub(crate) unsafe fn append(
        &self,
        heads: &Heads<'_>,
        sequence: &Sequence<'_>,
        [layer, head]: [usize; 2],
        scratch: &mut Scratch,
    ) {
        let (dim, layout) = (self.layout.head_dim, &self.layout);
        let keys = layout.kv_heads * self.group * dim;
        for row in sequence.start..sequence.start + sequence.count {
            // SAFETY: nobody writes to queries, keys and values.
            let qkv = unsafe { heads.qkv.read(row * heads.stride..(row + 1) * heads.stride) };
            let key = &qkv[keys + head * dim..][..dim];
            let value = &qkv[keys + (layout.kv_heads + head) * dim..][..dim];
            self.rotate(heads, row, key, 1.0, &mut scratch.rotated);
            let position = sequence.past + row - sequence.start;
            let (page, slot) = (sequence.pages[position / PAGE], position % PAGE);
            // SAFETY: the pages of new tokens are writable, and this thread alone has this head of them.
            unsafe { layout.store(page, [layer, head, slot], &scratch.rotated, value) };
        }
    }

    fn rotate(&self, heads: &Heads<'_>, row: usize, head: &[f32], scale: f32, out: &mut [f32]) {
        let half = self.layout.head_dim / 2;
        let at = row * half..(row + 1) * half;
        // SAFETY: the angles are complete before attention starts.
        let (cos, sin) = unsafe { (heads.angles.cos.read(at.clone()), heads.angles.sin.read(at)) };
        rows::rotate(head, cos, sin, scale, out);
    }

    /// Computes task `task` of a sequence and a key head: some of its new tokens, for all query heads of the key head.
    ///
    /// # Safety
    ///
    /// Keys and values of all new tokens must be stored. Only one thread may do each task.
    pub(crate) unsafe fn attend(
        &self,
        heads: &Heads<'_>,
        sequence: &Sequence<'_>,
        [layer, head, task]: [usize; 3],
        window: Option<usize>,
        scratch: &mut Scratch,
    ) {
        let first = task * self.block();
        let tokens = first..(first + self.block()).min(sequence.count);
        let rows = tokens.len() * self.group;
        let width = self.layout.value_panels() * PANEL;
        scratch.largest[..rows].fill(f32::NEG_INFINITY);
        scratch.total[..rows].fill(0.0);
        scratch.out[..rows * width].fill(0);
        // SAFETY: passed on to the caller.
        unsafe { self.pack_queries(heads, sequence, head, tokens.clone(), scratch) };
        let from = |token: usize| {
            let end = sequence.past + token + 1;
            window.map_or(0, |window| end.saturating_sub(window))
        };
        let pages = from(tokens.start) / PAGE..(sequence.past + tokens.end).div_ceil(PAGE);
        for page in pages {
            if let Some(&next) = sequence.pages.get(page + 1) {
                self.layout.prefetch(next, layer, head);
            }
            let start = page * PAGE;
            let clip = |key: usize| key.saturating_sub(start).min(PAGE);
            for row in 0..rows {
                let token = tokens.start + row / self.group;
                let end = clip(sequence.past + token + 1);
                scratch.visible[row] = [clip(from(token)).min(end), end];
            }
            // SAFETY: as above; nobody writes to this head of the page now.
            unsafe { self.page(sequence.pages[page], [layer, head, rows], scratch) };
        }
        let dim = self.layout.head_dim;
        for row in 0..rows {
            let (token, query_head) = (row / self.group, head * self.group + row % self.group);
            let row_heads = self.layout.kv_heads * self.group;
            let at = ((sequence.start + tokens.start + token) * row_heads + query_head) * dim;
            // SAFETY: this task alone has these heads of these tokens.
            let out = unsafe { heads.out.part(at..at + dim) };
            let sums = &scratch.out.floats_mut()[row * width..][..dim];
            rows::scale(sums, 1.0 / scratch.total[row], out);
        }
    }

    /// # Safety
    ///
    /// Nobody may write to queries.
    unsafe fn pack_queries(
        &self,
        heads: &Heads<'_>,
        sequence: &Sequence<'_>,
        head: usize,
        tokens: std::ops::Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (dim, format) = (self.layout.head_dim, self.layout.format);
        let words = format.input_words(dim);
        let scale = 1.0 / (dim as f32).sqrt();
        for (index, token) in tokens.enumerate() {
            let row = sequence.start + token;
            let start = row * heads.stride + head * self.group * dim;
            // SAFETY: passed on to the caller.
            let queries = unsafe { heads.qkv.read(start..start + self.group * dim) };
            for (inside, query) in queries.chunks(dim).enumerate() {
                self.rotate(heads, row, query, scale, &mut scratch.rotated);
                let at = (index * self.group + inside) * words;
                format.pack(&scratch.rotated, &mut scratch.queries[at..at + words]);
            }
        }
    }

    /// Adds a page to the sums of `rows` queries.
    ///
    /// # Safety
    ///
    /// Nobody may write to this head of the page.
    unsafe fn page(&self, page: Page, [layer, head, rows]: [usize; 3], scratch: &mut Scratch) {
        let (layout, format) = (&self.layout, self.layout.format);
        let width = layout.value_panels() * PANEL;
        let (scores, visible) = (&mut scratch.scores[..rows], &scratch.visible[..rows]);
        let last = visible.iter().map(|[_, to]| *to).max().unwrap_or(PAGE);
        let panels = last.div_ceil(PANEL);
        for scores in scores.iter_mut() {
            scores[..panels * PANEL].fill(0.0);
        }
        for panel in 0..panels {
            let tile = Tile {
                x: scratch.queries.as_ptr(),
                x_stride: format.input_words(layout.head_dim),
                w: layout.keys(page, layer, head, panel),
                units: format.units(layout.head_dim),
                y: scores.as_flattened_mut()[panel * PANEL..].as_mut_ptr(),
                y_stride: PAGE,
            };
            // SAFETY: all buffers are as large as their rows say.
            unsafe { self.kernel.add(rows, tile) };
        }
        let (largest, total) = (&mut scratch.largest, &mut scratch.total);
        let out = scratch.out.floats_mut();
        rows::softmax_page(scores, panels, visible, largest, total, out, width);
        let words = format.input_words(PAGE);
        for (row, scores) in scores.iter().enumerate() {
            let weights = &mut scratch.weights[row * words..(row + 1) * words];
            format.pack(&scores[..panels * PANEL], weights);
        }
        for panel in 0..layout.value_panels() {
            let tile = Tile {
                x: scratch.weights.as_ptr(),
                x_stride: words,
                w: layout.values(page, layer, head, panel),
                units: format.units(last),
                y: out[panel * PANEL..].as_mut_ptr(),
                y_stride: width,
            };
            // SAFETY: as above.
            unsafe { self.kernel.add(rows, tile) };
        }
    }
}
