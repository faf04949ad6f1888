//! Statistics of attempts: intervals that cover, pairs that are compared as pairs, missing values that
//! stay missing.
//!
//! | what | how | source |
//! | --- | --- | --- |
//! | interval of a rate | Wilson's score interval over tasks | Wilson 1927 |
//! | pass@k, pass^k | unbiased, from n samples with c passes | Chen et al. 2021; Yao et al. 2024 |
//! | interval over tasks and seeds | bootstrap of clusters of tasks | Davison and Hinkley 1997, §3.8; Hesterberg 2015 |
//! | two agents | exact McNemar, paired bootstrap | McNemar 1947 |
//! | several agents | Holm's correction | Holm 1979 |
//! | judge against labels | Cohen's kappa, bootstrap interval | Cohen 1960 |

mod agreement;
mod bootstrap;
mod compare;
mod interval;
mod samples;
mod summary;

pub use agreement::{Agreement, agreement};
pub use bootstrap::{Clustered, bootstrap, clusters, paired};
pub use compare::{Comparison, Flip, compare, compare_all, holm, mcnemar};
pub use interval::{Interval, wilson};
pub use samples::{pass_at_k, pass_hat_k};
pub use summary::{
    AgentSummary, AtK, Bounds, Duels, Measure, MeasureSummary, Rate, Turns, summarise,
};

#[cfg(test)]
mod python_tests;
#[cfg(test)]
mod simulation_tests;
