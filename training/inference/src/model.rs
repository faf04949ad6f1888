//! The model and its forward pass.

use crate::attention::{Attention, Heads, Scratch};
use crate::cache::{Angles, CacheLayout, KvCache, Page, Sequence};
use crate::format::{Format, PANEL};
use crate::matrix::{Inputs, Matrix};
use crate::pool::{Member, Pool};
use crate::rows;
use crate::shape::Shape;
use crate::shared::Shared;
use crate::weights::{Layer, Linear, Weights};
use crate::words::Words;

/// Rows that a task of a matrix product computes.
const TASK_ROWS: usize = 96;

/// New tokens that continue a cached sequence.
#[derive(Debug)]
pub struct Extension<'a> {
    /// The tokens before; `ids` are appended to it.
    pub cache: &'a mut KvCache,
    /// At least one token; each must be in the vocabulary.
    pub ids: &'a [i64],
}

/// Buffers of a pass. Numbers of a row are filled up to whole panels.
#[derive(Debug, Default)]
struct Workspace {
    /// The residual stream.
    x: Words,
    /// Activations, packed for the next product.
    packed: Words,
    qkv: Words,
    attended: Words,
    /// What goes into `down`.
    inner: Words,
    logits: Words,
    cos: Words,
    sin: Words,
    threads: Vec<ThreadBuffers>,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct ThreadBuffers {
    attention: Scratch,
    /// A row of the residual stream, normalized.
    row: Vec<f32>,
    /// Gate and up side by side.
    gate_up: Vec<[f32; 2 * PANEL]>,
}

/// A model with the threads that compute it.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    format: Format,
    weights: Weights,
    attention: Attention,
    workspace: Workspace,
    pool: Pool,
}

impl Model {
    /// Reads and packs the parameters, one after the other. `read(name, put)` calls `put` with the numbers of a
    /// parameter, row after row, in pieces of whole rows, and returns whether the model has it; names are those of
    /// Hugging Face. Only biases may be missing. An error is one of `read`, or the system's that a thread could not be
    /// started.
    pub fn load<E: From<std::io::Error>>(
        shape: Shape,
        format: Format,
        threads: usize,
        read: impl FnMut(&str, &mut dyn FnMut(&[f32])) -> Result<bool, E>,
    ) -> Result<Self, E> {
        let layout = CacheLayout {
            format: format.of_cache(),
            layers: shape.windows.len(),
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        };
        Ok(Self {
            weights: Weights::load(&shape, format, read)?,
            attention: Attention::new(layout, shape.heads),
            workspace: Workspace::default(),
            pool: Pool::new(threads)?,
            format,
            shape,
        })
    }

