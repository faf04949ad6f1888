use proptest::prelude::*;
use serde_json::json;

use super::*;

fn opinion(needed: bool) -> String {
    json!({"needed": needed, "reason": "It asks for {a} \"mean\"."}).to_string()
}

fn read_keyword(reply: &str) -> Result<bool, String> {
    read::<KeywordOpinion>(reply).map(|opinion| opinion.needed)
}

#[test]
fn text_around_an_answer_is_ignored() {
    let (yes, no) = (opinion(true), opinion(false));
    for reply in [
        yes.clone(),
        format!("Sure! Here is my opinion:\n```json\n{yes}\n```\nI hope this {{helps}}."),
        format!("I looked at {{columns}} and {{\"x\": 1}}.\n\n{yes}"),
        format!("{yes}\n{yes}"),
        format!("<think>{{ maybe }}</think>{yes}"),
    ] {
        assert_eq!(read_keyword(&reply), Ok(true), "{reply}");
    }
    assert_eq!(read_keyword(&no), Ok(false));
}

#[test]
fn unreadable_replies_are_rejected() {
    let (yes, no) = (opinion(true), opinion(false));
    for (reply, why) in [
        (
            "What a wonderful and truly inspiring query!".to_owned(),
            "no JSON object",
        ),
        (String::new(), "no JSON object"),
        (yes[..yes.len() - 4].to_owned(), "EOF"),
        (format!("{yes} or rather {no}"), "contradict"),
        (
            json!({"needed": "yes", "reason": "r"}).to_string(),
            "invalid type",
        ),
        (json!({"needed": true}).to_string(), "missing field"),
        (
            json!({"needed": true, "reason": "r", "score": 9}).to_string(),
            "unknown field",
        ),
        (
            json!({"needed": true, "reason": " "}).to_string(),
            "is empty",
        ),
        (
            json!({"needed": true, "reason": "r".repeat(2001)}).to_string(),
            "longer",
        ),
        ("{".repeat(100_000), "cannot be read"),
        ("[".repeat(50_000) + "{\"a\":", "cannot be read"),
        ("[".repeat(100_000) + "{\"a\":", "no JSON object"),
        ("{\"a\":".repeat(10_000), "cannot be read"),
    ] {
        let said = read_keyword(&reply).unwrap_err();
        assert!(said.contains(why), "{reply:.60}: {said}");
    }
    let contradictory = json!({"supported": true, "missing": ["a column"], "reason": "r"});
    assert!(
        read::<ContentOpinion>(&contradictory.to_string())
            .unwrap_err()
            .contains("is missing")
    );
}

#[test]
fn the_schema_matches_the_type() {
    let schema = KeywordOpinion::schema();
    assert_eq!(schema["required"], json!(["needed", "reason"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    let proposal = Proposal::schema().to_string();
    assert!(!proposal.contains("$ref"), "{proposal}");
    assert!(proposal.contains("\"sheet\""));
}

fn any_draft() -> impl Strategy<Value = Draft> {
    let names = || prop::collection::vec("\\PC{0,20}", 0..4);
    ("\\PC{10,60}", names(), names(), names(), "\\PC{1,40}").prop_map(
        |(query, outputs, uses, makes, sketch)| Draft {
            query,
            outputs,
            uses,
            makes,
            sketch,
        },
    )
}

proptest! {
    #[test]
    fn a_serialized_draft_is_read_back(draft in any_draft(), before in "[^{]{0,40}", after in "[^{]{0,40}") {
        prop_assume!(draft.problem().is_none());
        let reply = format!("{before}{}{after}", serde_json::to_string_pretty(&draft).unwrap());
        prop_assert_eq!(read::<Draft>(&reply), Ok(draft));
    }

    #[test]
    fn a_truncated_answer_is_rejected(draft in any_draft(), cut in 1_usize..40) {
        let text = serde_json::to_string(&draft).unwrap();
        let whole: Vec<char> = text.chars().collect();
        let part: String = whole[..whole.len().saturating_sub(cut)].iter().collect();
        prop_assert!(read::<Draft>(&part).is_err());
    }
}

#[test]
fn fuzz_any_reply_is_read_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(draft) = read::<Draft>(&text) {
            assert!(draft.problem().is_none());
        }
        let _ = read::<KeywordOpinion>(&text);
        let _ = read::<ContentOpinion>(&text);
        let _ = read::<Proposal>(&format!("{{\"reference\": \"x\", \"checks\": [{text}]}}"));
    });
}
