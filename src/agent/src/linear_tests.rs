//! Replies are parsed in linear time: hostile ones of several megabytes take minutes otherwise.

use super::*;

/// Bytes of a hostile reply: the largest response that is read.
const HOSTILE: usize = 4 << 20;
/// Bytes of a fuzzed reply.
const FUZZED: usize = 1 << 15;

fn parse_in_all_formats(reply: &str) {
    for choice in FormatChoice::ALL {
        let format = format(choice);
        let kept = format.truncate(reply, false);
        assert!(kept.len() <= reply.len() + 64, "{}", format.name());
        let _ = format.parse(reply).cells();
    }
}

fn repeated(unit: &str, bytes: usize) -> String {
    unit.repeat((bytes / unit.len()).max(1))
}

#[test]
fn hostile_replies_are_parsed_in_linear_time() {
    let units = [
        "```",
        "``` ",
        "```\n",
        "```python",
        "```python\n",
        " ",
        "\n",
        "# ",
        "finished ",
        "Finished\n",
        START,
        "<execute>",
        "<solution>",
        "</solution>",
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>{\"name\":",
        "<|python_tag|>",
        "<|eom_id|>",
    ];
    for unit in units {
        parse_in_all_formats(&repeated(unit, HOSTILE));
    }
    let fences = repeated("``` ", HOSTILE);
    parse_in_all_formats(&format!("{START}{fences}{END}"));
    parse_in_all_formats(&format!("<execute>```{fences}</execute>"));
    parse_in_all_formats(&format!("```python\n{fences}"));
    let spaces = " ".repeat(HOSTILE / 2);
    parse_in_all_formats(&(repeated("```", HOSTILE / 2) + &spaces + "\n"));
}

#[test]
fn fuzz_repeated_text_is_parsed_in_linear_time() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let middle = text.chars().count() / 2;
        let cut = text.char_indices().nth(middle).map_or(0, |(at, _)| at);
        let (start, unit) = text.split_at(cut);
        if !unit.is_empty() {
            parse_in_all_formats(&(start.to_owned() + &repeated(unit, FUZZED)));
        }
    });
}
