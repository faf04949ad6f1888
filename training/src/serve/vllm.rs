//! Serving with vLLM.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pybench_training_data::CallSyntax;

/// The path of `vllm`, if it is on the PATH.
pub(super) fn installed() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .map(|folder| folder.join("vllm"))
        .find(|path| path.is_file())
}

/// The options of `vllm serve`.
#[derive(Clone, Debug)]
pub(super) struct VllmCommand<'a> {
    pub(super) folder: &'a Path,
    pub(super) name: &'a str,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) slots: u16,
    pub(super) context: usize,
    pub(super) template: Option<&'a Path>,
    pub(super) dtype: Option<&'static str>,
    /// How the chat template writes tool calls, if it writes any.
    pub(super) calls: Option<CallSyntax>,
}

/// vLLM's name of the parser of such calls.
fn call_parser(syntax: CallSyntax) -> &'static str {
    match syntax {
        CallSyntax::Json => "llama3_json",
        CallSyntax::Tags => "hermes",
        CallSyntax::List => "mistral",
    }
}

impl VllmCommand<'_> {
    /// The arguments. vLLM reads the key from its environment.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["serve".into(), self.folder.into()];
        let mut add = |name: &str, value: OsString| all.extend([name.into(), value]);
        add("--served-model-name", self.name.into());
        add("--host", self.host.clone().into());
        add("--port", self.port.to_string().into());
        add("--max-model-len", self.context.to_string().into());
        add("--max-num-seqs", self.slots.to_string().into());
        // Clients choose temperature etc.; defaults of the model directory are not used.
        add("--generation-config", "vllm".into());
        if let Some(dtype) = self.dtype {
            add("--dtype", dtype.into());
        }
        if let Some(template) = self.template {
            add("--chat-template", template.into());
            add("--chat-template-content-format", "string".into());
        }
        if let Some(syntax) = self.calls {
            add("--tool-call-parser", call_parser(syntax).into());
            all.push("--enable-auto-tool-choice".into());
        }
        all.push("--enable-prefix-caching".into());
        all
    }

    /// Replaces this process by vLLM. Returns only if that fails.
    pub(super) fn run(&self, program: &Path, key: Option<&str>) -> Result<()> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.args(self.arguments());
        if let Some(key) = key {
            command.env("VLLM_API_KEY", key);
        }
        let words = command.get_args().map(|word| word.to_string_lossy());
        eprintln!("vllm {}", words.collect::<Vec<_>>().join(" "));
        Err(command.exec()).with_context(|| program.display().to_string())
    }
}
