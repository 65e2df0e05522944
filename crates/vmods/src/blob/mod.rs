//! The module `blob` of Varnish 7.1: bytes and their printable forms.
//!
//! A BLOB is shared, so `blob.sub()` and an object's `.get()` copy nothing. Two blobs are the same if they are the same
//! bytes in memory, or both empty. Faults have varnishd's words, with the first of the strings that were to be decoded.

mod code;

use crate::arguments::{Arguments, functions, or, required};
use bytes::Bytes;
use code::{Case, Encoding};
use copal_vcl as vcl;
use std::sync::{Arc, OnceLock};
use vcl::host::{Fault, Result};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

const ENCODING: Type =
    Type::Enum(&["IDENTITY", "BASE64", "BASE64URL", "BASE64URLNOPAD", "BASE64CF", "HEX", "URL"]);
const CASE: Type = Type::Enum(&["LOWER", "UPPER", "DEFAULT"]);

/// The module's table. Source: `vmod_blob(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "blob",
    functions: functions! {
        "decode"(
            or("decoding", ENCODING, "IDENTITY"),
            or("length", Type::Int, "0"),
            required("encoded", Type::StrandList)
        ) -> Blob, decode;
        "encode"(
            or("encoding", ENCODING, "IDENTITY"),
            or("case", CASE, "DEFAULT"),
            required("blob", Type::Blob)
        ) -> String, encode;
        "transcode"(
            or("decoding", ENCODING, "IDENTITY"),
            or("encoding", ENCODING, "IDENTITY"),
            or("case", CASE, "DEFAULT"),
            or("length", Type::Int, "0"),
            required("encoded", Type::StrandList)
        ) -> String, transcode;
        "same"(required("", Type::Blob), required("", Type::Blob)) -> Bool, same;
        "equal"(required("", Type::Blob), required("", Type::Blob)) -> Bool, equal;
        "length"(required("", Type::Blob)) -> Int, length;
        "sub"(required("", Type::Blob), required("length", Type::Bytes), or("offset", Type::Bytes, "0B"))
            -> Blob, sub;
    },
    objects: &[Object {
        name: "blob",
        parameters: &[or("decoding", ENCODING, "IDENTITY"), required("encoded", Type::StrandList)],
        make,
        methods: functions! {
            "get"() -> Blob, get;
            "encode"(or("encoding", ENCODING, "IDENTITY"), or("case", CASE, "DEFAULT")) -> String, encode_object;
        },
    }],
};

fn fault(what: impl std::fmt::Display) -> Fault {
    Fault(format!("vmod blob error: {what}"))
}

fn encoding(arguments: Arguments<'_>, index: usize) -> Result<Encoding> {
    Encoding::of(arguments.word(index)?).ok_or_else(|| fault("no such encoding"))
}

/// How digits are to be written; only hexadecimal ones have a case.
fn case(arguments: Arguments<'_>, index: usize, encoding: Encoding) -> Result<Case> {
    let word = arguments.word(index)?;
    match word {
        "DEFAULT" => Ok(Case::Lower),
        _ if !encoding.has_case() => {
            Err(fault(format_args!("case {word} is illegal with encoding {}", encoding.name())))
        }
        "UPPER" => Ok(Case::Upper),
        _ => Ok(Case::Lower),
    }
}

/// The strands at `index`, joined and cut to `length` bytes, decoded; `doing` begins the fault.
fn decoded(
    arguments: Arguments<'_>,
    index: usize,
    encoding: Encoding,
    length: i64,
    doing: &str,
) -> Result<Bytes> {
    let strands = arguments.strands(index)?;
    let joined = joined(strands);
    let length = usize::try_from(length).ok().filter(|length| (1..joined.len()).contains(length));
    let text = length.map_or(joined.clone(), |length| joined.slice(..length));
    code::decode(encoding, &text).ok_or_else(|| {
        let first = strands.iter().flatten().find(|strand| !strand.is_empty());
        let first = String::from_utf8_lossy(first.map_or(b"", |first| first));
        fault(format_args!("{doing}, illegal encoding beginning with \"{first}\""))
    })
}

