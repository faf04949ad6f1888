//! Upstream's two modes with a system prompt of the user's own.

use pybench::agent::{END, Format, Parsed, PybenchFormat, ToolsFormat};
use pybench::id::Digest;
use pybench::trajectory::Message;
use serde_json::{Value, json};

/// PyBench's framing around the system prompt of a configuration; code in blocks, or in calls that are
/// text: `<|tool_call|>execute_python({"code": "…"})`. Its name tells prompts apart.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamFormat {
    name: &'static str,
    system: &'static str,
    call: Option<&'static str>,
}

impl UpstreamFormat {
    /// With that system prompt, and with what a call begins with where code stands in calls. One format is
    /// made per configuration and lives as long as the process.
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

    fn rule(&self) -> &'static str {
        match self.call {
            None => PybenchFormat.rule(),
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

    fn tidy(&self, reply: &str, truncated: bool) -> String {
        match self.call {
            None => PybenchFormat.tidy(reply, truncated),
            Some(_) => reply.to_owned(),
        }
    }

    fn write_heard(&self, text: &str) -> Message {
        PybenchFormat.write_heard(text)
    }

    fn heard<'a>(&self, message: &'a Message) -> Option<&'a str> {
        PybenchFormat.heard(message)
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

/// The argument `code` of a call, from the first brace to the last, as upstream reads it: line breaks in
/// texts need not be escaped.
fn code(call: &str) -> Option<String> {
    let object = call.get(call.find('{')?..=call.rfind('}')?)?;
    let escaped = object.replace('\n', "\\n");
    // Line breaks between keys are right in JSON, and wrong once they are escaped.
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let arguments = read(object).or_else(|| read(&escaped))?;
    arguments.get("code")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_upstream_reads_them() {
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
        // Blocks are no code in this mode.
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
