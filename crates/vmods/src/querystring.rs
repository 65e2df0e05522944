//! The module `querystring`, after Dridi Boukelmoune's open one: parameters of URLs, cleaned, sorted and filtered. The
//! objects are those of its version 2, the functions with lists and patterns those of version 1.
//!
//! A parameter is what stands between `&` after the first `?`; one without a name is noise and dropped. Nothing is decoded:
//! only `?`, `&` and `=` are looked at.

use crate::arguments::{Arguments, functions, optional, or, required};
use crate::standard::glob;
use copal_vcl as vcl;
use parking_lot::RwLock;
use std::sync::Arc;
use vcl::host::{Fault, Result, Sub};
use vcl::regex::Regex;
use vcl::value::{Text, Value};
use vcl::variables::Var;
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

const INIT: &[Sub] = &[Sub::Init];
const MODE: Type = Type::Enum(&["keep", "drop"]);

/// The most criteria of one filter.
const CRITERIA_MAX: usize = 1000;

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "querystring",
    functions: functions! {
        "remove"(optional("url", Type::String)) -> String, remove;
        "clean"(optional("url", Type::String)) -> String, clean;
        "sort"(optional("url", Type::String), or("uniq", Type::Bool, "false")) -> String, sort;
        "filtersep"() -> String, filtersep;
        "filter"(required("url", Type::String), required("names", Type::Strands)) -> String, filter_names;
        "filter_except"(required("url", Type::String), required("names", Type::Strands)) -> String, keep_names;
        "globfilter"(required("url", Type::String), required("glob", Type::String)) -> String, filter_glob;
        "globfilter_except"(required("url", Type::String), required("glob", Type::String)) -> String, keep_glob;
        "regfilter"(required("url", Type::String), required("regex", Type::Regex)) -> String, filter_regex;
        "regfilter_except"(required("url", Type::String), required("regex", Type::Regex)) -> String, keep_regex;
    },
    objects: &[Object {
        name: "filter",
        parameters: &[
            or("sort", Type::Bool, "false"),
            or("uniq", Type::Bool, "false"),
            or("match", Type::Enum(&["name", "param"]), "name"),
        ],
        make,
        methods: functions! {
            "add_string"(required("string", Type::String)) -> Void, add_string, in INIT;
            "add_glob"(required("glob", Type::String)) -> Void, add_glob, in INIT;
            "add_regex"(required("regex", Type::Regex)) -> Void, add_regex, in INIT;
            "apply"(optional("url", Type::String), or("mode", MODE, "drop")) -> String, apply;
            "extract"(optional("url", Type::String), or("mode", MODE, "drop")) -> String, extract;
        },
    }],
};

/// What a parameter is tested for.
#[derive(Debug)]
enum Criterion {
    Exactly(Text),
    Glob(Text),
    Regex(Regex),
}

/// A filter: which parameters are meant, and what becomes of the rest.
#[derive(Debug)]
struct Filter {
    sort: bool,
    uniq: bool,
    /// Criteria are for the name, not for name and value; so are order and likeness.
    by_name: bool,
    criteria: RwLock<Vec<Criterion>>,
}

impl Filter {
    fn means(&self, parameter: &[u8], criteria: &[Criterion]) -> Result<bool> {
        let subject = if self.by_name { name(parameter) } else { parameter };
        for criterion in criteria {
            let met = match criterion {
                Criterion::Exactly(text) => subject == text,
                Criterion::Glob(pattern) => glob(pattern, subject),
                Criterion::Regex(regex) => regex.is_match(subject)?,
            };
            if met {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The parameters of `query` that are meant (or the others), in the filter's order. A filter without criteria leaves all.
    fn select<'query>(&self, query: &'query [u8], keep: bool) -> Result<Vec<&'query [u8]>> {
        let mut selected = Vec::new();
        let criteria = self.criteria.read();
        for parameter in parameters(query) {
            if criteria.is_empty() || self.means(parameter, &criteria)? == keep {
                selected.push(parameter);
            }
        }
        arrange(&mut selected, self.sort, self.uniq, self.by_name);
        Ok(selected)
    }
}

/// Path and query of `url`; the query is what follows the first `?`.
fn split(url: &[u8]) -> (&[u8], Option<&[u8]>) {
    match url.iter().position(|&byte| byte == b'?') {
        Some(mark) => (&url[..mark], Some(&url[mark + 1..])),
        None => (url, None),
    }
}

fn name(parameter: &[u8]) -> &[u8] {
    parameter.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// The parameters that have a name.
fn parameters(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|&byte| byte == b'&').filter(|parameter| !name(parameter).is_empty())
}

/// Sorts, leaving what is alike in the order it has, and drops those that are like the one before: by name, or as a whole.
fn arrange(parameters: &mut Vec<&[u8]>, sort: bool, uniq: bool, by_name: bool) {
    let key = |parameter: &[u8]| if by_name { name(parameter).len() } else { parameter.len() };
    if sort {
        parameters.sort_by(|one, other| one[..key(one)].cmp(&other[..key(other)]));
    }
    if uniq {
        parameters.dedup_by(|next, kept| next[..key(next)] == kept[..key(kept)]);
    }
}

fn join(path: &[u8], parameters: &[&[u8]]) -> Text {
    let mut out = path.to_vec();
    if !parameters.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&parameters.join(&b'&'));
    }
    out.into()
}

