//! What queries hold for and what is said of faulty ones, as observed with Varnish 7.1's tools.

use super::*;

struct Fake(usize, u32, Vec<(Tag, &'static str)>);

impl Source for Fake {
    fn level(&self) -> usize {
        self.0
    }

    fn number(&self) -> u32 {
        self.1
    }

    fn any(&self, test: &mut dyn FnMut(Tag, &[u8]) -> bool) -> bool {
        self.2.iter().any(|(tag, data)| test(*tag, data.as_bytes()))
    }
}

fn group() -> [Fake; 2] {
    let request = vec![
        (Tag::Begin, "req 1 rxreq"),
        (Tag::Timestamp, "Resp: 1795248114.639622 0.800500 0.000100"),
        (Tag::ReqMethod, "GET"),
        (Tag::ReqURL, "/a"),
        (Tag::ReqHeader, "Host: example.org"),
        (Tag::ReqHeader, "Cookie: a=b; c=d"),
        (Tag::VCL_Log, "num: 123 4.5 x"),
        (Tag::VCL_Log, "word"),
        (Tag::Backend_health, "be Went healthy \"HTTP/1.1 200 OK\" \"\""),
        (Tag::Error, " \"missing\"\"blank\" ko "),
        (Tag::Notice, "a \"open end "),
        (Tag::RespStatus, "200"),
        (Tag::TTL, "RFC -1 10 0 1795248115 1795248115 1795248114 0 60 cacheable"),
        (Tag::End, ""),
    ];
    let fetch = vec![(Tag::Begin, "bereq 2 fetch"), (Tag::BerespStatus, "503"), (Tag::End, "")];
    [Fake(1, 2, request), Fake(2, 3, fetch)]
}

#[track_caller]
fn check(text: &str, expected: bool) {
    check_cased(text, false, expected);
}

#[track_caller]
fn check_cased(text: &str, any_case: bool, expected: bool) {
    match Query::parse(text, any_case) {
        Ok(query) => assert_eq!(query.matches(&group()), expected, "{text}"),
        Err(fault) => panic!("{fault}"),
    }
}

#[test]
fn numbers() {
    for (text, expected) in [
        ("RespStatus == 200", true),
        ("RespStatus == 200.", true),
        ("RespStatus == \" 200 \"", true),
        ("RespStatus == 0xc8", true),
        ("RespStatus == 0310", true),
        ("RespStatus == +200", true),
        ("RespStatus == 2e2", true),
        ("RespStatus != 200", false),
        ("*Status != 200", true),
        ("RespStatus < 201", true),
        ("RespStatus <= 200", true),
        ("RespStatus > 199", true),
        ("RespStatus>=200", true),
        ("RespStatus > 99999999999999999999", false),
        ("RespStatus < 99999999999999999999", true),
        ("VCL_Log:num == 123", true),
        ("VCL_Log:num[2] == 4", true),
        ("VCL_Log:num[2] > 4", false),
        ("VCL_Log:num[2] > 4.", true),
        ("VCL_Log:num[3] != 7", false),
        ("VCL_Log:num[4] != 7", false),
        ("Timestamp:Resp[2] > 0.8", true),
        ("Timestamp:Resp[2] > 1.", false),
        ("TTL[2] < 0", true),
        ("TTL[2] == -1", true),
    ] {
        check(text, expected);
    }
}

#[test]
fn texts() {
    for (text, expected) in [
        ("VCL_Log eq word", true),
        ("VCL_Log eq WORD", false),
        ("VCL_Log eq \"wor\\d\"", true),
        ("VCL_Log:num eq \"123 4.5 x\"", true),
        ("VCL_Log:num eq \" 123 4.5 x\"", false),
        ("VCL_Log:word", false),
        ("ReqURL ne '/a'", false),
        ("ReqHeader:HOST ~ '^exa'", true),
        ("ReqHeader:host !~ '^exa'", false),
        ("Req*:host", true),
        ("reqm", true),
        ("ReqHeader:cookie[2] eq 'c=d'", true),
        ("Backend_health[4] eq 'HTTP/1.1 200 OK'", true),
        ("Backend_health[5] eq ''", true),
        ("Backend_health[6]", false),
        ("Error[1]", false),
        ("Notice[1] eq a", true),
        ("Notice[2]", false),
        ("End eq ''", true),
        ("VCL_Log ~ \"^wor\\\\w$\"", true),
    ] {
        check(text, expected);
    }
    check_cased("VCL_Log eq WORD", true, true);
    check_cased("VCL_Log ~ WORD", true, true);
}

#[test]
fn levels_and_numbers_of_transactions() {
    for (text, expected) in [
        ("{1}Begin ~ bereq", false),
        ("{2}Begin ~ bereq", true),
        ("{2+}Begin ~ req", true),
        ("{2-}Begin ~ rxreq", true),
        ("{0+}Begin ~ rxreq", true),
        ("{0}Begin", false),
        ("{+2}Begin", true),
        ("vxid == 3", true),
        ("vxid != 3", true),
        ("not vxid == 3", false),
        ("vxid > 3", false),
    ] {
        check(text, expected);
    }
}

#[test]
fn expressions() {
    for (text, expected) in [
        ("RespStatus == 200 and ReqURL", true),
        ("RespStatus == 404 and ReqURL", false),
        ("RespStatus == 200 or RespStatus == 503 and RespStatus == 404", true),
        ("(RespStatus == 200 or RespStatus == 503) and RespStatus == 404", false),
        ("not RespStatus == 404", true),
        ("not(ReqURL)or(RespStatus)", true),
        ("# nothing\n\nRespStatus == 404\nReqURL # here\n", true),
        ("RespStatus \\\n== \\\n200", true),
        ("Debug,Resp* == 200", true),
    ] {
        check(text, expected);
    }
}

#[track_caller]
fn check_fault(text: &str, expected: &str) {
    match Query::parse(text, false) {
        Ok(_) => panic!("accepted: {text}"),
        Err(fault) => assert_eq!(fault.to_string(), format!("Query expression error:\n{expected}"), "{text}"),
    }
}

#[test]
fn faults_are_shown_as_varnish_shows_them() {
    for (text, expected) in [
        ("", ""),
        ("# x", ""),
        ("\"b\\\\la", "Unterminated string (Pos 7)\n\"b\\\\la\n######\n"),
        ("{}", "Expected integer got '}' (Pos 2)\n{}\n-#\n"),
        ("{-1}", "Expected positive integer (Pos 2)\n{-1}\n-##-\n"),
        ("{1a}", "Syntax error in level limit (Pos 2)\n{1a}\n-##-\n"),
        ("[]", "Expected VSL tag name got '[' (Pos 1)\n[]\n#-\n"),
        ("foo", "Tag name matches zero tags (Pos 1)\nfoo\n###\n"),
        ("Resp", "Tag name is ambiguous (Pos 1)\nResp\n####\n"),
        ("ReqHeader:[]", "Expected string got '[' (Pos 11)\nReqHeader:[]\n----------#-\n"),
        ("ReqHeader:foo[]", "Expected integer got ']' (Pos 15)\nReqHeader:foo[]\n--------------#\n"),
        ("ReqURL[0]", "Expected positive integer (Pos 8)\nReqURL[0]\n-------#-\n"),
        ("*x* eq a", "Syntax error in tag name (Pos 1)\n*x* eq a\n###-----\n"),
        ("RespStatus > >", "Expected number got '>' (Pos 14)\nRespStatus > >\n-------------#\n"),
        (
            "RespStatus > 0.foo",
            "Floating point parse error (Pos 14)\nRespStatus > 0.foo\n-------------#####\n",
        ),
        ("RespStatus > foo", "Integer parse error (Pos 14)\nRespStatus > foo\n-------------###\n"),
        ("ReqMethod eq >", "Expected string got '>' (Pos 14)\nReqMethod eq >\n-------------#\n"),
        ("ReqMethod ~ >", "Expected regular expression got '>' (Pos 13)\nReqMethod ~ >\n------------#\n"),
        (
            "ReqMethod ~ \"(\"",
            "Regular expression error: missing closing parenthesis (Pos 14)\nReqMethod ~ \"(\"\n------------#^#\n",
        ),
        (
            "RespStatus ReqMethod 200",
            "Expected operator got 'ReqMethod' (Pos 12)\nRespStatus ReqMethod 200\n-----------#########----\n",
        ),
        ("(ReqURL", "Expected ')' got end of input (Pos 8)\n(ReqURL\n-------\n"),
        ("ReqURL)", "Expected EOI got ')' (Pos 7)\nReqURL)\n------#\n"),
        ("not", "Expected VSL tag name got '' (Pos 4)\nnot\n---\n"),
        ("not not ReqURL", "Expected VSL tag name got 'not' (Pos 5)\nnot not ReqURL\n----###-------\n"),
        ("vxid", "Expected vxid operator got '' (Pos 5)\nvxid\n----\n"),
        ("vxid == 1.5", "Expected integer got '1.5' (Pos 9)\nvxid == 1.5\n--------^##\n"),
        ("{1}vxid == 2", "Unexpected taglist selection for vxid (Pos 9)\n{1}vxid == 2\n--------##--\n"),
        ("ReqURL =~ a", "Syntax error (Pos 8)\nReqURL =~ a\n-------#---\n"),
        ("ReqURL eq a b", "Expected EOI got 'b' (Pos 13)\nReqURL eq a b\n------------#\n"),
        (
            "ReqURL\nRespStatus >",
            "Expected number got '' (Pos 20)\nReqURL RespStatus >\n-------------------\n",
        ),
    ] {
        check_fault(text, expected);
    }
    check_fault(&"(".repeat(5000), &{
        let text = "(".repeat(5000);
        format!("Too many parentheses (Pos 101)\n{text}\n{}#{}\n", "-".repeat(100), "-".repeat(4899))
    });
}
