//! What is measured on a page. Times are taken in the page, from the action to the moment when its text shows the result.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use serde_json::Value;

use crate::webdriver::Browser;

/// Seconds after which an interaction counts as failed. WebDriver allows a script 30.
pub(crate) const PATIENCE: u64 = 25;
const ENTER: &str = "\u{e007}";

/// A median.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// The median of each interaction; `None` for one that failed.
pub(crate) type Medians = Vec<(&'static str, Option<Measured>)>;

/// An action, and the text of the page that shows its result.
struct Task {
    name: &'static str,
    /// Element that it works on. It is waited for, which is not measured.
    needs: &'static str,
    /// JavaScript that is run first.
    script: String,
    /// Keys that are typed after it.
    keys: String,
    /// Expression that is true when the result is there.
    done: String,
}

/// A page of one side, and what is done on it.
pub(crate) struct Page {
    /// Opened once, for the cookie of the studio.
    link: String,
    address: String,
    ready: String,
    tasks: Vec<Task>,
}

fn shows(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

/// The element that scrolls most, which is the list of both sides.
const SCROLLER: &str = "[document.scrollingElement, ...document.querySelectorAll('*')].reduce((a, b) => \
    b.scrollHeight - b.clientHeight > a.scrollHeight - a.clientHeight ? b : a)";

const CHOOSE_RARE: &str = "const one = document.querySelector('select[aria-label=category]'); one.value = 'rare'; \
    one.dispatchEvent(new Event('change', {bubbles: true}))";

fn focus(selector: &str) -> String {
    format!("document.querySelector({selector:?}).focus()")
}

fn scroll_until(done: &str) -> String {
    format!(
        "const one = {SCROLLER}; const step = () => {{ one.scrollTop += 800; if (!({done})) requestAnimationFrame(step); }}; \
         step()"
    )
}

impl Page {
    /// A list of rows: a filter, a search, and the rows after the first hundred.
    pub(crate) fn rows(link: &str, address: &str, is_ours: bool, rows: u64) -> Self {
        let needle = format!("Task-{}:", (rows * 7 / 9).max(1));
        let tasks = match is_ours {
            true => [
                (
                    "select[aria-label=category]",
                    CHOOSE_RARE.to_owned(),
                    String::new(),
                ),
                (
                    "input[type=search]",
                    focus("input[type=search]"),
                    format!("needle{ENTER}"),
                ),
                ("tbody tr", String::new(), "n".to_owned()),
            ],
            false => [
                (
                    ".cm-content",
                    focus(".cm-content"),
                    r#"metadata.category == "rare""#.to_owned(),
                ),
                (
                    ".cm-content",
                    focus(".cm-content"),
                    r#"input_contains("needle")"#.to_owned(),
                ),
                ("body", scroll_until(&shows("Task-101:")), String::new()),
            ],
        };
        let names = ["filter by category", "search a word", "to row 101"];
        let done = [shows("first-of-rare"), shows(&needle), shows("Task-101:")];
        let tasks = names.into_iter().zip(tasks).zip(done);
        let task = |((name, (needs, script, keys)), done)| Task {
            name,
            needs,
            script,
            keys,
            done,
        };
        Self {
            link: link.to_owned(),
            address: address.to_owned(),
            ready: shows("Task-1:"),
            tasks: tasks.map(task).collect(),
        }
    }

    /// A long trajectory: its middle.
    pub(crate) fn long(link: &str, address: &str, is_ours: bool, events: u64) -> Self {
        let middle = events / 4;
        let jump = match is_ours {
            true => format!(
                "const one = document.querySelector('.pages input'); one.value = {middle}; \
                             one.dispatchEvent(new Event('change', {{bubbles: true}}))"
            ),
            false => format!("const one = {SCROLLER}; one.scrollTop = one.scrollHeight / 2"),
        };
        // The number of any step within a tenth of the middle.
        let done = format!(
            "[...document.body.innerText.matchAll(/step-(\\d+)/g)].some((one) => Math.abs(one[1] - {middle}) < {})",
            (middle / 5).max(1)
        );
        Self {
            link: link.to_owned(),
            address: address.to_owned(),
            ready: shows("step-1 "),
            tasks: vec![Task {
                name: "to the middle",
                needs: if is_ours { ".pages input" } else { "body" },
                script: jump,
                keys: String::new(),
                done,
            }],
        }
    }

    /// Two long trajectories side by side: where they differ first. The median is that of a pair that was opened before.
    pub(crate) fn pair(link: &str, address: &str) -> Self {
        Self {
            link: link.to_owned(),
            address: address.to_owned(),
            ready: shows("step-1 "),
            tasks: vec![Task {
                name: "to the first divergence",
                needs: "header button",
                script: String::new(),
                keys: "d".to_owned(),
                done: "document.body.innerText.includes('first difference in the text')".to_owned(),
            }],
        }
    }

    /// The median of each interaction, each time on a page that was just opened.
    pub(crate) async fn measure(&self, browser: &Browser, times: usize) -> Medians {
        let link = async {
            browser.open(&self.link).await;
            None
        };
        attempt(link).await;
        let (mut paints, mut contents, mut bytes, mut frames) = (vec![], vec![], vec![], vec![]);
        for _ in 0..times {
            let content = attempt(self.open(browser)).await;
            contents.push(content);
            paints.push(value(browser, PAINT).await);
            bytes.push(value(browser, BYTES).await);
            frames.push(value(browser, &frames_script()).await);
            if content.is_none() {
                break;
            }
        }
        let mut all = vec![
            ("first paint", median(paints, "ms")),
            ("content is there", median(contents, "ms")),
            ("received for it", median(bytes, "kB")),
            ("longest frame while scrolling", median(frames, "ms")),
        ];
        for task in &self.tasks {
            let mut measured = Vec::new();
            for _ in 0..times {
                let one = match attempt(self.open(browser)).await {
                    Some(_) => attempt(task.run(browser)).await,
                    None => None,
                };
                measured.push(one);
                // A failure takes half a minute, and the next one would not be another.
                if one.is_none() {
                    break;
                }
            }
            all.push((task.name, median(measured, "ms")));
        }
        all
    }

    /// Opens the page anew; milliseconds from the start of loading until its content is there.
    async fn open(&self, browser: &Browser) -> Option<f64> {
        browser.open("about:blank").await;
        browser.open(&self.address).await;
        number(&browser.value(&until("0", &self.ready)).await)
    }
}

impl Task {
    async fn run(&self, browser: &Browser) -> Option<f64> {
        let needed = format!("!!document.querySelector({:?})", self.needs);
        number(&browser.value(&until("0", &needed)).await)?;
        let script = format!(
            "(() => {{ window.since = performance.now(); {}; return true }})()",
            self.script
        );
        browser.value(&script).await;
        if !self.keys.is_empty() {
            browser.keys(&self.keys).await;
        }
        number(&browser.value(&until("window.since", &self.done)).await)
    }
}

/// What is measured; `None`, after a message, if the browser fails or its page does not answer in time.
async fn attempt(measuring: impl Future<Output = Option<f64>>) -> Option<f64> {
    let measured = AssertUnwindSafe(measuring).catch_unwind().await;
    measured.ok().flatten()
}

async fn value(browser: &Browser, expression: &str) -> Option<f64> {
    attempt(async { number(&browser.value(expression).await) }).await
}

/// A promise of the milliseconds since `since` when `done` is true; of null after a time.
fn until(since: &str, done: &str) -> String {
    format!(
        "new Promise((end) => {{ const check = () => ({done}) ? end(performance.now() - {since}) \
         : performance.now() - {since} > {PATIENCE} * 1000 ? end(null) : setTimeout(check, 20); check(); }})"
    )
}

const PAINT: &str = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null";
const BYTES: &str = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]\
    .reduce((sum, one) => sum + one.transferSize, 0) / 1000";

/// A promise of the longest time between two frames while the page scrolls 60 times by 300 pixels.
fn frames_script() -> String {
    format!(
        "new Promise((end) => {{ const one = {SCROLLER}; let [last, longest, count] = [performance.now(), 0, 0]; \
         const step = (now) => {{ longest = Math.max(longest, now - last); last = now; one.scrollTop += 300; \
         if (++count < 60) requestAnimationFrame(step); else end(longest); }}; requestAnimationFrame(step); }})"
    )
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

/// `None` if any time failed.
fn median(measured: Vec<Option<f64>>, unit: &'static str) -> Option<Measured> {
    let mut all = measured.into_iter().collect::<Option<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    let value = *all.get(all.len() / 2)?;
    Some(Measured { value, unit })
}
