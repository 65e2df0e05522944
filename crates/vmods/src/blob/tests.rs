//! The module's functions as VCL calls them.

use super::*;
use crate::testing::{FakeHost, call_in_module, make_object};
use vcl::host::Sub;

fn shown(name: &str, arguments: &[Value]) -> String {
    let value = call_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, name, arguments);
    match value {
        Ok(value) => format!("{value:?}"),
        Err(fault) => fault.0,
    }
}

fn strands(parts: &[&str]) -> Value {
    Value::Strands(parts.iter().map(|part| Some(Text::copy_from_slice(part.as_bytes()))).collect())
}

fn blob(bytes: &'static [u8]) -> Value {
    Value::Blob(Some(Bytes::from_static(bytes)))
}

#[test]
fn transcoding() {
    let word = Value::Enum;
    let zero = Value::Int(0);
    for (arguments, answer) in [
        (
            [word("HEX"), word("IDENTITY"), word("DEFAULT"), zero.clone(), strands(&["666", "f6f"])],
            "b\"foo\"",
        ),
        ([word("HEX"), word("IDENTITY"), word("DEFAULT"), zero.clone(), strands(&["666f00"])], "b\"fo\""),
        ([word("IDENTITY"), word("URL"), word("UPPER"), zero.clone(), strands(&["a/b"])], "b\"a%2Fb\""),
        (
            [word("IDENTITY"), word("BASE64"), word("DEFAULT"), Value::Int(3), strands(&["foo", "bar"])],
            "b\"Zm9v\"",
        ),
    ] {
        assert_eq!(shown("transcode", &arguments), format!("String(Some({answer}))"));
    }
}

#[test]
fn faults_have_varnishs_words() {
    let word = Value::Enum;
    for (name, arguments, sentence) in [
        (
            "decode",
            vec![word("HEX"), Value::Int(0), strands(&["", "g", "123"])],
            "vmod blob error: cannot decode, illegal encoding beginning with \"g\"",
        ),
        (
            "encode",
            vec![word("IDENTITY"), word("LOWER"), blob(b"x")],
            "vmod blob error: case LOWER is illegal with encoding IDENTITY",
        ),
        ("sub", vec![blob(b""), Value::Bytes(1)], "vmod blob error: blob is empty in blob.sub()"),
        (
            "sub",
            vec![blob(b"12345678"), Value::Bytes(4), Value::Bytes(5)],
            "vmod blob error: size 4 from offset 5 requires more bytes than blob length 8 in blob.sub()",
        ),
        (
            "sub",
            vec![blob(b"1"), Value::Bytes(u64::MAX), Value::Bytes(1)],
            "vmod blob error: size 18446744073709551615 from offset 1 requires more bytes than blob length 1 in \
             blob.sub()",
        ),
    ] {
        assert_eq!(shown(name, &arguments), sentence);
    }
}

#[test]
fn sameness_is_of_memory() {
    let (one, other) = (blob(b"one"), Value::Blob(Some(Bytes::from(b"one".to_vec()))));
    let none = Value::Blob(None);
    for (left, right, same, equal) in [
        (&one, &one, true, true),
        (&one, &other, false, true),
        (&one, &none, false, false),
        (&none, &none, true, true),
        (&blob(b""), &none, true, true),
    ] {
        assert_eq!(shown("same", &[left.clone(), right.clone()]), format!("Bool({same})"));
        assert_eq!(shown("equal", &[left.clone(), right.clone()]), format!("Bool({equal})"));
    }
}

#[test]
fn objects_keep_their_forms() {
    let object = make_object(&VMOD.objects[0], "b", &[Value::Enum("BASE64"), strands(&["Zm9v"])]).unwrap();
    let method = |index: usize, arguments: &[Value]| {
        let method = &VMOD.objects[0].methods[index];
        let value = crate::testing::call_function(
            &mut FakeHost::default(),
            Sub::Recv,
            method,
            Some(&object),
            arguments,
        );
        format!("{:?}", value.0.unwrap())
    };
    for _ in 0..2 {
        assert_eq!(method(1, &[Value::Enum("HEX"), Value::Enum("UPPER")]), "String(Some(b\"666F6F\"))");
        assert_eq!(method(1, &[Value::Enum("HEX")]), "String(Some(b\"666f6f\"))");
        assert_eq!(method(0, &[]), "Blob(Some(b\"foo\"))");
    }
    let fault = make_object(&VMOD.objects[0], "bad", &[Value::Enum("URL"), strands(&["%q"])]).err().unwrap();
    assert_eq!(fault.0, "vmod blob error: cannot create blob bad, illegal encoding beginning with \"%q\"");
}
