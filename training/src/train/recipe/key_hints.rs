//! Help for unknown keys: names from TRL, torchtune, Axolotl and PEFT, and former names of ours.

/// Keys of other tools, and our key or what to do instead.
const RENAMED: &[(&str, &str)] = &[
    ("lr", "optimizer.learning_rate"),
    ("rate", "optimizer.learning_rate"),
    ("lr_scheduler_type", "optimizer.lr_scheduler"),
    ("scheduler", "optimizer.lr_scheduler"),
    ("schedule", "optimizer.lr_scheduler"),
    ("warmup", "optimizer.warmup_steps"),
    ("num_warmup_steps", "optimizer.warmup_steps"),
    ("lr_warmup_steps", "optimizer.warmup_steps"),
    ("warmup_ratio", "optimizer.warmup_steps"),
    ("floor", "optimizer.min_lr_ratio"),
    ("cosine_min_lr_ratio", "optimizer.min_lr_ratio"),
    ("min_lr_rate", "optimizer.min_lr_ratio"),
    ("min_lr", "optimizer.min_lr_ratio"),
    ("beta1", "optimizer.betas"),
    ("beta2", "optimizer.betas"),
    ("adam_beta1", "optimizer.betas"),
    ("adam_beta2", "optimizer.betas"),
    ("epsilon", "optimizer.eps"),
    ("adam_epsilon", "optimizer.eps"),
    ("decay", "optimizer.weight_decay"),
    ("clip", "optimizer.max_grad_norm"),
    ("clip_grad_norm", "optimizer.max_grad_norm"),
    ("gradient_clipping", "optimizer.max_grad_norm"),
    ("moments", "optimizer.state_dtype"),
    ("optim", "optimizer.state_dtype"),
    ("optimizer_type", "optimizer.state_dtype"),
    ("updates", "optimizer.bf16_update"),
    ("spike", "optimizer.loss_spike_threshold"),
    ("loss_watchdog_threshold", "optimizer.loss_spike_threshold"),
    ("offload_optimizer", "optimizer.offload"),
    ("is_paged", "optimizer.offload"),
    ("fused_backward_pass", "optimizer.optimizer_in_bwd"),
    ("optimizer_in_backward", "optimizer.optimizer_in_bwd"),
    ("context", "train.max_seq_len"),
    ("max_length", "train.max_seq_len"),
    ("max_seq_length", "train.max_seq_len"),
    ("seq_len", "train.max_seq_len"),
    ("sequence_len", "train.max_seq_len"),
    ("cutoff_len", "train.max_seq_len"),
    ("model_max_length", "train.max_seq_len"),
    ("rows", "train.batch_size"),
    ("rows", "held_out.max_conversations"),
    ("train_batch_size", "train.batch_size"),
    ("global_batch_size", "train.batch_size"),
    ("gradient_accumulation_steps", "train.batch_size"),
    ("micro_rows", "train.micro_batch_size"),
    ("per_device_train_batch_size", "train.micro_batch_size"),
    ("per_device_batch_size", "train.micro_batch_size"),
    ("steps", "train.max_steps"),
    ("num_steps", "train.max_steps"),
    ("max_train_steps", "train.max_steps"),
    ("epochs", "train.num_epochs"),
    ("num_train_epochs", "train.num_epochs"),
    ("recompute", "train.gradient_checkpointing"),
    ("activation_checkpointing", "train.gradient_checkpointing"),
    (
        "enable_activation_checkpointing",
        "train.gradient_checkpointing",
    ),
    ("use_gradient_checkpointing", "train.gradient_checkpointing"),
    ("weights", "train.dtype"),
    ("bf16", "train.dtype"),
    ("fp16", "train.dtype"),
    ("torch_dtype", "train.dtype"),
    ("precision", "train.dtype"),
    ("mixed_precision", "train.dtype"),
    ("pad_may_be_trained", "train.allow_trained_pad"),
    ("train_on_inputs", "train.prompt_weight"),
    ("train_on_input", "train.prompt_weight"),
    ("r", "lora.rank"),
    ("lora_r", "lora.rank"),
    ("lora_rank", "lora.rank"),
    ("lora_alpha", "lora.alpha"),
    ("lora_dropout", "lora.dropout"),
    ("targets", "lora.target_modules"),
    ("lora_target_modules", "lora.target_modules"),
    ("lora_attn_modules", "lora.target_modules"),
    ("quantise", "lora.quantization"),
    ("quantize", "lora.quantization"),
    ("quantize_base", "lora.quantization"),
    ("load_in_4bit", "lora.quantization"),
    ("bnb_4bit_quant_type", "lora.quantization"),
    ("bnb_4bit_use_double_quant", "lora.quantization"),
    ("dpo_beta", "dpo.beta"),
    ("pref_beta", "dpo.beta"),
    ("rl_beta", "dpo.beta"),
    ("pref_loss", "dpo.loss_type"),
    ("dpo_label_smoothing", "dpo.label_smoothing"),
    ("rpo_alpha", "dpo.loss_weights"),
    ("every", "checkpoint.save_steps"),
    ("save_every", "checkpoint.save_steps"),
    ("save_interval", "checkpoint.save_steps"),
    ("keep", "checkpoint.save_total_limit"),
    ("keep_last_n_checkpoints", "checkpoint.save_total_limit"),
    ("model_name_or_path", "model"),
    ("base_model", "model"),
    ("pretrained_model_name_or_path", "model"),
    ("shape", "model_config"),
    ("datasets", "data"),
    ("dataset", "data"),
    ("dataset_name", "data"),
    ("dataset_path", "data"),
    ("about", "data.size_hint"),
    ("generated", "agent_eval"),
    ("eval", "held_out"),
    ("output_dir", "--out on the command line"),
];

