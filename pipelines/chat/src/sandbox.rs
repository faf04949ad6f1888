//! What a sandbox may have if the cells of other people run in it: they may be hostile.

use pybench_interpreter::{InterpreterChoice, Tier};
use pybench_run::RunError;

/// Cells that other people wrote, or made a model write: those of a run, of its task, or of a shared conversation.
#[derive(Clone, Copy, Debug)]
pub struct ForeignCells<'a> {
    /// Where their sandbox is described, for people.
    pub origin: &'a str,
    /// What a person does if they are refused.
    pub advice: &'a str,
}

impl ForeignCells<'_> {
    /// Checks their sandbox: it must be one, with neither a network nor a folder of this machine, unless `own`, those of this
    /// machine's agents, have the same one.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with the key that is refused.
    pub fn check(
        self,
        sandbox: &InterpreterChoice,
        own: &[&InterpreterChoice],
    ) -> Result<(), RunError> {
        let (key, why) = match sandbox {
            sandbox if sandbox.tier == Tier::Unsandboxed => ("tier", "run without a sandbox"),
            sandbox if own.contains(&sandbox) => return Ok(()),
            sandbox if !sandbox.network.is_empty() => ("network", "could connect to hosts"),
            sandbox if sandbox.wheelhouse.is_some() => {
                ("wheelhouse", "could read a folder of this machine")
            }
            _ => return Ok(()),
        };
        let Self { origin, advice } = self;
        Err(RunError::BadInput(format!(
            "{origin}: `interpreter.{key}`: the cells {why}, and what comes from other people may be hostile; {advice}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_or_a_folder_of_this_machine_is_the_one_of_an_own_agent() {
        let choice = |choice: serde_json::Value| -> InterpreterChoice {
            serde_json::from_value(choice).unwrap()
        };
        let closed = choice(serde_json::json!({"tier": "gvisor"}));
        let open = choice(serde_json::json!({"tier": "jail", "network": ["own:443"]}));
        let other = choice(serde_json::json!({"tier": "jail", "network": ["evil:443"]}));
        let wheels = choice(serde_json::json!({"tier": "jail", "wheelhouse": "/home/ann"}));
        let bare = choice(serde_json::json!({"tier": "unsandboxed"}));
        let foreign = ForeignCells {
            origin: "r.toml",
            advice: "begin a new one",
        };
        let check = |sandbox: &InterpreterChoice, own: &[&InterpreterChoice]| {
            let error = foreign.check(sandbox, own).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        let none: &[&InterpreterChoice] = &[];
        assert_eq!(check(&closed, none), "");
        assert_eq!(check(&open, &[&closed, &open]), "");
        for (sandbox, own, why) in [
            (&open, none, "network`: the cells could connect"),
            (&other, &[&open], "network`: the cells could connect"),
            (&wheels, &[&open], "wheelhouse`: the cells could read"),
            // An own agent without a sandbox runs cells of its own person.
            (&bare, &[&bare], "tier`: the cells run without"),
        ] {
            let error = check(sandbox, own);
            let expected = format!("r.toml: `interpreter.{why}");
            assert!(error.starts_with(&expected), "{why}: {error}");
            assert!(error.ends_with("; begin a new one"), "{error}");
        }
    }
}
