//! What must hold for the values of a recipe.

use std::path::Path;

use super::{LoraChoice, Optimizer, Recipe, RecipeError, Train};

impl Recipe {
    /// Fails with [`RecipeError::Value`] on the first value that is out of bounds.
    pub(super) fn check(&self, path: &Path) -> Result<(), RecipeError> {
        let parts = [
            self.source_rules(),
            self.train.rules(),
            self.optimizer.rules(),
            self.lora.iter().flat_map(LoraChoice::rules).collect(),
        ];
        match parts.into_iter().flatten().find(|rule| !rule.holds) {
            None => Ok(()),
            Some(Rule {
                key, value, wanted, ..
            }) => Err(RecipeError::Value {
                path: path.into(),
                key,
                value,
                wanted,
            }),
        }
    }

    fn source_rules(&self) -> Vec<Rule> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let named = (1..=64).contains(&self.name.len()) && self.name.chars().all(fits);
        let weights = self.data.iter().map(|source| source.weight);
        let bad = weights.clone().find(|w| !(0.0..=1000.0).contains(w));
        let name = &self.name;
        vec![
            rule(named, "name", name, "1 to 64 letters, digits, `-` or `_`"),
            rule(!self.data.is_empty(), "data", "[]", "at least one source"),
            rule(
                bad.is_none(),
                "data.weight",
                bad.unwrap_or_default(),
                "0 to 1000",
            ),
        ]
    }
}

/// What must hold for a value of a recipe.
struct Rule {
    holds: bool,
    key: &'static str,
    value: String,
    wanted: &'static str,
}

fn rule(holds: bool, key: &'static str, value: impl ToString, wanted: &'static str) -> Rule {
    let value = value.to_string();
    Rule {
        holds,
        key,
        value,
        wanted,
    }
}

fn positive(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

fn is_share(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

impl Train {
    fn rules(&self) -> Vec<Rule> {
        let weight = |x: f32| (0.0..=1000.0).contains(&x);
        let (context, rows) = (
            (2..=1 << 24).contains(&self.context),
            (1..=1 << 20).contains(&self.rows),
        );
        let micro = (1..=self.rows).contains(&self.micro_rows);
        let one = self.steps.is_some() != self.epochs.is_some();
        let epochs = self.epochs.is_none_or(|e| positive(e) && e <= 1e4);
        let masks = weight(self.prompt_weight) && weight(self.observation_weight);
        let both = format!(
            "{}, observation_weight = {}",
            self.prompt_weight, self.observation_weight
        );
        let steps = match (self.steps, self.epochs) {
            (Some(steps), Some(epochs)) => format!("{steps}, epochs = {epochs}"),
            _ => "(none)".to_owned(),
        };
        vec![
            rule(
                context,
                "train.context",
                self.context,
                "2 to 16777216 tokens",
            ),
            rule(rows, "train.rows", self.rows, "1 to 1048576"),
            rule(
                micro,
                "train.micro_rows",
                self.micro_rows,
                "1 to train.rows",
            ),
            rule(one, "train.steps", steps, "give either steps or epochs"),
            rule(
                epochs,
                "train.epochs",
                self.epochs.unwrap_or_default(),
                "above 0, at most 10000",
            ),
            rule(masks, "train.prompt_weight", both, "each 0 to 1000"),
        ]
    }
}

impl Optimizer {
    fn rules(&self) -> Vec<Rule> {
        let betas = is_share(self.betas.0) && is_share(self.betas.1);
        let bounds = self.clip >= 0.0 && self.decay >= 0.0 && (0.0..=1.0).contains(&self.floor);
        let spike = self.spike.is_finite() && self.spike >= 0.0;
        let rates = positive(self.rate) && positive(self.epsilon);
        let floor = "floor is 0 to 1, clip and decay 0 or more";
        vec![
            rule(
                rates,
                "optimizer.rate",
                self.rate,
                "rate and epsilon are above 0",
            ),
            rule(
                betas,
                "optimizer.betas",
                format!("{:?}", self.betas),
                "each from 0 to below 1",
            ),
            rule(bounds, "optimizer.floor", self.floor, floor),
            rule(spike, "optimizer.spike", self.spike, "0 or more"),
        ]
    }
}

impl LoraChoice {
    fn rules(&self) -> Vec<Rule> {
        let rank = (1..=4096).contains(&self.rank) && positive(self.alpha);
        let dropout = is_share(self.dropout);
        vec![
            rule(
                rank,
                "lora.rank",
                self.rank,
                "rank is 1 to 4096, alpha above 0",
            ),
            rule(dropout, "lora.dropout", self.dropout, "from 0 to below 1"),
        ]
    }
}
