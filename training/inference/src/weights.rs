//! The parameters of a model, packed while they are read.

use crate::format::{Format, PANEL};
use crate::matrix::Matrix;
use crate::shape::Shape;

/// All parameters.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) embed: Linear,
    /// `None` when tied.
    head: Option<Linear>,
    pub(crate) norm: Vec<f32>,
    pub(crate) layers: Vec<Layer>,
}

/// A packed matrix, and its bias for each panel; empty if there is none.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    bias: Vec<f32>,
}

impl Linear {
    pub(crate) fn set_bias(&self, panel: usize, y: &mut [f32]) {
        match self.bias.is_empty() {
            true => y.fill(0.0),
            false => y.copy_from_slice(&self.bias[panel * PANEL..(panel + 1) * PANEL]),
        }
    }

    pub(crate) fn add_bias(&self, panel: usize, y: &mut [f32]) {
        for (y, bias) in y.iter_mut().zip(self.bias.iter().skip(panel * PANEL)) {
            *y += bias;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) input_norm: Vec<f32>,
    /// Queries, keys and values, one after the other.
    pub(crate) qkv: Linear,
    pub(crate) o: Linear,
    pub(crate) post_norm: Vec<f32>,
    /// Panels of the gate and of the other matrix in turn.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) window: Option<usize>,
}

impl Weights {
    /// As [`crate::Model::load`].
    pub(crate) fn load<E>(
        shape: &Shape,
        format: Format,
        read: impl FnMut(&str, &mut dyn FnMut(&[f32])) -> Result<bool, E>,
    ) -> Result<Self, E> {
        let mut reader = Reader { format, read };
        let (vocab, hidden) = (shape.vocab, shape.hidden);
        let embed = reader.stacked(hidden, &[("model.embed_tokens", vocab)])?;
        let layers = (0..shape.windows.len()).map(|layer| reader.layer(shape, layer));
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = reader.vector("model.norm.weight")?;
        let head = match shape.tied {
            true => None,
            false => Some(reader.stacked(hidden, &[("lm_head", vocab)])?),
        };
        Ok(Self {
            embed,
            head,
            norm,
            layers,
        })
    }

    /// The output matrix.
    pub(crate) fn head(&self) -> &Linear {
        self.head.as_ref().unwrap_or(&self.embed)
    }
}

/// A matrix that becomes a part of a packed one: its name, and where each of its outputs goes.
type Part<'a> = (&'a str, &'a dyn Fn(usize) -> usize);

/// Packs what `read` reads.
struct Reader<F> {
    format: Format,
    read: F,
}

impl<E, F: FnMut(&str, &mut dyn FnMut(&[f32])) -> Result<bool, E>> Reader<F> {
    fn layer(&mut self, shape: &Shape, layer: usize) -> Result<Layer, E> {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let [q, k, v, o] = ["q", "k", "v", "o"].map(|part| name(&format!("self_attn.{part}_proj")));
        let [gate, up, down] = ["gate", "up", "down"].map(|part| name(&format!("mlp.{part}_proj")));
        let [queries, keys] = [shape.heads, shape.kv_heads].map(|heads| heads * shape.head_dim);
        let (hidden, inner) = (shape.hidden, shape.intermediate);
        Ok(Layer {
            input_norm: self.vector(&name("input_layernorm.weight"))?,
            qkv: self.stacked(hidden, &[(&q, queries), (&k, keys), (&v, keys)])?,
            o: self.stacked(queries, &[(&o, hidden)])?,
            post_norm: self.vector(&name("post_attention_layernorm.weight"))?,
            gate_up: self.alternating([inner, hidden], [&gate, &up])?,
            down: self.stacked(inner, &[(&down, hidden)])?,
            window: shape.windows[layer],
        })
    }

    /// Matrices below each other; each is given with the number of its outputs.
    fn stacked(&mut self, inputs: usize, parts: &[(&str, usize)]) -> Result<Linear, E> {
        let outputs = parts.iter().map(|(_, outputs)| outputs).sum();
        let mut linear = self.zeros([outputs, inputs]);
        let mut start = 0;
        for (name, outputs) in parts {
            self.add(&mut linear, (name, &|output| start + output))?;
            start += outputs;
        }
        Ok(linear)
    }

    /// Two matrices whose panels alternate.
    fn alternating(&mut self, [outputs, inputs]: [usize; 2], pair: [&str; 2]) -> Result<Linear, E> {
        let mut linear = self.zeros([2 * outputs.next_multiple_of(PANEL), inputs]);
        for (which, name) in pair.into_iter().enumerate() {
            let place = |output| (output / PANEL * 2 + which) * PANEL + output % PANEL;
            self.add(&mut linear, (name, &place))?;
        }
        Ok(linear)
    }

    fn zeros(&self, shape: [usize; 2]) -> Linear {
        Linear {
            matrix: Matrix::zeros(self.format, shape),
            bias: vec![],
        }
    }

    /// Reads a matrix, and its bias if it has one.
    fn add(&mut self, linear: &mut Linear, (name, place): Part<'_>) -> Result<(), E> {
        let Linear { matrix, bias } = linear;
        let mut outputs = (0..).map(place);
        self.require(&format!("{name}.weight"), &mut |rows| {
            let rows = rows.chunks(matrix.inputs().max(1));
            for (row, output) in rows.zip(&mut outputs) {
                matrix.set(output, row);
            }
        })?;
        let mut outputs = (0..).map(place);
        (self.read)(&format!("{name}.bias"), &mut |numbers| {
            bias.resize(matrix.panels() * PANEL, 0.0);
            for (number, output) in numbers.iter().zip(&mut outputs) {
                bias[output] = *number;
            }
        })?;
        Ok(())
    }

    fn vector(&mut self, name: &str) -> Result<Vec<f32>, E> {
        let mut all = vec![];
        self.require(name, &mut |numbers| all.extend_from_slice(numbers))?;
        Ok(all)
    }

    fn require(&mut self, name: &str, put: &mut dyn FnMut(&[f32])) -> Result<(), E> {
        let found = (self.read)(name, put)?;
        assert!(found, "a model of this shape has no {name}");
        Ok(())
    }
}
