//! What a person types: a message, or a command that begins with a slash.

use std::path::PathBuf;

use pybench_run::closest;

use crate::export::SaveAs;

/// For `/help`.
pub(super) const HELP: &str = "\
A line is a message to the model; one that ends with \\ goes on in the next line. // at its beginning stands for /.
Ctrl-C stops the reply or cell; Ctrl-C again ends the chat.

/put PATH         put a file into ./data
/files            list the files of the session
/get FILE         take a file out, into the current folder
/history          list the messages with their numbers
/edit N MESSAGE   replace message N, take back what followed, and send it
/retry            take back the answer to the last message, also a stopped one, and ask again
/continue         go on where a stopped cell, a limit or an error has ended the work
/save notebook|json|html [PATH]
                  save the conversation
/grade            run the checks of the task (--task)
/add              add the conversation to the dataset of the history
/limits           show the limits and what was spent
/quit             end; `pybench chat --resume ID` continues
";

const COMMANDS: [&str; 13] = [
    "/put",
    "/files",
    "/get",
    "/history",
    "/edit",
    "/retry",
    "/continue",
    "/save",
    "/grade",
    "/add",
    "/limits",
    "/quit",
    "/help",
];

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Message(String),
    Put(PathBuf),
    Files,
    Get(String),
    History,
    Edit(usize, String),
    Retry,
    Continue,
    Save(SaveAs, Option<PathBuf>),
    Grade,
    Add,
    Limits,
    Quit,
    Help,
    /// Restores the session of a conversation that is continued.
    Restore,
}

impl Input {
    /// Reads what was typed; `None` if it is empty.
    ///
    /// # Errors
    /// What is wrong, and what can be typed instead.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(None);
        }
        if let Some(escaped) = trimmed.strip_prefix("//") {
            return Ok(Some(Self::Message(format!("/{escaped}"))));
        }
        if !trimmed.starts_with('/') {
            return Ok(Some(Self::Message(text.to_owned())));
        }
        let (name, rest) = trimmed
            .split_once(char::is_whitespace)
            .unwrap_or((trimmed, ""));
        Self::command(name, rest.trim()).map(Some)
    }

    fn command(name: &str, rest: &str) -> Result<Self, String> {
        let needs = |what: &str| format!("{name} needs {what}; /help lists the commands");
        let alone = |input: Self| match rest {
            "" => Ok(input),
            _ => Err(format!("{name} stands alone; /help lists the commands")),
        };
        match name {
            "/put" if rest.is_empty() => Err(needs("the path of a file")),
            "/put" => Ok(Self::Put(rest.into())),
            "/get" if rest.is_empty() => Err(needs("a file of the session, such as output/a.csv")),
            "/get" => Ok(Self::Get(rest.to_owned())),
            "/edit" => edit(rest).ok_or_else(|| needs("the number of a message, and the new text")),
            "/save" => save(rest).ok_or_else(|| needs("`notebook`, `json` or `html`")),
            "/files" => alone(Self::Files),
            "/history" => alone(Self::History),
            "/retry" => alone(Self::Retry),
            "/continue" => alone(Self::Continue),
            "/grade" => alone(Self::Grade),
            "/add" => alone(Self::Add),
            "/limits" => alone(Self::Limits),
            "/quit" => alone(Self::Quit),
            "/help" => alone(Self::Help),
            _ => {
                let hint = closest(name, COMMANDS).map(|best| format!("; did you mean {best}?"));
                Err(format!(
                    "there is no command {name}{}; /help lists the commands, and // begins a message with a slash",
                    hint.unwrap_or_default()
                ))
            }
        }
    }
}

fn edit(rest: &str) -> Option<Input> {
    let (number, text) = rest.split_once(char::is_whitespace)?;
    let text = text.trim();
    (!text.is_empty()).then_some(Input::Edit(number.parse().ok()?, text.to_owned()))
}

fn save(rest: &str) -> Option<Input> {
    let (form, path) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let path = path.trim();
    let path = (!path.is_empty()).then(|| path.into());
    Some(Input::Save(SaveAs::named(form)?, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Input {
        Input::parse(text).unwrap().unwrap()
    }

    #[test]
    fn messages_and_commands_are_distinguished() {
        assert_eq!(Input::parse("  \n"), Ok(None));
        assert_eq!(parsed(" a\n b"), Input::Message(" a\n b".to_owned()));
        assert_eq!(parsed("//x"), Input::Message("/x".to_owned()));
        assert_eq!(parsed("/put a b.csv"), Input::Put("a b.csv".into()));
        assert_eq!(parsed("/files "), Input::Files);
        assert_eq!(
            parsed("/edit 2 3 rows"),
            Input::Edit(2, "3 rows".to_owned())
        );
        assert_eq!(
            parsed("/save json  a.json"),
            Input::Save(SaveAs::Json, Some("a.json".into()))
        );
        assert_eq!(parsed("/save html"), Input::Save(SaveAs::Html, None));
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, told) in [
            ("/fils", "did you mean /files?"),
            ("/edit last a", "the number of a message"),
            ("/edit 2", "the number of a message"),
            ("/save pdf", "`notebook`, `json` or `html`"),
            ("/get", "a file of the session"),
            ("/quit now", "stands alone"),
        ] {
            let error = Input::parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_command() {
        for command in COMMANDS.iter().filter(|name| **name != "/help") {
            assert!(HELP.contains(command), "{command}");
        }
    }
}
