use std::io::Write;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use encoding_rs::GB18030;
use flate2::write::{GzEncoder, ZlibEncoder};
use lopdf::{Document, Object, Stream, StringFormat, dictionary};
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;

const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

fn scan(bytes: &[u8]) -> FileScan {
    Scrubber::default().file(bytes)
}

#[track_caller]
fn finds(what: &str, bytes: &[u8]) {
    let found = scan(bytes);
    assert!(found.found.total() > 0, "{what}: {found:?}");
}

/// Files of a kind: one with the secret, in which it is found, and one without it, which is clean.
#[track_caller]
fn finds_in(what: &str, make: impl Fn(&str) -> Vec<u8>) {
    finds(what, &make(SECRET));
    let clean = scan(&make("AKIA and other words"));
    assert!(clean.is_clean(), "{what}: {clean:?}");
}

#[track_caller]
fn refuses(bytes: &[u8], reason: &str) {
    let scan = scan(bytes);
    let stated = scan.unsearched.clone().unwrap_or_default();
    assert!(stated.contains(reason) && !scan.is_clean(), "{scan:?}");
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{text}")
        .encode_utf16()
        .flat_map(bytes)
        .collect()
}

#[test]
fn text_is_searched_in_every_encoding() {
    let csv = |secret: &str| format!("name,key\n\u{e9}t\u{e9},{secret}\n");
    finds_in("UTF-8", |secret| csv(secret).into_bytes());
    finds_in("Latin-1", |secret| {
        csv(secret).chars().map(|c| c as u8).collect()
    });
    finds_in("UTF-16, low byte first", |secret| {
        utf16(&csv(secret), u16::to_le_bytes)
    });
    finds_in("UTF-16, high byte first", |secret| {
        utf16(&csv(secret), u16::to_be_bytes)
    });
    let password = |secret: &str| match secret == SECRET {
        true => "密码：'abc12345'".to_owned(),
        false => "没有".to_owned(),
    };
    finds_in("wide Chinese", |secret| {
        utf16(&password(secret), u16::to_be_bytes)
    });
    finds_in("GB18030", |secret| {
        GB18030.encode(&password(secret)).0.into_owned()
    });
    // The second byte of 乤 is a letter, so only the decoded text shows where the key begins.
    finds(
        "GB18030 before a key",
        &GB18030.encode(&format!("乤 列\n乤{SECRET}乤\n")).0,
    );
}

