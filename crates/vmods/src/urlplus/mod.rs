//! The module `urlplus`, after Varnish Enterprise's: segments and parameters of the request's URL, read and changed.
//!
//! Each request (and each fetch) has one URL in the making: that of the request until `parse()` gives another, changed by
//! the functions below, put in force by `write()`. While nothing was changed, the functions look at the request's URL as
//! it stands.

mod url;

use crate::arguments::{Arguments, functions, optional, or, required};
use copal_vcl as vcl;
use url::{Piece, QueryForm, Slash, Unique, Url, indices};
use vcl::host::{Fault, Result, Sub};
use vcl::value::Value;
use vcl::variables::Var;
use vcl::vmod::{Call, Parameter, Type, Vmod};

/// Where there is a URL.
const REQUESTS: &[Sub] = &[
    Sub::Recv,
    Sub::Hash,
    Sub::Pipe,
    Sub::Pass,
    Sub::Hit,
    Sub::Miss,
    Sub::Purge,
    Sub::Deliver,
    Sub::Synth,
    Sub::BackendFetch,
    Sub::BackendResponse,
    Sub::BackendError,
];

/// Where it can be written.
const WRITERS: &[Sub] =
    &[Sub::Recv, Sub::Hash, Sub::Pass, Sub::Hit, Sub::Miss, Sub::Deliver, Sub::Synth, Sub::BackendFetch];

const SLASH: Type = Type::Enum(&["FROM_INPUT", "TRUE", "FALSE"]);
const SORT: Parameter = or("sort_query", Type::Bool, "true");
const UNIQUE: Parameter = or("query_unique", Type::Enum(&["NONE", "KEY", "KEY_VALUE"]), "NONE");
const LEADING: Parameter = or("leading_slash", SLASH, "FROM_INPUT");
const TRAILING: Parameter = or("trailing_slash", SLASH, "FROM_INPUT");
const EQUAL: Parameter = or("query_keep_equal_sign", Type::Bool, "false");
const START: Parameter = or("start_range", Type::Int, "0");
const END: Parameter = or("end_range", Type::Int, "-1");
const NAME: Parameter = required("name", Type::String);
const REGEX: Parameter = required("regex", Type::Regex);
const KEEP: Parameter = or("keep", Type::Bool, "false");

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "urlplus",
    functions: functions! {
        "parse"(required("url", Type::String)) -> Void, parse, in REQUESTS;
        "reset"() -> Void, reset, in REQUESTS;
        "write"(SORT, UNIQUE, LEADING, TRAILING, EQUAL) -> Void, write, in WRITERS;
        "as_string"(SORT, UNIQUE, LEADING, TRAILING, EQUAL) -> String, as_string, in REQUESTS;
        "get_basename"() -> String, get_basename, in REQUESTS;
        "get_filename"() -> String, get_filename, in REQUESTS;
        "get_extension"() -> String, get_extension, in REQUESTS;
        "get_dirname"() -> String, get_dirname, in REQUESTS;
        "tolower"() -> Void, tolower, in REQUESTS;
        "toupper"() -> Void, toupper, in REQUESTS;
        "url_get"(START, END) -> String, url_get, in REQUESTS;
        "url_as_string"(LEADING, TRAILING) -> String, url_as_string, in REQUESTS;
        "url_count"() -> Int, url_count, in REQUESTS;
        "url_add"(NAME, or("position", Type::Int, "-1"), KEEP) -> Void, url_add, in REQUESTS;
        "url_keep"(NAME) -> Void, url_keep, in REQUESTS;
        "url_keep_regex"(REGEX) -> Void, url_keep_regex, in REQUESTS;
        "url_keep_range"(START, END) -> Void, url_keep_range, in REQUESTS;
        "url_delete"(NAME) -> Void, url_delete, in REQUESTS;
        "url_delete_regex"(REGEX) -> Void, url_delete_regex, in REQUESTS;
        "url_delete_range"(START, END) -> Void, url_delete_range, in REQUESTS;
        "query_get"(NAME, or("def", Type::String, "\"\"")) -> String, query_get, in REQUESTS;
        "query_as_string"(SORT, UNIQUE, EQUAL) -> String, query_as_string, in REQUESTS;
        "query_count"() -> Int, query_count, in REQUESTS;
        "query_add"(NAME, optional("value", Type::String), KEEP) -> Void, query_add, in REQUESTS;
        "query_keep"(NAME) -> Void, query_keep, in REQUESTS;
        "query_keep_regex"(REGEX) -> Void, query_keep_regex, in REQUESTS;
        "query_delete"(NAME) -> Void, query_delete, in REQUESTS;
        "query_delete_regex"(REGEX) -> Void, query_delete_regex, in REQUESTS;
    },
    objects: &[],
};

