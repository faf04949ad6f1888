//! Operations on documents: what is extracted from their paragraphs, headings and pages, as a text or as a table.

use polars::prelude::{Column, DataFrame};
use rand::seq::IndexedRandom;

use super::columns::{
    LEVEL, LINE, LINES, NUMBER, Names, SIZE, TEXT, TITLE, WORDS, column, named, table,
};
use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::document::Document;
use crate::draw::{Draw, quotable};
use crate::operation::{Operation, Role};

const PAGE: (&str, &[&str]) = ("page", &["page", "page_no", "p"]);
const PARAGRAPHS: (&str, &[&str]) = ("paragraphs", &["paragraphs", "n_paragraphs", "blocks"]);

pub(super) fn operations() -> Vec<Operation> {
    let mut all = texts();
    all.extend(page_texts());
    all.extend(tables());
    all.extend(page_tables());
    all
}

/// What a paragraph is, in the queries.
const RULE_EN: &str =
    "each on one line with its white space turned into single spaces, without empty ones";
const RULE_ZH: &str = "每段一行，空白合并为一个空格，不含空段";
/// What the lines of a page are.
const LINES_EN: &str = "its lines that are not blank, with runs of white space turned into one space and none at the ends";
const LINES_ZH: &str = "非空行，空白合并为一个空格，去掉首尾空白";

/// An operation that takes a text from a document.
fn take(
    name: &str,
    draw: impl Fn(&mut Draw<'_>, &Document) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, &Document) -> Option<String> + Send + Sync + 'static,
) -> Operation {
    let draw = move |d: &mut Draw<'_>| {
        let document = d.document().filter(|document| document.has_text())?;
        draw(d, &document)
    };
    Operation::edit(Medium::Document, name, draw, move |a, content| {
        Some(Content::Text(meaning(a, content.document()?)?.into()))
    })
}

/// An operation that reads a document into a table.
fn read(
    name: &str,
    names: Names,
    fits: fn(&Document) -> bool,
    meaning: impl Fn(&Arguments, &Document) -> Vec<Column> + Send + Sync + 'static,
) -> Operation {
    let draw = move |d: &mut Draw<'_>| {
        let document = d.document().filter(|document| document.has_text())?;
        match fits(&document) {
            true => named(names, d),
            false => None,
        }
    };
    let meaning = move |a: &Arguments, content: &Content| -> Option<DataFrame> {
        let document = content.document().filter(|document| fits(document))?;
        table(meaning(a, document))
    };
    Operation::read(Medium::Document, name, Role::Read, draw, meaning)
}

fn has_headings(document: &Document) -> bool {
    document.blocks.iter().any(|block| block.level > 0)
}

fn in_paragraphs(document: &Document) -> bool {
    !document.paged
}

fn in_pages(document: &Document) -> bool {
    document.paged
}

