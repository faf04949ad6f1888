//! A runner that sends the host what no runner would: frames in any order, of any size, damaged, cut, deep, wide, and
//! too many. The host loses that process at most: its memory stays bounded, and another session goes on.

use std::panic::AssertUnwindSafe;

use pybench_interpreter::Interpreter;
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;
use serde_json::json;
use tokio::runtime::Runtime;

use super::{ALONE, jail, start_from};

/// How much the memory of the host may grow, MiB: the frames of a cell, what is read from them, and copies.
const MAX_GROWTH: u64 = 320;

/// A kind of message, a number to make it with, and bytes.
type Message = (u8, u64, Vec<u8>);

/// What a hostile cell sends with, past the runner.
const SEND: &str = "
import os
def framed(body): return len(body).to_bytes(4, 'big') + body
def send(piece):
    left = memoryview(piece)
    while left: left = left[os.write(100, left):]
";

/// A hostile session, and one beside it.
struct Duel {
    runtime: Runtime,
    hostile: Live,
    other: Live,
    rounds: u64,
    /// Memory of the host at the beginning, MiB.
    before: u64,
}

impl Duel {
    fn start() -> Option<Self> {
        let runtime = Runtime::new().unwrap();
        let interpreter = jail()?;
        let (hostile, mut other) = runtime
            .block_on(async { tokio::join!(start_from(&interpreter), start_from(&interpreter)) });
        runtime.block_on(other.run("rounds = 0"));
        std::fs::write("/proc/self/clear_refs", "5").unwrap(); // forgets the peak
        Some(Self {
            runtime,
            hostile,
            other,
            rounds: 0,
            before: memory_mib("VmRSS:"),
        })
    }

    fn round(&mut self, messages: &[Message]) {
        self.rounds += 1;
        let code = hostile_cell(messages, self.rounds);
        let (seen, other) = self.runtime.block_on(async {
            tokio::join!(
                self.hostile.run(&code),
                self.other.run("rounds += 1; rounds")
            )
        });
        assert!(
            matches!(seen.stopped, None | Some(Stopped::Died)),
            "{seen:?}"
        );
        assert_eq!(other.plain(), self.rounds.to_string(), "{other:?}");
        let peak = memory_mib("VmHWM:");
        assert!(
            peak < self.before + MAX_GROWTH,
            "the host took {peak} MiB, after {}",
            self.before
        );
    }

    /// The hostile session is usable again once its process has ended.
    fn end(mut self) {
        self.runtime.block_on(async {
            self.hostile.run("import os; os._exit(0)").await;
            assert_eq!(self.hostile.run("'lives'").await.plain(), "'lives'");
            self.hostile.close().await;
            self.other.close().await;
        });
    }
}

fn memory_mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.unwrap().parse::<u64>().unwrap() >> 10
}

/// How many kinds of messages there are. The first ones are whole frames.
const KINDS: u8 = 8;
const WHOLE_KINDS: u8 = 5;

/// The code of cell number `cell`. Half of them send whole frames and go on; where a frame may be cut, the process ends.
fn hostile_cell(messages: &[Message], cell: u64) -> String {
    let whole = messages.first().is_none_or(|(kind, ..)| kind % 2 == 0);
    let (kinds, end) = match whole {
        true => (WHOLE_KINDS, ""),
        false => (KINDS, "os._exit(0)"),
    };
    let sends = messages.iter().map(|(kind, number, noise)| {
        let piece = piece(kind % kinds, *number, noise, cell);
        format!("send({piece})\n")
    });
    format!("{SEND}{}{end}", sends.collect::<String>())
}

/// A Python expression of what is sent for a message.
fn piece(kind: u8, number: u64, noise: &[u8], cell: u64) -> String {
    let begin = format!(r#"{{"event":"chart","cell":{cell},"at":[0,0],"path":null,"figure":"#);
    let own = event(number, cell, noise);
    match kind {
        0 => hex(&frame(&own)),
        1 => hex(&frame(&event(number, number >> 8, noise))), // of another cell
        2 => {
            let depth = number % (4 << 20);
            format!("framed(b'{begin}' + b'[' * {depth} + b']' * {depth} + b'}}')")
        }
        3 => {
            let width = number % (3 << 20);
            format!("framed(b'{begin}[0' + b',{{}}' * {width} + b']}}')")
        }
        4 => {
            let display =
                format!(r#"{{"event":"display","cell":{cell},"at":[0,0],"data":{{"text/html":""#);
            let (count, size) = (number % 80, (number >> 8) % (2 << 20));
            format!("framed(b'{display}' + b'x' * {size} + b'\"}}}}') * {count}")
        }
        5 => {
            let mut damaged = frame(&own);
            for (at, byte) in noise.iter().enumerate() {
                let at = (at * 31 + number as usize) % damaged.len();
                damaged[at] ^= byte;
            }
            hex(&damaged)
        }
        6 => hex(&[&(number as u32).to_be_bytes(), &own[..]].concat()),
        _ => hex(noise),
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

/// An event with the fields of all kinds.
fn event(number: u64, cell: u64, noise: &[u8]) -> Vec<u8> {
    const EVENTS: [&str; 8] = [
        "ready", "mark", "result", "display", "chart", "error", "done", "none",
    ];
    let text = String::from_utf8_lossy(noise);
    let event = json!({
        "event": EVENTS[(number % 8) as usize], "cell": cell, "at": [number >> 3, number >> 32],
        "data": {"text/plain": text}, "path": text, "figure": {"axes": [text]},
        "ename": text, "evalue": text, "traceback": text,
    });
    event.to_string().into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bytes.fromhex('{digits}')")
}

#[test]
fn fuzz_frames_of_a_live_session() {
    let _alone = ALONE.blocking_lock();
    let Some(duel) = Duel::start() else {
        return;
    };
    let mut duel = AssertUnwindSafe(duel);
    bolero::check!()
        .with_type::<Vec<Message>>()
        .for_each(|messages: &Vec<Message>| duel.round(messages));
    duel.0.end();
}

/// What never ends is no frame either: the time limit of the cell holds.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_frame_ends_with_its_cell() {
    let _alone = ALONE.lock().await;
    let Some(interpreter) = jail() else {
        return;
    };
    let spec = with_limits(|limits| limits.cell_seconds = 1);
    let mut session = Live {
        inner: interpreter.start(spec).await.unwrap(),
    };
    let half = format!("{SEND}send(b'\\0\\1\\0\\0' + b'x' * 100)");
    let seen = session.run(&half).await;
    assert_eq!(seen.stopped, Some(Stopped::Restarted), "{seen:?}");
    assert_eq!(session.run("'lives'").await.plain(), "'lives'");
    session.close().await;
}
