//! What Temporal stores of a unit: the request that starts its activity, and the answers of its attempts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pybench_run::shared::{DeliveryEnd, Round};
use pybench_run::{RunError, RunQueue};
use serde::{Deserialize, Serialize};
use temporalio_protos::temporal::api::common::v1::{ActivityType, Payload, Payloads, RetryPolicy};
use temporalio_protos::temporal::api::enums::v1::{
    ActivityIdConflictPolicy, ActivityIdReusePolicy, TaskQueueKind,
};
use temporalio_protos::temporal::api::failure::v1::failure::FailureInfo;
use temporalio_protos::temporal::api::failure::v1::{ApplicationFailureInfo, Failure};
use temporalio_protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_protos::temporal::api::workflowservice::v1::StartActivityExecutionRequest;

/// Type of the activities.
const ACTIVITY: &str = "pybench.unit";

/// A last resort: stages have time limits of their own.
const MAX_ATTEMPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Wait before the next attempt where no process has said how long: after a heartbeat that did not come.
const RETRY: Duration = Duration::from_secs(1);

/// Characters of a failure that Temporal keeps; the journal has all of it.
const MAX_MESSAGE: usize = 1_000;

/// Input of an activity. The unit's own data are in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnitName {
    /// The run, as the queue names it.
    pub(crate) run: String,
    pub(crate) stage: String,
    pub(crate) item: String,
}

impl UnitName {
    /// The activity's id: a unit has the same one in every round.
    pub(crate) fn activity_id(&self) -> String {
        format!("{}/{}/{}", self.run, self.stage, self.item)
    }
}

/// Name of the task queue of a round. Processes of another version poll another queue.
pub(crate) fn task_queue_name(run: &str, round: &Round) -> String {
    let version = round.version();
    let version: String = version.as_str().chars().take(16).collect();
    format!("pybench.{run}.{}.{version}", round.stage)
}

/// The query that lists the open activities of a run.
pub(crate) fn open_activities(run: &str) -> String {
    format!("TaskQueue STARTS_WITH 'pybench.{run}.' AND ExecutionStatus = 'Running'")
}

pub(crate) fn task_queue(name: String) -> TaskQueue {
    TaskQueue {
        name,
        kind: TaskQueueKind::Normal.into(),
        ..TaskQueue::default()
    }
}

/// The request that starts the activity of a unit. It does nothing while that activity is open, and is refused once it has
/// completed.
///
/// # Errors
/// [`RunError::Internal`] if the name cannot be written as JSON.
pub(crate) fn start(
    queue: &RunQueue,
    round: &Round,
    (item, identity): (&str, &str),
) -> Result<StartActivityExecutionRequest, RunError> {
    let unit = UnitName {
        run: queue.run.clone(),
        stage: round.stage.clone(),
        item: item.to_owned(),
    };
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(StartActivityExecutionRequest {
        namespace: queue.server.namespace.clone(),
        identity: identity.to_owned(),
        // The client repeats a request whose reply was lost; Temporal ignores one whose id it knows.
        request_id: format!("{}/{number}", round.id),
        activity_id: unit.activity_id(),
        activity_type: Some(ActivityType {
            name: ACTIVITY.to_owned(),
        }),
        task_queue: Some(task_queue(task_queue_name(&queue.run, round))),
        start_to_close_timeout: MAX_ATTEMPT.try_into().ok(),
        heartbeat_timeout: queue.lease.try_into().ok(),
        retry_policy: Some(RetryPolicy {
            initial_interval: RETRY.try_into().ok(),
            backoff_coefficient: 1.0,
            maximum_interval: RETRY.try_into().ok(),
            // The journal counts attempts.
            maximum_attempts: 0,
            ..RetryPolicy::default()
        }),
        input: Some(json(&unit)?),
        id_reuse_policy: ActivityIdReusePolicy::AllowDuplicateFailedOnly.into(),
        id_conflict_policy: ActivityIdConflictPolicy::UseExisting.into(),
        ..StartActivityExecutionRequest::default()
    })
}

/// The input of an activity; `None` if another program has started it.
pub(crate) fn unit_of(input: Option<&Payloads>) -> Option<UnitName> {
    let payload = input?.payloads.first()?;
    serde_json::from_slice(&payload.data).ok()
}