/// Texts of documents with paragraphs.
fn texts() -> Vec<Operation> {
    let whole =
        |_: &mut Draw<'_>, document: &Document| in_paragraphs(document).then(Arguments::default);
    let headed = |_: &mut Draw<'_>, document: &Document| {
        (in_paragraphs(document) && has_headings(document)).then(Arguments::default)
    };
    let section = |draw: &mut Draw<'_>, document: &Document| {
        let sections = document.sections();
        let titles: Vec<&str> = sections
            .iter()
            .map(|one| one.heading.text.as_str())
            .collect();
        let once = |title: &&&str| {
            quotable(title) && titles.iter().filter(|other| other == title).count() == 1
        };
        let titles: Vec<&&str> = titles.iter().filter(once).collect();
        let title = (**titles.choose(draw.rng)?).to_owned();
        Some(Arguments::new([("heading", Argument::Text(title))]))
    };
    vec![
        take("document_text", whole, |_, document| {
            in_paragraphs(document).then(|| Document::text(&document.blocks))
        })
        .code("$source = \"\\n\".join(text for level, text in $source)")
        .code("from operator import itemgetter\n$source = \"\\n\".join(map(itemgetter(1), $source))")
        .en([
            &format!("take the text of the document, which is all its headings and paragraphs outside of tables in their order, {RULE_EN}"),
            &format!("extract all headings and paragraphs (tables aside) as one text, {RULE_EN}"),
        ])
        .zh([&format!("按顺序取出文档中表格以外的所有标题和段落作为文本（{RULE_ZH}）")]),
        take("document_body", headed, |_, document| {
            let body = document.blocks.iter().filter(|block| block.level == 0);
            in_paragraphs(document).then(|| Document::text(body))
        })
        .code("$source = \"\\n\".join(text for level, text in $source if level == 0)")
        .code("body = []\nfor level, text in $source:\n    if level == 0:\n        body.append(text)\n$source = \"\\n\".join(body)")
        .en([
            &format!("take the text of all paragraphs that are no headings and in no table, {RULE_EN}"),
            &format!("extract the body text, that is the paragraphs outside of tables without the headings, {RULE_EN}"),
        ])
        .zh([&format!("取出文档中除标题以外、不在表格中的所有段落作为文本（{RULE_ZH}）")]),
        take("document_section", section, |a, document| {
            let mut sections = document.sections().into_iter();
            let found = sections.find(|section| section.heading.text == a.text("heading"))?;
            Some(Document::text(found.paragraphs))
        })
        .code(
            "kept, inside = [], False\n\
             for level, text in $source:\n    \
             if level > 0:\n        inside = text == $heading\n    \
             elif inside:\n        kept.append(text)\n\
             $source = \"\\n\".join(kept)",
        )
        .code("starts = [at for at, (level, text) in enumerate($source) if level > 0]\nstart = next(at for at in starts if $source[at][1] == $heading)\nend = min((at for at in starts if at > start), default=len($source))\n$source = \"\\n\".join(text for level, text in $source[start + 1:end])")
        .en([
            &format!("take the paragraphs below the heading $heading, up to the next heading of any level and without headings, {RULE_EN}"),
            &format!("extract only the section $heading: the paragraphs between this heading and the next one of any level, {RULE_EN}"),
        ])
        .zh([&format!("只取标题$heading之下、到下一个任意级别的标题为止的段落（不含标题，{RULE_ZH}）")]),
    ]
    .into_iter()
    .map(|operation| operation.counted_as("docx text"))
    .collect()
}

/// Texts of documents with pages.
fn page_texts() -> Vec<Operation> {
    let whole = |_: &mut Draw<'_>, document: &Document| in_pages(document).then(Arguments::default);
    let page = |draw: &mut Draw<'_>, document: &Document| {
        let pages = document.pages().len() as i64;
        let page = draw.count(1, pages.max(1));
        (in_pages(document) && pages > 1).then(|| Arguments::new([("page", Argument::Count(page))]))
    };
    let later = |draw: &mut Draw<'_>, document: &Document| {
        let pages = document.pages().len() as i64;
        let page = draw.count(2, pages.max(2));
        (in_pages(document) && pages > 2).then(|| Arguments::new([("page", Argument::Count(page))]))
    };
    let place = |a: &Arguments| usize::try_from(a.count("page")).ok()?.checked_sub(1);
    vec![
        take("pages_text", whole, |_, document| {
            in_pages(document).then(|| Document::text(&document.blocks))
        })
        .code("$source = \"\\n\".join(line for page in $source for line in page)")
        .code("from itertools import chain\n$source = \"\\n\".join(chain.from_iterable($source))")
        .en([
            &format!("take the text of all pages in their order: of each page {LINES_EN}, one per line"),
            &format!("extract the text of the whole document page after page, keeping of each page {LINES_EN}"),
        ])
        .zh([&format!("依次取出所有页的文本（每页取{LINES_ZH}，每行一行）")]),
        take("page_text", page, move |a, document| {
            let pages = document.pages();
            Some(Document::text(*pages.get(place(a)?).filter(|_| document.paged)?))
        })
        .code("$source = \"\\n\".join($source[$page - 1])")
        .code("numbered = dict(enumerate($source, 1))\n$source = \"\\n\".join(numbered[$page])")
        .en([
            &format!("take the text of page $page alone (the first page is 1): {LINES_EN}"),
            &format!("extract page $page, counted from 1, as text with {LINES_EN}"),
        ])
        .zh([&format!("只取第$page页的文本（首页为第1页；{LINES_ZH}）")]),
        take("pages_from", later, move |a, document| {
            let pages = document.pages();
            let kept = pages.get(place(a)?..).filter(|kept| document.paged && !kept.is_empty())?;
            Some(Document::text(kept.iter().copied().flatten()))
        })
        .code("$source = \"\\n\".join(line for page in $source[$page - 1:] for line in page)")
        .code("lines = []\nfor page in $source[$page - 1:]:\n    lines.extend(page)\n$source = \"\\n\".join(lines)")
        .en([
            &format!("take the text from page $page (the first page is 1) to the last page: of each page {LINES_EN}, one per line"),
            &format!("leave out the pages before page $page (counted from 1) and extract the text of the others, keeping of each page {LINES_EN}"),
        ])
        .zh([&format!("取第$page页（首页为第1页）到最后一页的文本（每页取{LINES_ZH}，每行一行）")]),
    ]
    .into_iter()
    .map(|operation| operation.counted_as("pdf text"))
    .collect()
}

