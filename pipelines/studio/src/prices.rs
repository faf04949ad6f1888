//! The prices of the models of a run, as its recipe has them.

use std::collections::BTreeMap;
use std::path::Path;

use pybench_eval::run::{AgentChoice, EvalRecipe, RESULTS};
use pybench_llm::price_of;
use pybench_run::{ModelChoice, Price, Recipe};
use pybench_show::TrajectorySource;
use pybench_types::human_edit::HUMAN_EDITED;
use pybench_types::trajectory::Usage;

/// Start of the names of models behind endpoints.
const ENDPOINT: &str = "openai:";

/// Prices of models, or of the agents of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Prices {
    /// Datasets, logs, and runs whose recipe cannot be read.
    #[default]
    Unknown,
    /// The models of a run behind endpoints, by name; the others are free.
    Run(BTreeMap<String, Option<Price>>),
    /// Agents by label.
    Evaluation(BTreeMap<String, Option<Price>>),
}

impl Prices {
    /// The prices of a source.
    pub(crate) fn of(source: &TrajectorySource) -> Self {
        match source {
            TrajectorySource::Run(folder) => Self::of_run(folder),
            TrajectorySource::Dataset(_) | TrajectorySource::InspectLog(_) => Self::Unknown,
        }
    }

    fn of_run(folder: &Path) -> Self {
        let path = folder.join("recipe.toml");
        match folder.join(RESULTS).is_file() {
            true => EvalRecipe::load(&path).map_or(Self::Unknown, |recipe| {
                let agents = recipe.agents.into_iter();
                let priced = agents.map(|(label, choice)| (label, agent_price(&choice)));
                Self::Evaluation(priced.collect())
            }),
            false => Recipe::load(&path, &[])
                .map_or(Self::Unknown, |recipe| Self::Run(endpoint_prices(&recipe))),
        }
    }

    /// The price of a model or agent as the list names it; `None` if it is unknown.
    pub(crate) fn get(&self, name: &str) -> Option<Price> {
        match self {
            Self::Unknown => None,
            Self::Evaluation(agents) => *agents.get(name)?,
            Self::Run(_) if name.starts_with(HUMAN_EDITED) => None,
            Self::Run(endpoints) if name.starts_with(ENDPOINT) => *endpoints.get(name)?,
            Self::Run(_) => Some(Price::default()),
        }
    }
}

/// What tokens cost, in millionths of a US dollar; `None` if they are unknown: some endpoints count none.
pub(crate) fn cost_of(price: Price, usage: Usage) -> Option<u64> {
    let is_known = usage != Usage::default() || price == Price::default();
    is_known.then(|| price.micro_usd(usage))
}

/// The prices of the teachers behind endpoints. That of a name with two prices is unknown.
fn endpoint_prices(recipe: &Recipe) -> BTreeMap<String, Option<Price>> {
    let mut prices = BTreeMap::new();
    for (_, choice) in recipe.teachers() {
        if let ModelChoice::Openai { model, .. } = choice {
            let price = price_of(choice);
            let known = prices.entry(format!("{ENDPOINT}{model}")).or_insert(price);
            if *known != price {
                *known = None;
            }
        }
    }
    prices
}

fn agent_price(agent: &AgentChoice) -> Option<Price> {
    match agent {
        AgentChoice::Config { price, .. } => *price,
        AgentChoice::Script { .. } | AgentChoice::Checkpoint { .. } | AgentChoice::Gguf { .. } => {
            Some(Price::default())
        }
        AgentChoice::Openai { .. } => price_of(&agent.model_choice()?),
        AgentChoice::Human {} | AgentChoice::Trajectories { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_unknown_tokens_is_unknown() {
        let price = Price {
            prompt: 1.0,
            completion: 2.0,
        };
        let usage = Usage {
            prompt_tokens: 1_000_000,
            completion_tokens: 0,
        };
        assert_eq!(cost_of(price, usage), Some(1_000_000));
        assert_eq!(cost_of(price, Usage::default()), None);
        assert_eq!(cost_of(Price::default(), Usage::default()), Some(0));
    }

    #[test]
    fn prices_are_those_of_the_recipe_and_unknown_where_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let prices = |recipe: &str| {
            std::fs::write(folder.path().join("recipe.toml"), recipe).unwrap();
            Prices::of(&TrajectorySource::Run(folder.path().to_owned()))
        };
        let endpoint = |model: &str, rest: &str| {
            format!(
                "{{ kind = 'openai', model = '{model}', base_url = 'https://x.example/v1'{rest} }}"
            )
        };
        let run = prices(&format!(
            "name = 't'\nteacher = {}\nescalation = [{}]\nbudget = {{ tokens = 9 }}\n\n[crawl]\nsources = []\n\n[query]\ntasks = 1\n",
            endpoint("own", ", price = { prompt = 1.0, completion = 2.0 }"),
            endpoint("secret", ""),
        ));
        let price = Price {
            prompt: 1.0,
            completion: 2.0,
        };
        assert_eq!(run.get("openai:own"), Some(price));
        assert_eq!(run.get("expert"), Some(Price::default()));
        for unknown in ["openai:secret", "openai:other", "human-edited:1"] {
            assert_eq!(run.get(unknown), None, "{unknown}");
        }
        assert_eq!(prices("damaged"), Prices::Unknown);
        std::fs::write(folder.path().join(RESULTS), "").unwrap();
        let evaluation = prices(
            "name = 't'\n[agents.a]\nkind = 'gguf'\nmodel = 'm'\n[agents.b]\nkind = 'human'\n",
        );
        assert_eq!(evaluation.get("a"), Some(Price::default()));
        assert_eq!((evaluation.get("b"), evaluation.get("c")), (None, None));
    }
}
