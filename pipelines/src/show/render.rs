//! A conversation in a terminal. Nothing of it drives the terminal: control characters are shown.

use pybench::text::visible;
use pybench::trajectory::{Message, Role};

/// How it looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether the system prompt is shown.
    pub(crate) system: bool,
    /// Whether the terminal has colours.
    pub(crate) colour: bool,
    /// Characters shown of each message.
    pub(crate) most: usize,
}

/// The whole of it: what is known, what was said, how it ended.
pub(crate) fn render(head: &str, messages: &[Message], tail: &str, look: &Look) -> String {
    let mut text = format!("━━ {}\n", pybench::text::line(head));
    for message in messages {
        if message.role == Role::System && !look.system {
            continue;
        }
        let name = message.role.name();
        let label = match (look.colour, message.role) {
            (false, _) => format!("── {name}"),
            (true, Role::Assistant) => format!("\x1b[1;36m── {name}\x1b[0m"),
            (true, _) => format!("\x1b[1;33m── {name}\x1b[0m"),
        };
        text += &format!("{label}\n{}\n", shorten(&message.content, look.most));
    }
    if !tail.is_empty() {
        text += &format!("── {}\n", visible(tail.trim_end()));
    }
    text
}

fn shorten(content: &str, most: usize) -> String {
    match content.char_indices().nth(most) {
        None => visible(content),
        Some((at, _)) => {
            let left = content[at..].chars().count();
            format!("{}\n[{left} more characters]", visible(&content[..at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look {
        system: false,
        colour: false,
        most: 1500,
    };

    #[test]
    fn nothing_drives_the_terminal() {
        let messages = [
            Message::new(Role::System, "secret"),
            Message::new(Role::Assistant, "a\u{1b}[2Jb\u{9b}c\r\n\td"),
        ];
        let text = render("x\u{1b}]0;y\u{7}\n", &messages, "end \u{8}", &PLAIN);
        let wild = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!text.contains(wild), "{text:?}");
        assert!(
            !text.contains("secret") && text.contains("a␛[2Jb"),
            "{text}"
        );
        let all = render(
            "x",
            &messages,
            "",
            &Look {
                system: true,
                ..PLAIN
            },
        );
        assert!(all.contains("secret"));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("短", 1500), "短");
        let long = "长".repeat(1507);
        assert!(shorten(&long, 1500).ends_with("长\n[7 more characters]"));
    }

    #[test]
    fn fuzz_any_text_is_shown_as_text() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let shown = render(
                &text,
                &[Message::new(Role::User, text.clone())],
                &text,
                &PLAIN,
            );
            assert!(!shown.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        });
    }
}