fn words(text: &str) -> usize {
    text.split(' ').count()
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

/// Tables of documents with paragraphs.
fn tables() -> Vec<Operation> {
    let paragraphs = |a: &Arguments, document: &Document| {
        let blocks = &document.blocks;
        vec![
            column(a, "number", 1..=blocks.len()),
            column(
                a,
                "level",
                blocks.iter().map(|block| usize::from(block.level)),
            ),
            column(a, "words", blocks.iter().map(|block| words(&block.text))),
            column(
                a,
                "size",
                blocks.iter().map(|block| characters(&block.text)),
            ),
            column(a, "text", blocks.iter().map(|block| block.text.clone())),
        ]
    };
    let sections = |a: &Arguments, document: &Document| {
        let sections = document.sections();
        let below = sections.iter().map(|section| {
            let counts = section.paragraphs.iter().map(|block| words(&block.text));
            counts.sum::<usize>()
        });
        vec![
            column(a, "number", 1..=sections.len()),
            column(
                a,
                "level",
                sections.iter().map(|one| usize::from(one.heading.level)),
            ),
            column(
                a,
                "paragraphs",
                sections.iter().map(|one| one.paragraphs.len()),
            ),
            column(a, "words", below),
            column(
                a,
                "heading",
                sections.iter().map(|one| one.heading.text.clone()),
            ),
        ]
    };
    vec![
        read("read_document_paragraphs", &[NUMBER, LEVEL, TEXT, WORDS, SIZE], in_paragraphs, paragraphs)
            .rows(
                "",
                "[{$number: number, $level: level, $words: len(text.split()), $size: len(text), $text: text} \
                 for number, (level, text) in enumerate($source, 1)]",
            )
            .en([
                "make a table of all headings and paragraphs outside of tables that are not empty, in their order and with white space turned into single spaces, with the columns $number (from 1), $level (of a heading, 0 for other paragraphs), $text, $words (number of words, separated by white space) and $size (number of characters)",
                "treat each non-empty heading or paragraph (tables aside; runs of white space become one space) as a row with the columns $number (position from 1), $level (1 for \"Heading 1\" or <h1> and so on, 0 for text), $text, $words (how many words) and $size (how many characters)",
            ])
            .zh(["把表格以外的所有非空标题和段落（空白合并为一个空格）按顺序各作为一行建表，列为$number（从1开始）、$level（标题级别，普通段落为0）、$text、$words（按空白分隔的单词数）和$size（字符数）"])
            .counted_as("docx text"),
        read(
            "read_document_sections",
            &[NUMBER, TITLE, LEVEL, PARAGRAPHS, WORDS],
            |document| in_paragraphs(document) && has_headings(document),
            sections,
        )
        .rows(
            "sections = []\n\
             for level, text in $source:\n    \
             if level > 0:\n        sections.append((level, text, []))\n    \
             elif sections:\n        sections[-1][2].append(text)\n",
            "[{$number: number, $level: level, $paragraphs: len(texts), $words: sum(len(text.split()) for text in texts), \
             $heading: title} for number, (level, title, texts) in enumerate(sections, 1)]",
        )
        .en([
            "make a table with a row for each heading of the document, in their order, with the columns $number (from 1), $heading (its text), $level, $paragraphs (number of non-empty paragraphs outside of tables between it and the next heading of any level) and $words (words of these paragraphs together, separated by white space)",
            "list the sections, each from a heading to the next one of any level, as rows with the columns $number (from 1), $heading, $level (of the heading), $paragraphs (how many non-empty paragraphs outside of tables it has) and $words (their words in total)",
        ])
        .zh(["为文档的每个标题建一行，列为$number（从1开始）、$heading（标题文字）、$level（级别）、$paragraphs（到下一个任意级别的标题之间、表格以外的非空段落数）和$words（这些段落的单词总数，按空白分隔）"])
        .counted_as("headings"),
    ]
}

/// Tables of documents with pages.
fn page_tables() -> Vec<Operation> {
    let pages = |a: &Arguments, document: &Document| {
        let pages = document.pages();
        let of_lines = |count: fn(&str) -> usize| {
            let sums = pages
                .iter()
                .map(move |page| page.iter().map(|line| count(&line.text)).sum::<usize>());
            sums.collect::<Vec<_>>()
        };
        vec![
            column(a, "page", 1..=pages.len()),
            column(a, "lines", pages.iter().map(|page| page.len())),
            column(a, "words", of_lines(words)),
            column(a, "size", of_lines(characters)),
        ]
    };
    let lines = |a: &Arguments, document: &Document| {
        let blocks = &document.blocks;
        let places = document.pages().into_iter().flat_map(|page| 1..=page.len());
        vec![
            column(a, "page", blocks.iter().map(|block| block.page)),
            column(a, "line", places),
            column(a, "words", blocks.iter().map(|block| words(&block.text))),
            column(
                a,
                "size",
                blocks.iter().map(|block| characters(&block.text)),
            ),
            column(a, "text", blocks.iter().map(|block| block.text.clone())),
        ]
    };
    vec![
        read("read_pages", &[PAGE, LINES, WORDS, SIZE], in_pages, pages)
            .rows(
                "",
                "[{$page: number, $lines: len(page), $words: sum(len(line.split()) for line in page), \
                 $size: sum(len(line) for line in page)} for number, page in enumerate($source, 1)]",
            )
            .en([
                &format!("make a table with a row for each page and the columns $page (from 1), $lines (number of {LINES_EN}), $words (words of these lines, separated by white space) and $size (characters of these lines together)"),
                &format!("treat each page as a row with the columns $page (from 1), $lines (count of {LINES_EN}), $words (their words in total) and $size (their characters in total, line ends not counted)"),
            ])
            .zh([&format!("每页作为一行建表，列为$page（从1开始）、$lines（行数，只计{LINES_ZH}）、$words（这些行按空白分隔的单词总数）和$size（这些行的字符总数）")])
            .counted_as("pdf pages"),
        read("read_page_lines", &[PAGE, LINE, TEXT, WORDS, SIZE], in_pages, lines)
            .rows(
                "",
                "[{$page: number, $line: place, $words: len(line.split()), $size: len(line), $text: line} \
                 for number, page in enumerate($source, 1) for place, line in enumerate(page, 1)]",
            )
            .en([
                &format!("make a table of the lines of all pages, taking of each page {LINES_EN}, with the columns $page (from 1), $line (number within its page, from 1), $text, $words (number of words, separated by white space) and $size (number of characters)"),
                &format!("treat each line of the document as a row, keeping of each page {LINES_EN}; the columns are $page (from 1), $line (its position on the page, from 1), $text, $words (how many words) and $size (how many characters)"),
            ])
            .zh([&format!("把所有页的行（每页取{LINES_ZH}）各作为一行建表，列为$page（页码，从1开始）、$line（页内行号，从1开始）、$text、$words（按空白分隔的单词数）和$size（字符数）")])
            .counted_as("pdf pages"),
    ]
}