/// A task's URL in the making; none while it is the request's own.
#[derive(Default)]
struct State(Option<Url>);

/// The key of the task's state: an address of ours.
fn key() -> usize {
    static PLACE: u8 = 0;
    &raw const PLACE as usize
}

fn state<'call>(call: &'call mut Call<'_>) -> Result<&'call mut State> {
    let state = call.host.task_data(key(), &mut || Box::<State>::default());
    state.downcast_mut().ok_or_else(|| Fault("urlplus: this task's data is somebody else's".into()))
}

/// The variable that holds the request's URL.
fn variable(call: &Call<'_>) -> Var {
    match call.subroutine {
        Sub::BackendFetch | Sub::BackendResponse | Sub::BackendError => Var::BereqUrl,
        _ => Var::ReqUrl,
    }
}

fn request_url<'call>(call: &'call Call<'_>) -> &'call [u8] {
    call.host.borrow(variable(call)).unwrap_or_default()
}

/// Looks at the URL.
fn look<T>(call: &mut Call<'_>, look: impl FnOnce(&Url) -> T) -> Result<T> {
    if let Some(url) = &state(call)?.0 {
        return Ok(look(url));
    }
    Ok(look(&Url::parse(request_url(call))))
}

/// Changes the URL.
fn change(call: &mut Call<'_>, change: impl FnOnce(&mut Url) -> Result<()>) -> Result<Value> {
    if state(call)?.0.is_none() {
        let url = Url::parse(request_url(call));
        state(call)?.0 = Some(url);
    }
    match &mut state(call)?.0 {
        Some(url) => change(url)?,
        None => return Err(Fault("urlplus: no URL".into())),
    }
    Ok(Value::Void)
}

fn parse(call: &mut Call<'_>) -> Result<Value> {
    let url = Url::parse(Arguments(call.arguments).text_or_empty(0)?);
    state(call)?.0 = Some(url);
    Ok(Value::Void)
}

fn reset(call: &mut Call<'_>) -> Result<Value> {
    state(call)?.0 = None;
    Ok(Value::Void)
}

fn slash(word: &str) -> Slash {
    match word {
        "TRUE" => Slash::Yes,
        "FALSE" => Slash::No,
        _ => Slash::AsGiven,
    }
}

fn unique(word: &str) -> Unique {
    match word {
        "KEY" => Unique::Name,
        "KEY_VALUE" => Unique::Whole,
        _ => Unique::None,
    }
}

/// The URL as the arguments of `write` and `as_string` have it.
fn written(call: &mut Call<'_>) -> Result<Vec<u8>> {
    let arguments = Arguments(call.arguments);
    let form = QueryForm {
        sort: arguments.boolean(0)?,
        unique: unique(arguments.word(1)?),
        equal_sign: arguments.boolean(4)?,
    };
    let (leading, trailing) = (slash(arguments.word(2)?), slash(arguments.word(3)?));
    look(call, |url| url.whole(leading, trailing, form))
}

fn write(call: &mut Call<'_>) -> Result<Value> {
    let text = written(call)?;
    state(call)?.0 = None;
    call.host.set_text(variable(call), &text)?;
    Ok(Value::Void)
}

fn as_string(call: &mut Call<'_>) -> Result<Value> {
    written(call).map(Value::text)
}

/// A file name's parts around its last dot; the second is empty without one.
fn around_dot(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|&byte| byte == b'.') {
        Some(dot) => (&name[..dot], &name[dot + 1..]),
        None => (name, b""),
    }
}

fn get_basename(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::text(url.basename().to_vec()))
}

fn get_filename(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::text(around_dot(url.basename()).0.to_vec()))
}

fn get_extension(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::text(around_dot(url.basename()).1.to_vec()))
}

fn get_dirname(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::text(url.dirname()))
}

fn tolower(call: &mut Call<'_>) -> Result<Value> {
    change(call, |url| {
        url.map(<[u8]>::make_ascii_lowercase);
        Ok(())
    })
}

fn toupper(call: &mut Call<'_>) -> Result<Value> {
    change(call, |url| {
        url.map(<[u8]>::make_ascii_uppercase);
        Ok(())
    })
}

