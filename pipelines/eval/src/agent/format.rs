//! Upstream's two message formats with a custom system prompt.

use pybench_agent::{END, PybenchFormat};
use pybench_agent::{Format, Parsed, ToolsFormat};
use pybench_types::id::Digest;
use pybench_types::trajectory::Message;
use serde_json::{Value, json};

/// PyBench's message format with the system prompt of a configuration. Code is in blocks, or in function calls
/// that are part of the text: `<|tool_call|>execute_python({"code": "…"})`. The name contains a digest of the
/// prompt.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamFormat {
    name: &'static str,
    system: &'static str,
    call: Option<&'static str>,
}

impl UpstreamFormat {
    /// Creates a format. `call` is the token that starts a function call, or `None` if code is in blocks. The
    /// format lives as long as the process.
    pub fn new(system: &str, call: Option<&str>) -> &'static Self {
        let prompt = Digest::of_bytes(system.as_bytes());
        let name = match call {
            None => format!("pybench:{}", prompt.short()),
            Some(call) => format!("pybench:{}:{call}", prompt.short()),
        };
        Box::leak(Box::new(Self {
            name: name.leak(),
            system: system.to_owned().leak(),
            call: call.map(|call| &*call.to_owned().leak()),
        }))
    }
}

impl Format for UpstreamFormat {
    fn name(&self) -> &'static str {
        self.name
    }

    fn system(&self) -> &'static str {
        self.system
    }

    fn stop(&self) -> Vec<String> {
        match self.call.is_none() && self.system.contains(END) {
            true => PybenchFormat.stop(),
            false => Vec::new(),
        }
    }

    fn openings(&self) -> &'static [&'static str] {
        match self.call {
            None => PybenchFormat.openings(),
            Some(_) => &[],
        }
    }

    fn format_hint(&self) -> &'static str {
        match self.call {
            None => PybenchFormat.format_hint(),
            Some(_) => {
                "Call execute_python({\"code\": …}), or reply with Finished: and the answer."
            }
        }
    }

    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a> {
        let Some(call) = self.call else {
            return PybenchFormat.parse(reply);
        };
        match reply.split_once(call) {
            None => ToolsFormat.parse(reply),
            Some((_, rest)) => match code(rest) {
                Some(code) => Parsed::Calls(vec![Ok(code)]),
                None => Parsed::Malformed("the call holds no JSON object with a text `code`"),
            },
        }
    }

    fn truncate(&self, reply: &str, truncated: bool) -> String {
        match self.call {
            None => PybenchFormat.truncate(reply, truncated),
            Some(_) => reply.to_owned(),
        }
    }

    fn write_observation(&self, text: &str) -> Message {
        PybenchFormat.write_observation(text)
    }

    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str> {
        PybenchFormat.parse_observation(message)
    }

    fn write_step(&self, thought: &str, cell: &str) -> String {
        match self.call {
            None => PybenchFormat.write_step(thought, cell),
            Some(call) => {
                let arguments = json!({"code": cell});
                format!("{thought}\n{call}execute_python({arguments})")
            }
        }
    }

    fn write_answer(&self, answer: &str) -> String {
        PybenchFormat.write_answer(answer)
    }
}

/// The argument `code` of a call, read from the first to the last brace. Like upstream, accepts unescaped line
/// breaks in strings.
fn code(call: &str) -> Option<String> {
    let object = call.get(call.find('{')?..=call.rfind('}')?)?;
    let escaped = object.replace('\n', "\\n");
    // Try the unescaped text first: escaping would break line breaks between keys.
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let arguments = read(object).or_else(|| read(&escaped))?;
    arguments.get("code")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_parsed_like_upstream() {
        let format = UpstreamFormat::new("Be good.", Some("<|tool_call|>"));
        let cell = |text: &str| Parsed::Calls(vec![Ok(text.to_owned())]);
        let step = format.write_step("I look.", "print({'a': 1})\nx");
        assert_eq!(format.parse(&step), cell("print({'a': 1})\nx"));
        let broken = "I look.\n<|tool_call|>execute_python({\"code\":\"a = 1\n\nb = {}\"})\n";
        assert_eq!(format.parse(broken), cell("a = 1\n\nb = {}"));
        let pretty = "<|tool_call|>execute_python({\n  \"code\": \"a\"\n})";
        assert_eq!(format.parse(pretty), cell("a"));
        for reply in [
            "<|tool_call|>",
            "<|tool_call|>}{",
            "<|tool_call|>{\"code\": 1}",
        ] {
            assert!(
                matches!(format.parse(reply), Parsed::Malformed(_)),
                "{reply}"
            );
        }
        assert_eq!(format.parse("Finished: 4"), Parsed::Answer("4"));
        // In this mode, code blocks are ignored.
        let block = "It is:\n```python\nx\n```";
        assert!(matches!(format.parse(block), Parsed::Unfinished(_)));
    }

    #[test]
    fn fuzz_any_call_is_read_without_panic() {
        let format = UpstreamFormat::new("", Some("<|"));
        bolero::check!().for_each(|bytes: &[u8]| {
            let reply = String::from_utf8_lossy(bytes);
            let _ = format.parse(&reply);
            let _ = code(&reply);
        });
    }
}