/// The URL that the call gives, or that of the request; `None` if it is the unset string.
fn url(call: &Call<'_>) -> Result<Option<Text>> {
    let arguments = Arguments(call.arguments);
    if arguments.given(0) {
        return Ok(arguments.text(0)?.cloned());
    }
    let variable = match call.subroutine {
        Sub::BackendFetch | Sub::BackendResponse | Sub::BackendError => Var::BereqUrl,
        _ => Var::ReqUrl,
    };
    Ok(call.host.borrow(variable).map(Text::copy_from_slice))
}

/// `querystring.remove([url])`: without the query.
fn remove(call: &mut Call<'_>) -> Result<Value> {
    let bare = |url: Text| {
        let length = split(&url).0.len();
        url.slice(..length)
    };
    Ok(Value::String(url(call)?.map(bare)))
}

/// `querystring.clean([url])`: without empty parameters, or an empty query.
fn clean(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::String(url(call)?.map(|url| arranged(&url, false, false))))
}

/// `querystring.sort([url], uniq=false)`: cleaned, parameters in the order of their bytes.
fn sort(call: &mut Call<'_>) -> Result<Value> {
    let uniq = Arguments(call.arguments).boolean(1)?;
    Ok(Value::String(url(call)?.map(|url| arranged(&url, true, uniq))))
}

fn arranged(url: &Text, sort: bool, uniq: bool) -> Text {
    let (path, Some(query)) = split(url) else { return url.clone() };
    let mut parameters: Vec<&[u8]> = parameters(query).collect();
    arrange(&mut parameters, sort, uniq, false);
    join(path, &parameters)
}

/// What stands between the names of a list: a control character that no URL holds.
const SEPARATOR: u8 = 0x1f;

/// `querystring.filtersep()`
fn filtersep(_: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(&[SEPARATOR][..]))
}

/// The URL with those parameters whose name `test` says `keep` of.
fn by_name(call: &Call<'_>, keep: bool, test: impl Fn(&[u8]) -> Result<bool>) -> Result<Value> {
    let Some(url) = Arguments(call.arguments).text(0)? else { return Ok(Value::String(None)) };
    let (path, Some(query)) = split(url) else { return Ok(Value::String(Some(url.clone()))) };
    let mut selected = Vec::new();
    for parameter in parameters(query) {
        if test(name(parameter))? == keep {
            selected.push(parameter);
        }
    }
    Ok(Value::text(join(path, &selected)))
}

fn named(call: &Call<'_>, keep: bool) -> Result<Value> {
    let names = Arguments(call.arguments).text_or_empty(1)?;
    by_name(call, keep, |name| Ok(names.split(|&byte| byte == SEPARATOR).any(|one| one == name)))
}

fn globbed(call: &Call<'_>, keep: bool) -> Result<Value> {
    let pattern = Arguments(call.arguments).text_or_empty(1)?;
    by_name(call, keep, |name| Ok(glob(pattern, name)))
}

fn matched(call: &Call<'_>, keep: bool) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(1, call.regexes)?;
    by_name(call, keep, |name| regex.is_match(name))
}

/// `querystring.filter(url, names)`: without the parameters of these names, which `filtersep()` stands between.
fn filter_names(call: &mut Call<'_>) -> Result<Value> {
    named(call, false)
}

fn keep_names(call: &mut Call<'_>) -> Result<Value> {
    named(call, true)
}

