//! The model in the form of `pybench-inference`, which serves it on CPUs.

use pybench_inference::{self as inference, Dense, Format, Shape};

use super::llama::{Block, Linear, Model};
use crate::torch::floats;

impl Model {
    /// Packs the model for inference on a CPU in as many threads as libtorch uses. Adapters must be merged. Each block
    /// is dropped once it is packed. An error is one of the system's that a thread could not be started.
    pub fn into_inference(self, format: Format) -> std::io::Result<inference::Model> {
        let size = |number: i64| number as usize;
        let config = &self.config;
        let shape = Shape {
            hidden: size(config.hidden),
            intermediate: size(config.intermediate),
            heads: size(config.heads),
            kv_heads: size(config.kv_heads),
            head_dim: size(config.head_dim),
            vocab: size(config.vocab),
            norm_eps: config.norm_eps as f32,
            frequencies: config.frequencies(),
        };
        let head = self.head.as_ref().map(floats);
        let mut model = inference::Model::new(
            shape,
            format,
            self.blocks.len(),
            size(tch::get_num_threads().into()),
            &floats(&self.embed),
            head.as_deref(),
            floats(&self.norm),
        )?;
        drop((head, self.embed, self.head));
        for block in self.blocks {
            model.add_block(&plain(&block));
        }
        Ok(model)
    }
}

fn plain(block: &Block) -> inference::Block {
    inference::Block {
        input_norm: floats(&block.input_norm),
        q: dense(&block.q),
        k: dense(&block.k),
        v: dense(&block.v),
        o: dense(&block.o),
        post_norm: floats(&block.post_norm),
        gate: dense(&block.gate),
        up: dense(&block.up),
        down: dense(&block.down),
        window: block.window.map(|window| window as usize),
    }
}

fn dense(linear: &Linear) -> Dense {
    Dense {
        weight: floats(&linear.weight),
        bias: linear.bias.as_ref().map(floats),
    }
}