/// One string needs no copy.
fn joined(strands: &[Option<Text>]) -> Bytes {
    let mut set = strands.iter().flatten().filter(|strand| !strand.is_empty());
    match (set.next(), set.next()) {
        (None, _) => Bytes::new(),
        (Some(only), None) => only.clone(),
        _ => strands.iter().flatten().flat_map(|strand| strand.iter().copied()).collect::<Vec<u8>>().into(),
    }
}

fn decode(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let blob = decoded(arguments, 2, encoding(arguments, 0)?, arguments.integer(1)?, "cannot decode")?;
    Ok(Value::Blob(Some(blob)))
}

fn encode(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let encoding = encoding(arguments, 0)?;
    let case = case(arguments, 1, encoding)?;
    Ok(Value::String(arguments.blob(2)?.map(|blob| code::encode(encoding, case, blob))))
}

fn transcode(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (from, to) = (encoding(arguments, 0)?, encoding(arguments, 1)?);
    let case = case(arguments, 2, to)?;
    let blob = decoded(arguments, 4, from, arguments.integer(3)?, "cannot decode")?;
    Ok(Value::text(code::encode(to, case, &blob)))
}

fn same(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    Ok(Value::Bool(match (arguments.blob(0)?, arguments.blob(1)?) {
        (None, None) => true,
        (Some(one), None) | (None, Some(one)) => one.is_empty(),
        (Some(one), Some(two)) => {
            (one.is_empty() && two.is_empty()) || (one.as_ptr() == two.as_ptr() && one.len() == two.len())
        }
    }))
}

fn equal(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let bytes = |index| -> Result<&[u8]> { Ok(arguments.blob(index)?.map_or(&[], |blob| &blob[..])) };
    Ok(Value::Bool(bytes(0)? == bytes(1)?))
}

fn length(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(Arguments(call.arguments).blob(0)?.map_or(0, |blob| blob.len() as i64)))
}

fn sub(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (size, offset) = (arguments.bytes(1)?, arguments.bytes(2)?);
    let Some(blob) = arguments.blob(0)?.filter(|blob| !blob.is_empty()) else {
        return Err(fault("blob is empty in blob.sub()"));
    };
    let end = offset.checked_add(size).and_then(|end| usize::try_from(end).ok());
    match (usize::try_from(offset), end) {
        (Ok(start), Some(end)) if end <= blob.len() => Ok(Value::Blob(Some(blob.slice(start..end)))),
        _ => Err(fault(format_args!(
            "size {size} from offset {offset} requires more bytes than blob length {} in blob.sub()",
            blob.len()
        ))),
    }
}

/// The object: a blob and the printable forms it was asked for, each made once.
struct Kept {
    blob: Bytes,
    encoded: [OnceLock<Text>; Encoding::COUNT * 2],
}

fn make(name: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let arguments = Arguments(call.arguments);
    let doing = format!("cannot create blob {name}");
    let blob = decoded(arguments, 1, encoding(arguments, 0)?, 0, &doing)?;
    Ok(Arc::new(Kept { blob, encoded: Default::default() }))
}

fn kept<'call>(call: &Call<'call>) -> Result<&'call Kept> {
    call.object
        .and_then(|object| object.downcast_ref())
        .ok_or_else(|| fault("a method was called on something else"))
}

fn get(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Blob(Some(kept(call)?.blob.clone())))
}

fn encode_object(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let encoding = encoding(arguments, 0)?;
    let case = case(arguments, 1, encoding)?;
    let kept = kept(call)?;
    let place = &kept.encoded[encoding as usize * 2 + usize::from(case == Case::Upper)];
    Ok(Value::String(Some(place.get_or_init(|| code::encode(encoding, case, &kept.blob)).clone())))
}

#[cfg(test)]
mod tests;
