//! An endpoint that plays everybody: generator (`g`), keyword checker (`k`), content checker (`c`), teacher
//! (`t`) and judge (`j`), with their typical faults. What it says depends on what it is asked alone.

#![allow(dead_code, unreachable_pub)] // each test binary uses a part of it

use regex::Regex;
use serde_json::{Value, json};

use super::endpoint::Answer;
use super::fixture::RunFixture;

/// Tables for the cast to write about.
pub const TABLES: u32 = 4;

/// Puts them where they may be crawled.
pub fn add_tables(fixture: &RunFixture) {
    for n in 1..=TABLES {
        let mut text = "city,price,quantity\n".to_owned();
        for row in 0..14 {
            let city = ["Oslo", "Bergen", "Tromso"][(row * n as usize) % 3];
            let (price, quantity) = (11 + (row as u32 * 7 * n) % 23, 3 + (row as u32 + n) % 9);
            text += &format!("{city},{price}.5,{quantity}\n");
        }
        fixture.add(&format!("sales{n}.csv"), text.as_bytes());
    }
}

/// A recipe in which the cast writes `tasks` tasks on tables; `rest` holds more tables of the recipe.
pub fn recipe(base_url: &str, tasks: usize, writer: &str, rest: &str) -> String {
    let model = |name: &str| {
        format!(
            "{{ kind = 'openai', model = '{name}', base_url = '{base_url}', \
             price = {{ prompt = 1.0, completion = 1.0 }} }}"
        )
    };
    format!(
        "name = 't'\nseed = 3\nteacher = {}\n\n[[crawl.sources]]\nsource = 'local'\npath = 'files'\n\
         license = 'CC0-1.0'\n\n[query]\ntasks = {tasks}\nkeywords = ['group by', 'filter', 'sort']\n\
         languages = {{ en = 1.0 }}\n\n[query.writer]\ngenerator = {}\nkeyword_checker = {}\n\
         content_checker = {}\nsimilarity = 1.0\n{writer}\n\n[budget]\nusd = 10.0\n\n\
         [grade]\nfilters = ['format', 'finished', 'outputs', 'check', 'judge', 'duplicate']\n\
         [grade.judge]\nteacher = {}\n\n[shard]\nheld_out_templates = 0\ntest_fraction = 0\n\n{rest}",
        model("t"),
        model("g"),
        model("k"),
        model("c"),
        model("j"),
    )
}

/// What the cast says.
pub fn answer(request: &Value) -> Answer {
    if let Some(text) = request["input"][0].as_str() {
        return Answer::Place(place(text));
    }
    let messages = request["messages"].as_array().unwrap();
    let contents: Vec<&str> = messages
        .iter()
        .map(|m| m["content"].as_str().unwrap())
        .collect();
    let spoken = messages.iter().filter(|m| m["role"] == "assistant").count();
    Answer::Content(match request["model"].as_str().unwrap() {
        "g" if contents[0].contains("`reference` is Python") => propose(contents[0], spoken),
        "g" => write(contents[0], spoken),
        "k" => keyword(contents[0]),
        "c" => content(contents[0], spoken),
        "t" => solve(&contents, spoken),
        "j" => judge(contents[0]),
        other => panic!("nobody is called {other}"),
    })
}

/// Queries stand by what they ask for, whatever the table.
fn place(query: &str) -> Vec<f64> {
    let asked = ["add up", "keep the rows", "sort all"].map(|words| query.contains(words));
    asked.map(|is| if is { 1.0 } else { 0.1 }).to_vec()
}

fn found<'a>(pattern: &str, text: &'a str) -> &'a str {
    let found = Regex::new(pattern).unwrap().captures(text);
    found
        .unwrap_or_else(|| panic!("no {pattern} in {text}"))
        .get(1)
        .unwrap()
        .as_str()
}

/// The file and the number of its table.
fn table(text: &str) -> (&str, &str) {
    (
        found(r"(sales\d\.csv)", text),
        found(r"sales(\d)\.csv", text),
    )
}

/// The query of a keyword on a table; the second version of one says so.
fn query(keyword: &str, file: &str, version: usize) -> (String, String) {
    let output = format!("output/{}_{}", keyword.replace(' ', "_"), file);
    let text = match keyword {
        "group by" => {
            "add up the column \"quantity\" of each city and save a table with the columns \"city\" \
                       and \"total\", sorted by city,"
        }
        "filter" => {
            "keep the rows with a price above 20, in their order and with all columns, and save them"
        }
        "sort" => {
            "sort all rows by \"price\" from high to low, equal ones by \"quantity\" from low to high, and \
                   save them"
        }
        other => panic!("nobody writes about {other}"),
    };
    let more = if version > 1 {
        " Nothing else is wanted."
    } else {
        ""
    };
    (format!("In {file}, {text} as ./{output}.{more}"), output)
}