/// `urlplus.url_get(start_range=0, end_range=-1)`: the path without the query, or some segments of it.
fn url_get(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (start, end) = (arguments.integer(0)?, arguments.integer(1)?);
    if (start, end) == (0, -1) && state(call)?.0.is_none() {
        // The usual call takes nothing apart.
        let url = request_url(call);
        let path = url.split(|&byte| byte == b'?').next().unwrap_or_default();
        return Ok(Value::text(path.to_vec()));
    }
    look(call, |url| Value::text(url.range(start, end)))
}

fn url_as_string(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (leading, trailing) = (slash(arguments.word(0)?), slash(arguments.word(1)?));
    look(call, |url| Value::text(url.path(leading, trailing)))
}

fn url_count(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::Int(url.segments.counting().count() as i64))
}

/// `urlplus.url_add(name, position=-1, keep=false)`: puts a segment before the one at `position`; -1 is the end.
fn url_add(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (name, position, keep) = (arguments.text_or_empty(0)?, arguments.integer(1)?, arguments.boolean(2)?);
    change(call, |url| {
        let segments = &mut url.segments.all;
        let end = segments.len() as i64;
        let at = if position < 0 { position.saturating_add(end + 1) } else { position };
        segments.insert(at.clamp(0, end) as usize, Piece::new(name, keep));
        url.segments.only_kept |= keep;
        Ok(())
    })
}

fn named(name: &[u8]) -> impl FnMut(usize, &Piece) -> Result<bool> {
    move |_, piece| Ok(piece.text == name)
}

fn url_keep(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    change(call, |url| url.segments.keep(named(name)))
}

fn url_keep_regex(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    change(call, |url| url.segments.keep(|_, piece| regex.is_match(&piece.text)))
}

fn url_keep_range(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (start, end) = (arguments.integer(0)?, arguments.integer(1)?);
    change(call, |url| {
        let meant = indices(start, end, url.segments.all.len());
        url.segments.keep(|index, _| Ok(meant.contains(&index)))
    })
}

fn url_delete(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    change(call, |url| url.segments.delete(named(name)))
}

fn url_delete_regex(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    change(call, |url| url.segments.delete(|_, piece| regex.is_match(&piece.text)))
}

fn url_delete_range(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (start, end) = (arguments.integer(0)?, arguments.integer(1)?);
    change(call, |url| {
        let meant = indices(start, end, url.segments.all.len());
        url.segments.delete(|index, _| Ok(meant.contains(&index)))
    })
}

/// `urlplus.query_get(name, def="")`: the value of the first parameter of that name.
fn query_get(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let name = arguments.text_or_empty(0)?;
    let found = look(call, |url| {
        let parameter = url.parameters.counting().find(|piece| piece.name() == name);
        parameter.map(|piece| piece.value().unwrap_or_default().to_vec())
    })?;
    match found {
        Some(value) => Ok(Value::text(value)),
        None => Ok(Value::String(arguments.text(1)?.cloned())),
    }
}

fn query_as_string(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let form = QueryForm {
        sort: arguments.boolean(0)?,
        unique: unique(arguments.word(1)?),
        equal_sign: arguments.boolean(2)?,
    };
    look(call, |url| Value::text(url.query(form)))
}

fn query_count(call: &mut Call<'_>) -> Result<Value> {
    look(call, |url| Value::Int(url.parameters.counting().count() as i64))
}

fn query_add(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let mut text = arguments.text_or_empty(0)?.to_vec();
    if let Some(value) = arguments.maybe(1, Arguments::text)?.flatten() {
        text.push(b'=');
        text.extend_from_slice(value);
    }
    let keep = arguments.boolean(2)?;
    change(call, |url| {
        url.parameters.all.push(Piece::new(&text, keep));
        url.parameters.only_kept |= keep;
        Ok(())
    })
}

fn query_keep(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    change(call, |url| url.parameters.keep(|_, piece| Ok(piece.name() == name)))
}

fn query_keep_regex(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    change(call, |url| url.parameters.keep(|_, piece| regex.is_match(piece.name())))
}

fn query_delete(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    change(call, |url| url.parameters.delete(|_, piece| Ok(piece.name() == name)))
}