fn filter_glob(call: &mut Call<'_>) -> Result<Value> {
    globbed(call, false)
}

fn keep_glob(call: &mut Call<'_>) -> Result<Value> {
    globbed(call, true)
}

fn filter_regex(call: &mut Call<'_>) -> Result<Value> {
    matched(call, false)
}

fn keep_regex(call: &mut Call<'_>) -> Result<Value> {
    matched(call, true)
}

/// `new x = querystring.filter(sort=false, uniq=false, match=name)`
fn make(_: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let arguments = Arguments(call.arguments);
    Ok(Arc::new(Filter {
        sort: arguments.boolean(0)?,
        uniq: arguments.boolean(1)?,
        by_name: arguments.word(2)? == "name",
        criteria: RwLock::default(),
    }))
}

fn filter(call: &Call<'_>) -> Result<Arc<Filter>> {
    let filter = call.object.and_then(|object| Arc::clone(object).downcast().ok());
    filter.ok_or_else(|| Fault("a filter's method was called on something else".into()))
}

fn add(call: &Call<'_>, criterion: Criterion) -> Result<Value> {
    let filter = filter(call)?;
    let mut criteria = filter.criteria.write();
    if criteria.len() >= CRITERIA_MAX {
        return Err(Fault(format!("querystring: more than {CRITERIA_MAX} criteria in a filter")));
    }
    criteria.push(criterion);
    Ok(Value::Void)
}

fn add_string(call: &mut Call<'_>) -> Result<Value> {
    let text = Text::copy_from_slice(Arguments(call.arguments).text_or_empty(0)?);
    add(call, Criterion::Exactly(text))
}

fn add_glob(call: &mut Call<'_>) -> Result<Value> {
    let text = Text::copy_from_slice(Arguments(call.arguments).text_or_empty(0)?);
    add(call, Criterion::Glob(text))
}

fn add_regex(call: &mut Call<'_>) -> Result<Value> {
    let pattern = Arguments(call.arguments).regex(0, call.regexes)?.pattern();
    let regex = Regex::new(pattern).map_err(Fault)?;
    add(call, Criterion::Regex(regex))
}

/// `x.apply([url], mode=drop)`: the URL without (or with only) the parameters that the filter means.
fn apply(call: &mut Call<'_>) -> Result<Value> {
    let filter = filter(call)?;
    let keep = Arguments(call.arguments).word(1)? == "keep";
    let Some(url) = url(call)? else { return Ok(Value::String(None)) };
    let (path, Some(query)) = split(&url) else { return Ok(Value::String(Some(url))) };
    Ok(Value::text(join(path, &filter.select(query, keep)?)))
}

