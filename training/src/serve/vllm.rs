//! Serving with vLLM.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use pybench_training_data::CallSyntax;

use crate::dependent_process::{depend, terminate};
use crate::exit::{environment, interrupted};
use crate::interrupt::{self, Deferral};

/// How often the server is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// The path of `vllm`, if it is on the PATH.
pub(super) fn installed() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .map(|folder| folder.join("vllm"))
        .find(|path| path.is_file())
}

/// The options of `vllm serve`.
#[derive(Clone, Debug)]
pub(super) struct VllmCommand {
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) slots: u16,
    pub(super) context: usize,
    pub(super) template: Option<PathBuf>,
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

impl VllmCommand {
    /// The arguments. vLLM reads the key from its environment.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["serve".into(), self.folder.clone().into()];
        let mut add = |name: &str, value: OsString| all.extend([name.into(), value]);
        add("--served-model-name", self.name.clone().into());
        add("--host", self.address.ip().to_string().into());
        add("--port", self.address.port().to_string().into());
        add("--max-model-len", self.context.to_string().into());
        add("--max-num-seqs", self.slots.to_string().into());
        // Clients choose temperature etc.; defaults of the model directory are not used.
        add("--generation-config", "vllm".into());
        if let Some(dtype) = self.dtype {
            add("--dtype", dtype.into());
        }
        if let Some(template) = &self.template {
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

    /// Runs vLLM until it ends or a signal arrives. Prints its address when it answers; what vLLM prints goes to stderr.
    pub(super) fn run(&self, program: &Path, key: Option<&str>) -> Result<()> {
        let mut command = Command::new(program);
        command.args(self.arguments()).stdout(std::io::stderr());
        if let Some(key) = key {
            command.env("VLLM_API_KEY", key);
        }
        depend(&mut command);
        let words = command.get_args().map(|word| word.to_string_lossy());
        eprintln!("vllm {}", words.collect::<Vec<_>>().join(" "));
        // vLLM ends its own processes if it is asked to. The second signal does not wait for that.
        let _deferral = Deferral::of(1);
        let mut child = command
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut answers = false;
        let mut asked_to_end = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return match asked_to_end {
                    true => Err(interrupted("the server was stopped by a signal")),
                    false => Err(environment(format!(
                        "vLLM ended with {status}; see its messages above"
                    ))),
                };
            }
            if interrupt::received() > 0 && !asked_to_end {
                asked_to_end = true;
                terminate(&child);
            }
            if !answers && self.answers() {
                answers = true;
                println!("http://{}/v1", self.address);
            }
            sleep(PERIOD);
        }
    }

    /// Whether the server is ready.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<Vec<u8>> {
            let host = match self.address.ip() {
                all if all.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                one => one,
            };
            let address = SocketAddr::new(host, self.address.port());
            let mut stream = TcpStream::connect_timeout(&address, PERIOD)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /health HTTP/1.1\r\nhost: vllm\r\nconnection: close\r\n\r\n")?;
            let mut status = vec![0; 12];
            stream.read_exact(&mut status)?;
            Ok(status)
        };
        ask().is_ok_and(|status| status.ends_with(b" 200"))
    }
}
