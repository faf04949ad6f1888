//! Changes to a recipe that lower its memory.

use crate::train::recipe::{
    Bf16Update, LoraConfig, Offload, Quantization, Recipe, StateDtype, WeightDtype,
};

/// A change to a recipe, as a user writes it.
pub(super) struct RecipeChange {
    pub(super) text: String,
    pub(super) recipe: Recipe,
}

/// Changes that a recipe has not made yet.
pub(super) fn changes(recipe: &Recipe) -> Vec<RecipeChange> {
    let mut all = vec![];
    let mut change = |text: String, apply: &dyn Fn(&mut Recipe)| {
        let mut changed = recipe.clone();
        apply(&mut changed);
        if changed != *recipe {
            all.push(RecipeChange {
                text,
                recipe: changed,
            });
        }
    };
    change("train.gradient_checkpointing = true".into(), &|r| {
        r.train.gradient_checkpointing = true;
        r.train.recompute_num_layers = None;
    });
    match recipe.optimizer.optimizer_in_bwd {
        false => change("train.micro_batch_size = 1".into(), &|r| {
            r.train.micro_batch_size = 1;
        }),
        // Its rows must stay one micro-batch.
        true => change(
            "train.batch_size = 1 with train.micro_batch_size = 1".into(),
            &|r| {
                (r.train.batch_size, r.train.micro_batch_size) = (1, 1);
            },
        ),
    }
    if recipe.train.gradient_checkpointing && recipe.train.batch_size == 1 {
        change(
            "optimizer.optimizer_in_bwd = true with optimizer.max_grad_norm = 0".into(),
            &|r| {
                r.optimizer.optimizer_in_bwd = true;
                r.optimizer.max_grad_norm = 0.0;
            },
        );
    }
    change("train.dtype = \"bf16\"".into(), &|r| {
        r.train.dtype = WeightDtype::Bf16;
    });
    change("optimizer.state_dtype = \"8bit\"".into(), &|r| {
        r.optimizer.state_dtype = StateDtype::Int8;
    });
    if recipe.train.dtype == WeightDtype::Bf16 {
        change(
            "optimizer.bf16_update = \"stochastic_rounding\"".into(),
            &|r| {
                r.optimizer.bf16_update = Bf16Update::StochasticRounding;
            },
        );
    }
    if recipe.optimizer.offload.is_none() {
        change("optimizer.offload = { disk = \"FOLDER\" }".into(), &|r| {
            r.optimizer.offload = Some(Offload::Disk("FOLDER".into()));
        });
    }
    change("checkpoint.save_steps = 0".into(), &|r| {
        r.checkpoint.save_steps = 0;
    });
    let half = recipe.train.max_seq_len / 2;
    if half >= 256 {
        change(format!("train.max_seq_len = {half}"), &|r| {
            r.train.max_seq_len = half;
        });
    }
    match &recipe.lora {
        None => change("[lora] with rank = 16".into(), &|r| {
            r.lora = Some(LoraConfig {
                rank: 16,
                alpha: 32.0,
                target_modules: vec![],
                dropout: 0.0,
                quantization: None,
            });
        }),
        Some(lora) => {
            let (value, quantization) = match lora.quantization {
                None => ("nf4", Quantization::Nf4),
                Some(_) => ("nf4_double", Quantization::Nf4Double),
            };
            change(format!("lora.quantization = \"{value}\""), &|r| {
                r.lora
                    .iter_mut()
                    .for_each(|lora| lora.quantization = Some(quantization));
            });
        }
    }
    all
}