/// `x.extract([url], mode=drop)`: the query that the filter leaves, without the URL; unset if the URL has none.
fn extract(call: &mut Call<'_>) -> Result<Value> {
    let filter = filter(call)?;
    let keep = Arguments(call.arguments).word(1)? == "keep";
    let Some(url) = url(call)? else { return Ok(Value::String(None)) };
    let Some(query) = split(&url).1.filter(|query| !query.is_empty()) else { return Ok(Value::String(None)) };
    Ok(Value::text(filter.select(query, keep)?.join(&b'&')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, complete, text};

    fn shown(value: Value) -> String {
        match value {
            Value::String(Some(text)) => String::from_utf8(text.to_vec()).unwrap(),
            Value::String(None) => "(unset)".into(),
            other => panic!("{other:?}"),
        }
    }

    fn check(name: &str, arguments: &[Value], expected: &str) {
        let function = VMOD.functions.iter().find(|function| function.name == name).unwrap();
        let value = call_function(&mut FakeHost::default(), Sub::Recv, function, None, arguments).0.unwrap();
        assert_eq!(shown(value), expected, "{name} {arguments:?}");
    }

    #[test]
    fn functions() {
        check("remove", &[text("/p?a=1&b")], "/p");
        check("remove", &[text("/p")], "/p");
        check("remove", &[Value::String(None)], "(unset)");
        check("clean", &[text("/p?a=1&&=x&b=&c&")], "/p?a=1&b=&c");
        check("clean", &[text("/p?")], "/p");
        check("clean", &[text("/p?&=")], "/p");
        check("sort", &[text("/p?b=2&a=1&&b=2&a=0")], "/p?a=0&a=1&b=2&b=2");
        check("sort", &[text("/p?b=2&a=1&b=2"), Value::Bool(true)], "/p?a=1&b=2");
    }

    #[test]
    fn functions_of_the_first_version() {
        let url = "/p?utm_a=1&q=2&&id=3";
        let list = [&b"q"[..], &[SEPARATOR], b"id"].concat();
        for (name, second, expected) in [
            ("filter", Value::text(list.clone()), "/p?utm_a=1"),
            ("filter_except", Value::text(list), "/p?q=2&id=3"),
            ("globfilter", text("utm_*"), "/p?q=2&id=3"),
            ("globfilter_except", text("utm_*"), "/p?utm_a=1"),
            ("globfilter", text("*"), "/p"),
        ] {
            check(name, &[text(url), second], expected);
        }
    }

    fn filter_of(sort: bool, uniq: bool, by: &'static str, criteria: Vec<Criterion>) -> ObjectRef {
        let object = &VMOD.objects[0];
        let arguments = complete(object.parameters, &[Value::Bool(sort), Value::Bool(uniq), Value::Enum(by)]);
        let (mut host, subroutine) = (FakeHost::default(), Sub::Init);
        let mut call = Call {
            host: &mut host,
            arguments: &arguments,
            object: None,
            subroutine,
            regexes: &[],
            wait: None,
        };
        let made = make("x", &mut call).unwrap();
        Arc::clone(&made).downcast::<Filter>().unwrap().criteria.write().extend(criteria);
        made
    }

    fn check_filter(filter: &ObjectRef, name: &str, url: &str, mode: &'static str, expected: &str) {
        let method = VMOD.objects[0].methods.iter().find(|method| method.name == name).unwrap();
        let arguments = [text(url), Value::Enum(mode)];
        let value = call_function(&mut FakeHost::default(), Sub::Recv, method, Some(filter), &arguments);
        assert_eq!(shown(value.0.unwrap()), expected, "{name} {url} {mode}");
    }

    #[test]
    fn filters_by_name() {
        let criteria = || {
            vec![
                Criterion::Exactly("id".into()),
                Criterion::Glob("x-*".into()),
                Criterion::Regex(Regex::new("^utm_").unwrap()),
            ]
        };
        let filter = filter_of(false, false, "name", criteria());
        let url = "/p?utm_a=1&q=2&id=3&x-y=4&identity&q=2";
        check_filter(&filter, "apply", url, "drop", "/p?q=2&identity&q=2");
        check_filter(&filter, "apply", url, "keep", "/p?utm_a=1&id=3&x-y=4");
        check_filter(&filter, "extract", url, "keep", "utm_a=1&id=3&x-y=4");
        check_filter(&filter, "extract", "/p?q", "keep", "");
        check_filter(&filter, "extract", "/p?", "keep", "(unset)");
        check_filter(&filter, "extract", "/p", "drop", "(unset)");
        check_filter(&filter, "apply", "/p?id", "drop", "/p");
        let sorted = filter_of(true, true, "name", criteria());
        check_filter(&sorted, "apply", url, "drop", "/p?identity&q=2");
    }

    /// Order and likeness are those of what criteria look at, and what is alike keeps its order.
    #[test]
    fn order_and_likeness() {
        let url = "/p?b=2&b=1&a=2&a=1&a=1&b=1&a";
        for (sort, uniq, by, expected) in [
            (true, false, "name", "/p?a=2&a=1&a=1&a&b=2&b=1&b=1"),
            (true, false, "param", "/p?a&a=1&a=1&a=2&b=1&b=1&b=2"),
            (true, true, "name", "/p?a=2&b=2"),
            (true, true, "param", "/p?a&a=1&a=2&b=1&b=2"),
            (false, true, "name", "/p?b=2&a=2&b=1&a"),
            (false, true, "param", "/p?b=2&b=1&a=2&a=1&b=1&a"),
        ] {
            let filter = filter_of(sort, uniq, by, vec![]);
            check_filter(&filter, "apply", url, "drop", expected);
            check_filter(&filter, "apply", url, "keep", expected);
        }
    }

    #[test]
    fn filters_by_parameter() {
        let filter = filter_of(false, false, "param", vec![Criterion::Exactly("a=1".into())]);
        check_filter(&filter, "apply", "/p?a=1&a=2", "drop", "/p?a=2");
    }

    #[test]
    fn the_requests_url_by_default() {
        check("remove", &[], "/");
    }
}