fn query_delete_regex(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    change(call, |url| url.parameters.delete(|_, piece| regex.is_match(piece.name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, complete, text};
    use vcl::regex::Regex;

    /// A request whose URL the module works on.
    struct Request(FakeHost);

    impl Request {
        fn new(url: &str) -> Self {
            Self(FakeHost { url: url.as_bytes().to_vec(), ..FakeHost::default() })
        }

        fn call(&mut self, name: &str, arguments: &[Value]) -> String {
            let function = VMOD.functions.iter().find(|function| function.name == name).unwrap();
            let arguments = complete(function.parameters, arguments);
            let regexes = [Regex::new("^utm_").unwrap()];
            let mut call = Call {
                host: &mut self.0,
                arguments: &arguments,
                object: None,
                subroutine: Sub::Recv,
                regexes: &regexes,
                wait: None,
            };
            match (function.body)(&mut call).unwrap() {
                Value::String(Some(text)) => String::from_utf8(text.to_vec()).unwrap(),
                Value::Int(number) => number.to_string(),
                _ => String::new(),
            }
        }

        fn url(&self) -> &str {
            std::str::from_utf8(&self.0.url).unwrap()
        }
    }

    #[test]
    fn the_path_is_the_requests_until_it_is_changed() {
        let mut request = Request::new("/bucket//key/?versionId=1");
        assert_eq!(request.call("url_get", &[]), "/bucket//key/");
        assert_eq!(request.call("url_get", &[Value::Int(0), Value::Int(0)]), "/bucket");
        request.0.url = b"/other?x".to_vec();
        assert_eq!(request.call("url_get", &[]), "/other");
        request.call("url_add", &[text("more")]);
        request.0.url = b"/third".to_vec();
        assert_eq!(request.call("url_get", &[]), "/other/more");
        request.call("reset", &[]);
        assert_eq!(request.call("url_get", &[]), "/third");
    }

    #[test]
    fn writing() {
        let check = |steps: &[(&str, &[Value])], expected: &str| {
            let mut request = Request::new("/a/b/c?utm_x=1&page=2&utm_y&id=3&page=4");
            for (name, arguments) in steps {
                request.call(name, arguments);
            }
            request.call("write", &[]);
            assert_eq!(request.url(), expected, "{steps:?}");
            assert_eq!(request.call("as_string", &[Value::Bool(false)]), expected);
        };
        check(&[], "/a/b/c?id=3&page=2&page=4&utm_x=1&utm_y");
        check(&[("query_delete_regex", &[Value::Code(0)])], "/a/b/c?id=3&page=2&page=4");
        check(&[("query_keep", &[text("page")]), ("query_keep", &[text("id")])], "/a/b/c?id=3&page=2&page=4");
        check(&[("query_keep_regex", &[Value::Code(0)])], "/a/b/c?utm_x=1&utm_y");
        check(&[("query_delete", &[text("page")]), ("query_delete_regex", &[Value::Code(0)])], "/a/b/c?id=3");
        check(&[("query_keep", &[text("none")]), ("url_keep", &[text("b")])], "/b");
        check(&[("query_keep", &[text("none")]), ("url_delete", &[text("b")])], "/a/c");
        check(
            &[("query_keep", &[text("none")]), ("url_delete_range", &[Value::Int(0), Value::Int(1)])],
            "/c",
        );
        check(
            &[("query_keep", &[text("none")]), ("url_keep_range", &[Value::Int(1), Value::Int(-1)])],
            "/b/c",
        );
        check(&[("query_keep", &[text("none")]), ("url_add", &[text("new"), Value::Int(0)])], "/new/a/b/c");
        check(&[("parse", &[text("/x?z=")]), ("query_add", &[text("n"), text("v")])], "/x?n=v&z");
        check(&[("parse", &[text("/X?Y")]), ("tolower", &[])], "/x?y");
    }

    #[test]
    fn reading() {
        let mut request = Request::new("/dir/file.tar.gz?q=1&q=2&empty=&bare");
        let mut check = |name: &str, arguments: &[Value], expected: &str| {
            assert_eq!(request.call(name, arguments), expected, "{name} {arguments:?}");
        };
        check("get_basename", &[], "file.tar.gz");
        check("get_filename", &[], "file.tar");
        check("get_extension", &[], "gz");
        check("get_dirname", &[], "/dir");
        check("query_get", &[text("q")], "1");
        check("query_get", &[text("empty"), text("d")], "");
        check("query_get", &[text("bare"), text("d")], "");
        check("query_get", &[text("absent"), text("d")], "d");
        check("query_count", &[], "4");
        check("url_count", &[], "2");
        check("query_as_string", &[], "bare&empty&q=1&q=2");
        check("url_as_string", &[Value::Enum("FALSE"), Value::Enum("TRUE")], "dir/file.tar.gz/");
    }
}
