use std::io::Write;

use super::*;

#[test]
fn markdown_headings_are_outside_fences() {
    let text = "# One\n\ntext #no\n```\n# code\n```\n## Two ##\n#no\n";
    let found = profile(FileKind::Md, text.as_bytes()).unwrap();
    assert_eq!(found.headings, ["One", "Two"]);
    assert_eq!((found.lines, found.encoding.as_deref()), (8, Some("utf-8")));
}

#[test]
fn html_shows_text_headings_and_tables() {
    let page = "<html><head><title>t</title><style>p{}</style></head><body><h1>A  b</h1>\
        <script>x</script><p>Hello</p><table><tr><td>1</td></tr></table></body></html>";
    let found = profile(FileKind::Html, page.as_bytes()).unwrap();
    assert_eq!((found.headings.len(), found.tables), (1, 1));
    assert!(found.excerpt.contains("Hello") && !found.excerpt.contains("p{}"));
}

#[test]
fn svg_must_be_well_formed() {
    let svg = |text: &str| profile(FileKind::Svg, text.as_bytes());
    assert_eq!(
        svg("<svg><title>T</title><text>hi</text></svg>")
            .unwrap()
            .headings,
        ["T"]
    );
    for broken in ["<svg><g></svg>", "<svg>", "<a/>"] {
        assert!(svg(broken).is_err(), "{broken}");
    }
}

#[test]
fn notebooks_count_cells() {
    let book = r##"{"nbformat":4,"cells":[{"cell_type":"markdown","source":["# H\n","t"]},
        {"cell_type":"code","source":"x = 1"},{"cell_type":"code","source":[" "]}]}"##;
    let found = profile(FileKind::Ipynb, book.as_bytes()).unwrap();
    assert_eq!(
        (found.pages, found.code_cells, found.headings),
        (Some(3), 1, vec!["H".to_owned()])
    );
}

fn docx_of(document: &str) -> Vec<u8> {
    package(&[("word/document.xml", document)])
}

fn package(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in parts {
        writer
            .start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn pptx_shows_slides_in_order_with_their_titles() {
    let slide = |title: &str, body: &str| {
        format!(
            "<p:sld xmlns:p='p' xmlns:a='a'><p:sp><p:nvSpPr><p:nvPr><p:ph type='title'/></p:nvPr></p:nvSpPr>\
             <p:txBody><a:p><a:r><a:t>{title}</a:t></a:r></a:p></p:txBody></p:sp>\
             <p:sp><p:txBody><a:p><a:r><a:t>{body}</a:t></a:r></a:p></p:txBody></p:sp></p:sld>"
        )
    };
    let (first, second, tenth) = (slide("One", "a"), slide("Two", "b"), slide("Ten", "c"));
    let bytes = package(&[
        ("ppt/slides/slide10.xml", &tenth),
        ("ppt/slides/slide2.xml", &second),
        ("ppt/slides/slide1.xml", &first),
        ("ppt/slides/_rels/slide1.xml.rels", "<r/>"),
    ]);
    let found = profile(FileKind::Pptx, &bytes).unwrap();
    assert_eq!(found.pages, Some(3));
    assert_eq!(found.headings, ["One", "Two", "Ten"]);
    assert_eq!(found.excerpt, "One\na\nTwo\nb\nTen\nc");
    assert!(profile(FileKind::Pptx, &package(&[("a", "")])).is_err());
}

#[test]
fn settings_logs_and_mails_are_read_as_text() {
    for kind in [
        FileKind::Yaml,
        FileKind::Xml,
        FileKind::Log,
        FileKind::Ini,
        FileKind::Eml,
    ] {
        let found = profile(kind, "größe: 3\n".as_bytes()).unwrap();
        assert_eq!((&*found.excerpt, found.lines), ("größe: 3", 1));
    }
}

#[test]
fn docx_shows_paragraphs_headings_and_tables() {
    let xml = "<w:document xmlns:w='w'><w:body><w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr>\
        <w:r><w:t>Top &amp; up</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p>\
        </w:tc></w:tr></w:tbl></w:body></w:document>";
    let found = profile(FileKind::Docx, &docx_of(xml)).unwrap();
    assert_eq!(
        (found.headings, found.tables),
        (vec!["Top & up".to_owned()], 1)
    );
    assert!(found.excerpt.contains("cell"));
    assert!(profile(FileKind::Docx, &docx_of("<w:document><w:p>")).is_err());
}

#[test]
fn a_package_that_unpacks_to_too_much_is_rejected() {
    let bytes = docx_of(&" ".repeat(2 << 20));
    assert!(
        check_package(&bytes, 1 << 20)
            .unwrap_err()
            .contains("more than 1 MiB")
    );
}

#[test]
fn blocks_are_the_paragraphs_outside_of_tables() {
    let paragraph = |style: &str, text: &str| {
        format!(
            "<w:p><w:pPr><w:pStyle w:val=\"{style}\"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
        )
    };
    let body = [
        paragraph("Heading2", " A  &amp; b "),
        format!(
            "<w:tbl><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>",
            paragraph("", "cell")
        ),
        paragraph("Normal", ""),
        paragraph("Normal", "text"),
    ];
    let xml = format!(
        "<w:document><w:body>{}</w:body></w:document>",
        body.concat()
    );
    let found = blocks(FileKind::Docx, &docx_of(&xml)).unwrap();
    let shown: Vec<_> = found.iter().map(|b| (b.level, b.text.as_str())).collect();
    assert_eq!(shown, [(2, "A & b"), (0, "text")]);
    let page = "<html><body><h3>A</h3><div>no</div><p>one <b>two</b>\n three</p></body></html>";
    let found = blocks(FileKind::Html, page.as_bytes()).unwrap();
    let shown: Vec<_> = found.iter().map(|b| (b.level, b.text.as_str())).collect();
    assert_eq!(shown, [(3, "A"), (0, "one two three")]);
}