    /// Computes new tokens of several sequences together. [`Model::logits`] has the results.
    pub fn extend(&mut self, extensions: &mut [Extension<'_>]) {
        let mut pages = std::mem::take(&mut self.workspace.pages);
        pages.clear();
        let mut ends = Vec::with_capacity(extensions.len());
        for one in extensions.iter_mut() {
            one.cache.reserve(one.ids.len(), &self.attention.layout);
            pages.extend(one.cache.pages());
            ends.push(pages.len());
        }
        let (mut rows, mut page) = (0, 0);
        let sequences = extensions.iter().zip(&ends).map(|(one, &end)| {
            let sequence = Sequence {
                start: rows,
                count: one.ids.len(),
                past: one.cache.len(),
                pages: &pages[page..end],
            };
            (rows, page) = (rows + one.ids.len(), end);
            sequence
        });
        let sequences: Vec<_> = sequences.collect();
        let ids: Vec<i64> = extensions.iter().flat_map(|one| one.ids).copied().collect();
        self.forward(&sequences, &ids);
        for one in extensions {
            one.cache.advance(one.ids.len());
        }
        self.workspace.pages = pages;
    }

    /// The logits after the last token of the `sequence`th extension of the last pass.
    pub fn logits(&self, sequence: usize) -> &[f32] {
        let stride = self.head().panels() * PANEL;
        &self.workspace.logits.floats()[sequence * stride..][..self.shape.vocab]
    }

    fn head(&self) -> &Matrix {
        &self.weights.head().matrix
    }

    /// Numbers of a row of queries, keys and values.
    fn qkv_width(&self) -> usize {
        let heads = self.shape.heads + 2 * self.shape.kv_heads;
        (heads * self.shape.head_dim).next_multiple_of(PANEL)
    }

    fn prepare(&mut self, rows: usize, sequences: usize) {
        let shape = &self.shape;
        let attention = shape.heads * shape.head_dim;
        let widest = attention.max(shape.hidden).max(shape.intermediate);
        let (qkv, vocab) = (self.qkv_width(), self.head().panels() * PANEL);
        let work = &mut self.workspace;
        work.x.reserve(rows * shape.hidden.next_multiple_of(PANEL));
        work.packed
            .reserve(rows.max(sequences) * self.format.input_words(widest));
        work.qkv.reserve(rows * qkv);
        work.attended.reserve(rows * attention);
        work.inner
            .reserve(rows * shape.intermediate.next_multiple_of(PANEL));
        work.logits.reserve(sequences * vocab);
        work.cos.reserve(rows * shape.head_dim / 2);
        work.sin.reserve(rows * shape.head_dim / 2);
        while work.threads.len() < self.pool.threads() {
            work.threads.push(ThreadBuffers {
                attention: self.attention.scratch(),
                row: vec![0.0; shape.hidden],
                gate_up: vec![[0.0; 2 * PANEL]; TASK_ROWS],
            });
        }
    }

    fn forward(&mut self, sequences: &[Sequence<'_>], ids: &[i64]) {
        self.prepare(ids.len(), sequences.len());
        let Self {
            shape,
            weights,
            attention,
            workspace: work,
            pool,
            ..
        } = self;
        let pass = Pass {
            shape,
            attention,
            sequences,
            rows: ids.len(),
            hidden: shape.hidden.next_multiple_of(PANEL),
            x: Shared::new(work.x.floats_mut()),
            packed: Shared::new(&mut work.packed),
            qkv: Shared::new(work.qkv.floats_mut()),
            attended: Shared::new(work.attended.floats_mut()),
            inner: Shared::new(work.inner.floats_mut()),
            logits: Shared::new(work.logits.floats_mut()),
            angles: Angles {
                cos: Shared::new(work.cos.floats_mut()),
                sin: Shared::new(work.sin.floats_mut()),
            },
            threads: Shared::new(&mut work.threads),
        };
        pool.run(&|member| {
            pass.embed(member, &weights.embed.matrix, ids);
            for (index, layer) in weights.layers.iter().enumerate() {
                pass.attention(member, index, layer);
                pass.feed_forward(member, layer);
            }
            pass.head(member, &weights.norm, weights.head());
        });
    }
}

/// A forward pass. Each method is called by all threads; its phases end with all threads waiting for each other, so
/// that each phase reads what the ones before it wrote.
struct Pass<'a> {
    shape: &'a Shape,
    attention: &'a Attention,
    sequences: &'a [Sequence<'a>],
    /// Tokens of all sequences.
    rows: usize,
    /// Numbers of a row of the residual stream.
    hidden: usize,
    x: Shared<'a, f32>,
    packed: Shared<'a, u32>,
    qkv: Shared<'a, f32>,
    attended: Shared<'a, f32>,
    inner: Shared<'a, f32>,
    logits: Shared<'a, f32>,
    angles: Angles<'a>,
    threads: Shared<'a, ThreadBuffers>,
}