/// A payload with a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<Payloads, RunError> {
    let data = serde_json::to_vec(value).map_err(|error| RunError::Internal(error.to_string()))?;
    let encoding = ("encoding".to_owned(), b"json/plain".to_vec());
    Ok(Payloads {
        payloads: vec![Payload {
            metadata: [encoding].into_iter().collect(),
            data,
            ..Payload::default()
        }],
    })
}

/// The failure of an attempt, and how Temporal goes on; `None` if the activity completes.
pub(crate) fn failure(end: &DeliveryEnd) -> Option<Failure> {
    let (message, wait) = match end {
        DeliveryEnd::Done => return None,
        DeliveryEnd::Closed(reason) => (reason.as_str(), None),
        DeliveryEnd::Again(wait) => ("there will be another attempt", Some(*wait)),
    };
    let info = ApplicationFailureInfo {
        r#type: match wait {
            Some(_) => "pending".to_owned(),
            None => "closed".to_owned(),
        },
        non_retryable: wait.is_none(),
        next_retry_delay: wait.and_then(|wait| wait.max(Duration::from_millis(1)).try_into().ok()),
        ..ApplicationFailureInfo::default()
    };
    Some(Failure {
        message: message.chars().take(MAX_MESSAGE).collect(),
        source: "pybench".to_owned(),
        failure_info: Some(FailureInfo::ApplicationFailureInfo(info)),
        ..Failure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_run::{BudgetCap, TemporalServer};
    use pybench_types::id::Digest;

    fn round(stage_version: &str) -> Round {
        Round {
            id: "round".to_owned(),
            stage: "rollout".to_owned(),
            code: Digest::of_bytes(b"program"),
            stage_version: stage_version.to_owned(),
            recipe: Digest::of_bytes(b"recipe"),
            tasks: Digest::of_bytes(b"tasks"),
            budget: BudgetCap::default(),
            attempts: 4,
            unit_limit: None,
            is_queued: true,
        }
    }

    fn run_queue() -> RunQueue {
        RunQueue {
            server: TemporalServer::default(),
            run: "run_quickstart_1".to_owned(),
            lease: Duration::from_secs(120),
        }
    }

    #[test]
    fn an_activity_has_the_name_of_its_unit_and_little_else() {
        let request = start(&run_queue(), &round("a"), ("item", "host:1")).unwrap();
        assert_eq!(request.activity_id, "run_quickstart_1/rollout/item");
        let unit = unit_of(request.input.as_ref()).unwrap();
        assert_eq!(unit.activity_id(), request.activity_id);
        let payloads = request.input.unwrap().payloads;
        assert!(payloads[0].data.len() < 200, "payloads are references");
        assert_eq!(request.heartbeat_timeout.unwrap().seconds, 120);
        assert_eq!(unit_of(None), None);
    }

    #[test]
    fn another_version_has_another_task_queue() {
        let name = |version| task_queue_name("run_1", &round(version));
        assert!(
            name("a").starts_with("pybench.run_1.rollout."),
            "{}",
            name("a")
        );
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        let (query, prefix) = (open_activities("run_1"), "pybench.run_1.");
        assert!(query.contains(&format!("'{prefix}'")) && name("a").starts_with(prefix));
        let next = Round {
            id: "next".to_owned(),
            ..round("a")
        };
        assert_eq!(
            task_queue_name("run_1", &next),
            name("a"),
            "rounds share it"
        );
    }

    #[test]
    fn an_attempt_tells_temporal_what_comes_next() {
        assert_eq!(failure(&DeliveryEnd::Done), None);
        let info = |end| match failure(&end).unwrap().failure_info {
            Some(FailureInfo::ApplicationFailureInfo(info)) => info,
            other => panic!("{other:?}"),
        };
        let closed = info(DeliveryEnd::Closed("server: 500".to_owned()));
        assert!(closed.non_retryable && closed.next_retry_delay.is_none());
        let again = info(DeliveryEnd::Again(Duration::from_millis(2_500)));
        let delay = again.next_retry_delay.unwrap();
        assert_eq!(
            (again.non_retryable, delay.seconds, delay.nanos),
            (false, 2, 500_000_000)
        );
        // Without a delay, Temporal would use that of its policy.
        let now = info(DeliveryEnd::Again(Duration::ZERO));
        assert_eq!(now.next_retry_delay.unwrap().nanos, 1_000_000);
    }

    #[test]
    fn a_long_failure_is_cut() {
        let end = DeliveryEnd::Closed("é".repeat(5_000));
        assert_eq!(failure(&end).unwrap().message.chars().count(), MAX_MESSAGE);
    }
}
