//! `pybench --help`, with the commands in groups.

use std::fmt::Write as _;

use clap::Command;

use crate::commands::GROUPS;

/// Makes the help of `command` list its subcommands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n\n");
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{group}:");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map(ToString::to_string)
                .unwrap_or_default();
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text += "Options:\n{options}\n\nRun `pybench COMMAND --help` for the arguments of a command.\n";
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_a_group_and_a_description() {
        let command = crate::Cli::command();
        let mut named: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
        for subcommand in command.get_subcommands() {
            assert!(subcommand.get_about().is_some(), "{subcommand}");
        }
    }

    #[test]
    fn clap_accepts_the_arguments_of_all_commands() {
        crate::Cli::command().debug_assert();
    }
}