fn zip_of(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        writer
            .start_file(*name, SimpleFileOptions::default())
            .unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn office_files_and_archives_are_opened() {
    let types = |main: &str| format!("<Types><Override ContentType='{main}.main+xml'/></Types>");
    finds_in("docx", |secret| {
        let (a, b) = secret.split_at(9);
        let document = format!("<w:t>{a}</w:t></w:r><w:r><w:t>{b}</w:t>");
        let types = types("wordprocessingml.document");
        let parts: [(&str, &[u8]); 3] = [
            ("[Content_Types].xml", types.as_bytes()),
            ("word/document.xml", document.as_bytes()),
            ("word/printer.bin", b"\x01\xff\xfe\0\x02"),
        ];
        zip_of(&parts)
    });
    finds_in("xlsx", |secret| {
        let types = types("spreadsheetml.sheet");
        let strings = format!("<sst><si><t>{secret}</t></si></sst>");
        let parts: [(&str, &[u8]); 2] = [
            ("[Content_Types].xml", types.as_bytes()),
            ("xl/sharedStrings.xml", strings.as_bytes()),
        ];
        zip_of(&parts)
    });
    let inner = |secret: &str| gzip(zip_of(&[("a.txt", secret.as_bytes())]).as_slice());
    finds_in("archives in archives", |secret| {
        zip_of(&[("b.gz", &inner(secret))])
    });
    finds("a member's name", &zip_of(&[(SECRET, b"x")]));
    finds("an HTML reference", b"<p>jane.doe&#64;corp.example.com</p>");
}

#[test]
fn what_cannot_be_searched_is_said() {
    let mut encrypted = zip_of(&[("a.txt", b"text")]);
    let central = encrypted
        .windows(4)
        .position(|part| part == b"PK\x01\x02")
        .unwrap();
    encrypted[6] |= 1;
    encrypted[central + 8] |= 1;
    refuses(&encrypted, "Password required");
    for opaque in [&b"\xfd7zXZ\0\0\0"[..], b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"] {
        refuses(&zip_of(&[("a.bin", opaque)]), "not opened");
    }
    refuses(b"PK\x03\x04 broken", "not a readable zip");
    refuses(b"\x00\x01\x02\x03", "no known type");
    refuses(b"\xfd7zXZ\0\0\0", "not opened");
    refuses(b"%PDF-1.4\nnothing", "not a readable PDF");
    refuses(b"PAR1\xff nothing PAR1", "not a readable Parquet file");
    let mut nested = SECRET.as_bytes().to_vec();
    for _ in 0..8 {
        nested = zip_of(&[("a.zip", &nested)]);
    }
    refuses(&nested, "nested deeper");
    let member = vec![b' '; 1 << 20];
    let names = ["a", "b", "c", "d", "e", "f"];
    let bomb = zip_of(&names.map(|name| (name, &member[..])));
    let scan = Scrubber::default().search(4 << 20, |scanner| scanner.search_file(&bomb));
    let reason = scan.unsearched.unwrap();
    assert!(reason.contains("unpacks to more than"), "{reason}");
}

fn sqlite(statements: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let connection = rusqlite::Connection::open(file.path()).unwrap();
    connection.execute_batch(statements).unwrap();
    connection.close().unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn every_value_of_a_database_is_searched() {
    // Values lie next to each other, without anything between them.
    let rows = |secret: &str| {
        format!("CREATE TABLE t (a, b, c); INSERT INTO t VALUES ('word', '{secret}', 'word');")
    };
    finds_in("a value", |secret| sqlite(&rows(secret)));
    for encoding in ["UTF-16le", "UTF-16be"] {
        finds_in(encoding, |secret| {
            sqlite(&format!("PRAGMA encoding = '{encoding}'; {}", rows(secret)))
        });
    }
    finds_in("a value over many pages", |secret| {
        let text = format!(
            "'{}{secret} {}'",
            "word ".repeat(818),
            "word ".repeat(3_000)
        );
        sqlite(&format!(
            "CREATE TABLE t (a); INSERT INTO t VALUES ({text});"
        ))
    });
    finds_in("an index, and pointer maps", |secret| {
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
            INSERT INTO t SELECT 'row ' || i, 'b', 'c' FROM n; CREATE INDEX i ON t (a);";
        sqlite(&format!(
            "PRAGMA auto_vacuum = FULL; {} {fill}",
            rows(secret)
        ))
    });
    finds_in("a file in a value", |secret| {
        let hex: String = gzip(secret.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        sqlite(&format!(
            "CREATE TABLE t (a); INSERT INTO t VALUES (x'{hex}');"
        ))
    });
    let mut damaged = sqlite(&rows("word"));
    damaged[100 + 8..100 + 10].fill(0xff);
    refuses(&damaged, "damaged SQLite");
}

/// A PDF of one page.
fn pdf(content: &str, author: &[u8]) -> Vec<u8> {
    let mut pdf = Document::with_version("1.5");
    let pages = pdf.new_object_id();
    let font = pdf.add_object(dictionary! {
        "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Courier", "Encoding" => "WinAnsiEncoding",
    });
    let content = format!("BT /F1 12 Tf 10 10 Td {content} ET{}", " 0 g".repeat(100));
    let content = pdf.add_object(Stream::new(dictionary! {}, content.into_bytes()));
    let page = pdf.add_object(dictionary! {
        "Type" => "Page", "Parent" => pages, "Contents" => content,
        "Resources" => dictionary! {"Font" => dictionary! {"F1" => font}},
        "MediaBox" => vec![0.into(), 0.into(), 595.into(), 842.into()],
    });
    let kids: Vec<Object> = vec![page.into()];
    let tree = dictionary! {"Type" => "Pages", "Kids" => kids, "Count" => 1};
    pdf.objects.insert(pages, Object::Dictionary(tree));
    let root = pdf.add_object(dictionary! {"Type" => "Catalog", "Pages" => pages});
    let author = Object::String(author.to_vec(), StringFormat::Hexadecimal);
    let info = pdf.add_object(dictionary! {"Author" => author});
    pdf.trailer.set("Root", root);
    pdf.trailer.set("Info", info);
    pdf.compress();
    let mut bytes = Vec::new();
    pdf.save_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn streams_strings_and_pages_of_pdf_are_searched() {
    finds_in("a compressed page", |secret| {
        let bytes = pdf(&format!("({secret}) Tj"), b"A");
        assert!(
            !bytes
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes())
        );
        bytes
    });
    finds_in("letters with distances", |secret| {
        let (a, b) = secret.split_at(7);
        pdf(&format!("[({a}) -20 ({b})] TJ"), b"A")
    });
    finds_in("letters as numbers", |secret| {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        pdf(&format!("<{hex}> Tj"), b"A")
    });
    finds_in("the author", |secret| {
        pdf("(text) Tj", &utf16(secret, u16::to_be_bytes))
    });
    // A stream that the document no longer refers to.
    finds_in("an earlier revision", |secret| {
        let mut deflated = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        deflated
            .write_all(format!("({secret}) Tj").as_bytes())
            .unwrap();
        let old = deflated.finish().unwrap();
        let old = [b"\n9 0 obj <<>> stream\r\n", &old[..], b"\nendstream\n"].concat();
        [pdf("(text) Tj", b"A"), old].concat()
    });
}

fn parquet_file(column: ArrayRef, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut bytes = Vec::new();
    let properties = properties.build();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn columns_and_footers_of_parquet_are_searched() {
    let note = |text: &str| vec![KeyValue::new("note".to_owned(), text.to_owned())];
    let texts = |secret: &str| -> ArrayRef {
        Arc::new(StringArray::from(vec![
            "word",
            "words",
            secret,
            "word",
            "A longer word",
        ]))
    };
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        finds_in(&format!("{compression:?}"), |secret| {
            let properties = WriterProperties::builder().set_compression(compression);
            parquet_file(texts(secret), properties)
        });
    }
    for encoding in [
        Encoding::PLAIN,
        Encoding::DELTA_BYTE_ARRAY,
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
    ] {
        finds_in(&format!("{encoding:?}"), |secret| {
            let properties = WriterProperties::builder();
            parquet_file(
                texts(secret),
                properties
                    .set_dictionary_enabled(false)
                    .set_encoding(encoding),
            )
        });
    }
    finds_in("binary values", |secret| {
        let values = vec![&b"\xff\x00"[..], secret.as_bytes()];
        parquet_file(
            Arc::new(BinaryArray::from(values)),
            WriterProperties::builder(),
        )
    });
    finds_in("the footer", |secret| {
        let properties = WriterProperties::builder().set_key_value_metadata(Some(note(secret)));
        parquet_file(texts("word"), properties)
    });
    let shard = tempfile::NamedTempFile::new().unwrap();
    for (text, footer, is_clean) in [
        (SECRET, "", false),
        ("word", SECRET, false),
        ("word", "", true),
    ] {
        let properties = WriterProperties::builder().set_key_value_metadata(Some(note(footer)));
        std::fs::write(shard.path(), parquet_file(texts(text), properties)).unwrap();
        let scan = Scrubber::default().shard(shard.path()).unwrap();
        assert_eq!(scan.is_clean(), is_clean, "{text} {footer}: {scan:?}");
    }
    for (compression, name) in [
        (Compression::BROTLI(Default::default()), "BROTLI"),
        (Compression::LZ4, "LZ4"),
        (Compression::LZ4_RAW, "LZ4_RAW"),
    ] {
        let properties = WriterProperties::builder().set_compression(compression);
        refuses(&parquet_file(texts("word"), properties), name);
    }
}

#[test]
fn media_are_searched_as_they_are() {
    let wav = |secret: &str| {
        let mut bytes = b"RIFF\0\0\0\0WAVELIST\x1c\0\0\0INFOIART".to_vec();
        bytes.extend((secret.len() as u32).to_le_bytes());
        bytes.extend(secret.as_bytes());
        bytes.push(0);
        bytes
    };
    finds_in("WAV", wav);
    finds_in("MP3 with a wide title", |secret| {
        let title = utf16(secret, u16::to_le_bytes);
        let mut bytes = b"ID3\x03\0\0\0\0\0\x40TIT2\0\0\0\x30\0\0\x01".to_vec();
        bytes.extend(title);
        bytes
    });
}

#[test]
fn fuzz_files() {
    let starts: [&[u8]; 6] = [
        b"SQLite format 3\0\x02\0\x01\x01\0\x40\x20\x20",
        b"%PDF-1.4\n1 0 obj\n",
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"PAR1",
        b"",
    ];
    bolero::check!().for_each(|bytes: &[u8]| {
        for start in starts {
            let _ = scan(&[start, bytes].concat());
        }
    });
}