fn code(keyword: &str, file: &str) -> String {
    let read = format!("import pandas as pd\nrows = pd.read_csv('data/{file}')\n");
    read + match keyword {
        "group by" => {
            "rows = rows.groupby('city', as_index=False)['quantity'].sum()\n\
             rows = rows.rename(columns={'quantity': 'total'}).sort_values('city')\n"
        }
        "filter" => "rows = rows[rows['price'] > 20]\n",
        _ => "rows = rows.sort_values(['price', 'quantity'], ascending=[False, True])\n",
    }
}

/// The generator. Of its first versions: a column that is not there on table 1, a broken object on
/// table 2; every answer stands in prose.
fn write(question: &str, spoken: usize) -> String {
    let keyword = found("be about \"([^\"]+)\"", question);
    let (file, number) = table(question);
    let (mut text, output) = query(keyword, file, spoken + 1);
    let mut uses = vec!["price"];
    if (number, spoken) == ("1", 0) {
        text = text.replace("In ", "By the column \"pricee\": in ");
        uses = vec!["pricee"];
    }
    let draft = json!({
        "query": text, "outputs": [output], "uses": uses, "makes": ["total", "city", "quantity"],
        "sketch": code(keyword, file),
    });
    let whole = format!("Of course! {{Here}} it is:\n```json\n{draft:#}\n```\nEnjoy.");
    match (number, spoken) {
        ("2", 0) => whole[..whole.len() / 2].to_owned(),
        _ => whole,
    }
}

/// The keyword checker: filters on table 3 are not about it at first.
fn keyword(question: &str) -> String {
    let needed = !(question.contains("keep the rows") && question.contains("sales3"))
        || question.contains("Nothing else");
    let opinion = json!({"needed": needed, "reason": "Without it nothing comes out."});
    format!("```json\n{opinion}\n```")
}

/// The content checker: lost in praise whenever table 4 is sorted; it contradicts itself once on others.
fn content(question: &str, spoken: usize) -> String {
    if question.contains("In sales4.csv, sort") {
        return "What a magnificent task! Truly well thought out, clear and useful. I love it."
            .to_owned();
    }
    match (question.contains("sales2"), spoken) {
        (true, 0) => json!({"supported": true, "missing": ["nothing"], "reason": "All is there."}),
        _ => json!({"supported": true, "missing": [], "reason": "All is there."}),
    }
    .to_string()
}

/// The generator's checks: a reference that raises at first for filters, one that is wrong for groups of
/// table 3, and one that lets everything pass for sorted table 2.
fn propose(question: &str, spoken: usize) -> String {
    let (file, number) = table(question);
    let output = found(r"\./(output/\w+\.csv)", question);
    let keyword = found(r"output/(\w+)_sales", output).replace('_', " ");
    let mut reference = code(&keyword, file);
    let mut check = json!({"check": "table", "path": output, "expected": "rows"});
    match (&*keyword, number) {
        ("filter", _) if spoken == 0 => reference += "rows = row\n",
        ("group by", "3") => reference += "rows['total'] += 1\n",
        ("sort", "2") => check["rtol"] = json!(1e9),
        _ => {}
    }
    json!({"reference": reference, "checks": [check]}).to_string()
}

/// The teacher.
fn solve(contents: &[&str], spoken: usize) -> String {
    let asked = contents
        .iter()
        .find(|text| text.contains("./output/"))
        .unwrap();
    let asked = contents
        .iter()
        .rev()
        .find(|text| text.starts_with("In sales"))
        .unwrap_or(asked);
    let (file, _) = table(asked);
    let output = found(r"\./(output/\w+\.csv)", asked);
    let keyword = found(r"output/(\w+)_sales", output).replace('_', " ");
    if spoken > 0 {
        return format!("Finished: the table is saved as ./{output}.");
    }
    let code = code(&keyword, file);
    format!(
        "Analyse: a table.\nThis Step Todo: all of it.\n<|execute_start|>\n```python\n{code}\
         rows.to_csv('{output}', index=False)\nprint('saved')\n```\n"
    )
}

/// The judge: sorted table 1 does not please it, and of groups it says nothing.
fn judge(question: &str) -> String {
    if question.contains("In sales1.csv, sort") {
        return "It is not nice.\nVERDICT: FAIL".to_owned();
    }
    match question.contains("add up the column") {
        true => "VERDICT: PASS, I should think, but then".to_owned(),
        false => "It is there.\nVERDICT: PASS".to_owned(),
    }
}