/// Sections of our keys, for a key that is in the wrong one.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "train",
        &[
            "max_seq_len",
            "batch_size",
            "micro_batch_size",
            "max_steps",
            "num_epochs",
            "overflow",
            "prompt_weight",
            "observation_weight",
            "allow_trained_pad",
            "gradient_checkpointing",
            "recompute_num_layers",
            "dtype",
            "curriculum",
        ],
    ),
    (
        "optimizer",
        &[
            "learning_rate",
            "lr_scheduler",
            "warmup_steps",
            "min_lr_ratio",
            "betas",
            "eps",
            "weight_decay",
            "max_grad_norm",
            "bf16_update",
            "state_dtype",
            "optimizer_in_bwd",
            "offload",
            "loss_spike_threshold",
        ],
    ),
    (
        "lora",
        &["rank", "alpha", "target_modules", "dropout", "quantization"],
    ),
    ("checkpoint", &["save_steps", "save_total_limit"]),
    (
        "dpo",
        &["beta", "loss_type", "loss_weights", "label_smoothing"],
    ),
];

/// What to write instead, for serde's message about an unknown field; empty where nothing is known.
pub(super) fn hint(message: &str) -> String {
    let Some((key, expected)) = unknown_field(message) else {
        return String::new();
    };
    let same_section = |ours: &str| {
        let name = ours.rsplit('.').next().unwrap_or(ours);
        expected.contains(&name)
    };
    let renamed = RENAMED.iter().filter(|(theirs, _)| *theirs == key);
    let ours = renamed
        .clone()
        .find(|(_, ours)| same_section(ours))
        .or_else(|| renamed.clone().next());
    if let Some((_, ours)) = ours {
        return format!("the key `{key}` is called `{ours}` here{}", remark(key));
    }
    let section = SECTIONS.iter().find(|(_, keys)| keys.contains(&key));
    if let Some((section, _)) = section {
        return format!("`{key}` belongs to the section [{section}]");
    }
    let similar = expected
        .into_iter()
        .map(|known| (strsim::jaro_winkler(known, key), known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match similar {
        Some((similarity, known)) if similarity > 0.8 => format!("did you mean `{known}`?"),
        _ => String::new(),
    }
}

/// How a value is converted, where it is not the same.
fn remark(key: &str) -> &'static str {
    match key {
        "warmup_ratio" => ", in steps",
        "min_lr" => ", as a fraction of learning_rate",
        "beta1" | "beta2" | "adam_beta1" | "adam_beta2" => ", a pair: [0.9, 0.95]",
        "gradient_accumulation_steps" => {
            ", the rows of a whole step: micro_batch_size × accumulation steps × processes"
        }
        "optim" | "optimizer_type" => {
            ": the optimizer is AdamW, \"8bit\" stores its state in 8 bits; what others call paged is optimizer.offload"
        }
        "rpo_alpha" => ": loss_type = [\"sigmoid\", \"sft\"] with loss_weights = [1, ALPHA]",
        "is_paged" => ", \"cpu\" or { disk = \"FOLDER\" }",
        "bf16" | "fp16" | "mixed_precision" => ": \"float32\" or \"bf16\"",
        "train_on_inputs" | "train_on_input" => ": 1 trains prompts like replies, 0 not at all",
        "bnb_4bit_use_double_quant" => " = \"nf4_double\"",
        "load_in_4bit" | "bnb_4bit_quant_type" | "quantize_base" => " = \"nf4\"",
        "targets" | "lora_attn_modules" => ", a list such as [\"q_proj\", \"v_proj\"]",
        _ => "",
    }
}

/// The key and the known keys of serde's message "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.split_once("unknown field `")?.1;
    let (key, rest) = rest.split_once('`')?;
    // Every second part between backticks is a name.
    let expected = rest.split('`').skip(1).step_by(2).collect();
    Some((key, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_prefer_the_section_of_the_key() {
        let in_train = "unknown field `rows`, expected one of `max_seq_len`, `batch_size`";
        assert!(hint(in_train).contains("`train.batch_size`"));
        let in_held_out = "unknown field `rows`, expected one of `path`, `max_conversations`";
        assert!(hint(in_held_out).contains("`held_out.max_conversations`"));
        let misplaced =
            "unknown field `learning_rate`, expected one of `max_seq_len`, `batch_size`";
        assert!(hint(misplaced).contains("[optimizer]"));
        let typo = "unknown field `max_step`, expected one of `max_steps`, `batch_size`";
        assert!(hint(typo).contains("`max_steps`"));
        assert_eq!(hint("unknown field `zzz`, expected `path`"), "");
        assert_eq!(hint("missing field `name`"), "");
    }
}