impl Pass<'_> {
    #[expect(clippy::mut_from_ref, reason = "each thread has its own")]
    fn buffers(&self, member: &Member<'_>) -> &mut ThreadBuffers {
        // SAFETY: the indexes of threads differ, and a thread uses its buffers in one function at a time.
        let own = unsafe { self.threads.part(member.index..member.index + 1) };
        &mut own[0]
    }

    /// Runs `task` for each of `count` rows. A task of the pool has several, because threads that write rows side by
    /// side wait for each other's cache lines.
    fn each_row(&self, member: &Member<'_>, count: usize, mut task: impl FnMut(usize)) {
        let piece = (count / 8).clamp(1, 16);
        member.share(count.div_ceil(piece), |index| {
            let start = index * piece;
            (start..(start + piece).min(count)).for_each(&mut task);
        });
    }

    /// Starts the residual stream, and computes the rotary angles.
    fn embed(&self, member: &Member<'_>, table: &Matrix, ids: &[i64]) {
        let half = self.shape.head_dim / 2;
        self.each_row(member, self.rows, |row| {
            let at = row * half..(row + 1) * half;
            // SAFETY: each task has its own rows.
            let (x, cos, sin) = unsafe {
                (
                    self.x.part(row * self.hidden..(row + 1) * self.hidden),
                    self.angles.cos.part(at.clone()),
                    self.angles.sin.part(at),
                )
            };
            table.unpack(ids[row] as usize, x);
            let after = self.sequences.partition_point(|one| one.start <= row);
            let sequence = &self.sequences[after - 1];
            let position = (sequence.past + row - sequence.start) as f32;
            for (pair, frequency) in self.shape.frequencies.iter().enumerate() {
                (sin[pair], cos[pair]) = (position * frequency).sin_cos();
            }
        });
    }

    /// `x + attention(norm(x))`.
    fn attention(&self, member: &Member<'_>, index: usize, layer: &Layer) {
        let inputs = self.pack_norm(
            member,
            &layer.input_norm,
            &layer.qkv.matrix,
            self.rows,
            |i| i,
        );
        let width = layer.qkv.matrix.panels() * PANEL;
        let output = Output {
            y: self.qkv,
            width,
            added: false,
        };
        self.product(member, &layer.qkv, inputs, self.rows, output);
        let heads = Heads {
            qkv: self.qkv,
            stride: width,
            angles: self.angles,
            out: self.attended,
        };
        let kv_heads = self.shape.kv_heads;
        member.share(self.sequences.len() * kv_heads, |task| {
            let (sequence, head) = (&self.sequences[task / kv_heads], task % kv_heads);
            let scratch = &mut self.buffers(member).attention;
            // SAFETY: each task has its own sequence and head; nobody reads keys and values in this phase.
            unsafe {
                self.attention
                    .append(&heads, sequence, [index, head], scratch)
            };
        });
        let tasks = self.sequences.iter().map(|one| self.attention.tasks(one));
        let tasks: usize = tasks.sum();
        member.share(tasks * kv_heads, |task| {
            // One head after the other, for its keys stay near. The last tokens of a sequence have most keys; they
            // come first.
            let (mut part, head) = (tasks - 1 - task % tasks, task / tasks);
            let scratch = &mut self.buffers(member).attention;
            for sequence in self.sequences {
                let parts = self.attention.tasks(sequence);
                if part < parts {
                    let at = [index, head, part];
                    // SAFETY: all keys and values are stored, and each task has its own part.
                    unsafe {
                        self.attention
                            .attend(&heads, sequence, at, layer.window, scratch);
                    }
                    break;
                }
                part -= parts;
            }
        });
        let inputs = self.pack(member, &layer.o.matrix, |row| {
            let width = layer.o.matrix.inputs();
            // SAFETY: attention is complete.
            unsafe { self.attended.read(row * width..(row + 1) * width) }
        });
        self.product(member, &layer.o, inputs, self.rows, self.residual());
    }

    /// `x + down(silu(gate) · up)` of `norm(x)`.
    fn feed_forward(&self, member: &Member<'_>, layer: &Layer) {
        let gate_up = &layer.gate_up;
        let inputs = self.pack_norm(member, &layer.post_norm, &gate_up.matrix, self.rows, |i| i);
        let width = self.shape.intermediate.next_multiple_of(PANEL);
        let chunks = self.rows.div_ceil(TASK_ROWS);
        let pairs = gate_up.matrix.panels() / 2;
        member.share(pairs * chunks, |task| {
            let (pair, first) = (task % pairs, task / pairs * TASK_ROWS);
            let rows = TASK_ROWS.min(self.rows - first);
            let both = &mut self.buffers(member).gate_up[..rows];
            for (part, panel) in [2 * pair, 2 * pair + 1].into_iter().enumerate() {
                for row in both.iter_mut() {
                    gate_up.set_bias(panel, &mut row[part * PANEL..][..PANEL]);
                }
                let y = both.as_flattened_mut()[part * PANEL..].as_mut_ptr();
                // SAFETY: the inputs are complete, and the buffer has this many rows.
                unsafe {
                    gate_up
                        .matrix
                        .add(panel, inputs, [first, rows], y, 2 * PANEL)
                };
            }
            for (inside, both) in both.iter().enumerate() {
                let start = (first + inside) * width + pair * PANEL;
                // SAFETY: each task has its own panel of its own rows.
                let out = unsafe { self.inner.part(start..start + PANEL) };
                rows::swiglu(&both[..PANEL], &both[PANEL..], out);
            }
        });
        let inputs = self.pack(member, &layer.down.matrix, |row| {
            let start = row * width;
            // SAFETY: the phase before is complete.
            unsafe { self.inner.read(start..start + self.shape.intermediate) }
        });
        self.product(member, &layer.down, inputs, self.rows, self.residual());
    }

    /// The logits after the last token of each sequence.
    fn head(&self, member: &Member<'_>, norm: &[f32], head: &Linear) {
        let count = self.sequences.len();
        let last = |i: usize| self.sequences[i].start + self.sequences[i].count - 1;
        let inputs = self.pack_norm(member, norm, &head.matrix, count, last);
        let output = Output {
            y: self.logits,
            width: head.matrix.panels() * PANEL,
            added: false,
        };
        self.product(member, head, inputs, count, output);
    }

    fn residual(&self) -> Output<'_> {
        Output {
            y: self.x,
            width: self.hidden,
            added: true,
        }
    }

    /// Normalizes row `row(i)` of the residual stream and packs it for `matrix` as row i of `count`.
    fn pack_norm(
        &self,
        member: &Member<'_>,
        weight: &[f32],
        matrix: &Matrix,
        count: usize,
        row: impl Fn(usize) -> usize,
    ) -> Inputs<'_> {
        let words = matrix.format().input_words(matrix.inputs());
        self.each_row(member, count, |i| {
            let start = row(i) * self.hidden;
            // SAFETY: the products before are complete, and each task has its own row.
            let (x, out) = unsafe {
                (
                    self.x.read(start..start + self.shape.hidden),
                    self.packed.part(i * words..(i + 1) * words),
                )
            };
            let normalized = &mut self.buffers(member).row;
            rows::rms_norm(x, weight, self.shape.norm_eps, normalized);
            matrix.format().pack(normalized, out);
        });
        Inputs {
            words: self.packed,
            stride: words,
        }
    }

    /// Packs `row(i)` of every row for `matrix`.
    fn pack<'b>(
        &self,
        member: &Member<'_>,
        matrix: &Matrix,
        row: impl Fn(usize) -> &'b [f32],
    ) -> Inputs<'_> {
        let words = matrix.format().input_words(matrix.inputs());
        self.each_row(member, self.rows, |i| {
            // SAFETY: each task has its own row.
            let out = unsafe { self.packed.part(i * words..(i + 1) * words) };
            matrix.format().pack(row(i), out);
        });
        Inputs {
            words: self.packed,
            stride: words,
        }
    }

    /// The product of `count` rows with a matrix.
    fn product(
        &self,
        member: &Member<'_>,
        linear: &Linear,
        inputs: Inputs<'_>,
        count: usize,
        output: Output<'_>,
    ) {
        let chunks = count.div_ceil(TASK_ROWS);
        let panels = linear.matrix.panels();
        member.share(panels * chunks, |task| {
            let (panel, first) = (task % panels, task / panels * TASK_ROWS);
            let rows = TASK_ROWS.min(count - first);
            let start = |row: usize| (first + row) * output.width + panel * PANEL;
            for row in 0..rows {
                // SAFETY: each task has its own panel of its own rows.
                let y = unsafe { output.y.part(start(row)..start(row) + PANEL) };
                match output.added {
                    true => linear.add_bias(panel, y),
                    false => linear.set_bias(panel, y),
                }
            }
            // SAFETY: as above; the inputs are complete.
            unsafe {
                let y = output
                    .y
                    .part(start(0)..start(rows - 1) + PANEL)
                    .as_mut_ptr();
                linear
                    .matrix
                    .add(panel, inputs, [first, rows], y, output.width);
            }
        });
    }
}

/// Where the results of a product go.
#[derive(Clone, Copy)]
struct Output<'a> {
    y: Shared<'a, f32>,
    /// Numbers of a row.
    width: usize,
    /// Whether they are added to what is there, as to the residual stream.
    added: bool,
}
