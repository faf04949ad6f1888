//! Renders a conversation for the terminal. Control characters are shown as symbols, never sent.

use pybench_types::text::visible;
use pybench_types::trajectory::{Message, Role};

/// Options for [`render`].
#[derive(Clone, Copy, Debug)]
pub struct RenderOptions {
    /// Show the system prompt.
    pub system: bool,
    /// Use terminal colors.
    pub color: bool,
    /// Maximum characters shown per message.
    pub max_chars: usize,
}

/// Renders a conversation: header, messages, footer.
pub fn render(head: &str, messages: &[Message], tail: &str, options: &RenderOptions) -> String {
    let mut text = format!("━━ {}\n", pybench_types::text::line(head));
    for message in messages {
        if message.role == Role::System && !options.system {
            continue;
        }
        let name = match message.trained {
            true => message.role.name().to_owned(),
            false => format!("{} (context, not trained)", message.role.name()),
        };
        let label = match (options.color, message.role) {
            (false, _) => format!("── {name}"),
            (true, Role::Assistant) => format!("\x1b[1;36m── {name}\x1b[0m"),
            (true, _) => format!("\x1b[1;33m── {name}\x1b[0m"),
        };
        text += &format!(
            "{label}\n{}\n",
            shorten(&message.content, options.max_chars)
        );
    }
    if !tail.is_empty() {
        text += &format!("── {}\n", visible(tail.trim_end()));
    }
    text
}

fn shorten(content: &str, max_chars: usize) -> String {
    match content.char_indices().nth(max_chars) {
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

    const PLAIN: RenderOptions = RenderOptions {
        system: false,
        color: false,
        max_chars: 1500,
    };

    #[test]
    fn a_reply_that_is_not_trained_says_so() {
        let reply = Message::new(Role::Assistant, "a");
        let messages = [reply.clone().as_context(), reply];
        let text = render("h", &messages, "", &PLAIN);
        assert!(
            text.contains("── assistant (context, not trained)\na\n── assistant\na\n"),
            "{text}"
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let messages = [
            Message::new(Role::System, "secret"),
            Message::new(Role::Assistant, "a\u{1b}[2Jb\u{9b}c\r\n\td"),
        ];
        let text = render("x\u{1b}]0;y\u{7}\n", &messages, "end \u{8}", &PLAIN);
        let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!text.contains(is_control), "{text:?}");
        assert!(
            !text.contains("secret") && text.contains("a␛[2Jb"),
            "{text}"
        );
        let all = render(
            "x",
            &messages,
            "",
            &RenderOptions {
                system: true,
                ..PLAIN
            },
        );
        assert!(all.contains("secret"));
    }

    #[test]
    fn long_messages_are_truncated_between_characters() {
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
