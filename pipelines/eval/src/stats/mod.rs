//! Statistics of attempts: rates with confidence intervals, paired comparisons, and bounds for missing
//! values.
//!
//! | quantity | method | source |
//! | --- | --- | --- |
//! | interval of a rate | Wilson score interval over tasks | Wilson 1927 |
//! | pass@k, pass^k | unbiased estimator from n samples with c passes | Chen et al. 2021; Yao et al. 2024 |
//! | interval over tasks and seeds | cluster bootstrap over tasks | Davison and Hinkley 1997, §3.8; Hesterberg 2015 |
//! | mean over suites | limits recovered from those of the suites (MOVER); suites with the same tasks as one | Zou and Donner 2008 |
//! | two agents | exact McNemar test, paired bootstrap | McNemar 1947 |
//! | several agents | Holm correction | Holm 1979 |
//! | judge vs. human labels | Cohen's kappa, bootstrap interval | Cohen 1960 |

mod bootstrap;
mod compare;
mod families;
mod over_suites;
mod samples;
mod summary;

pub use bootstrap::{ClusteredMean, bootstrap, clusters, paired};
pub use compare::{Comparison, Flip, compare, compare_all, holm, mcnemar};
pub use families::whole_suite;
pub use over_suites::{OverSuites, SuiteRate, SuitesMean, over_suites};
pub use pybench_checks::agreement::{Agreement, agreement};
pub use pybench_checks::interval::{Interval, wilson};
pub use samples::{pass_at_k, pass_hat_k};
pub use summary::{
    AgentSummary, AtK, Bounds, Duels, Measure, MeasureSummary, Rate, Turns, summarize,
};

#[cfg(test)]
mod python_tests;
#[cfg(test)]
mod simulation_tests;
