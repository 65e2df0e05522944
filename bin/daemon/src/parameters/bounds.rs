//! Bounds that one parameter sets another.
//!
//! ```text
//!   thread_pool_reserve <= 95 % of thread_pool_min      thread_pool_min <= thread_pool_max
//!   vsl_reclen + 12 <= vsl_buffer
//! ```
//! They hold for parameters without effect, too: a command line that varnishd refuses is refused here.

use super::value::Value;
use super::{Parameters, Row, find};

/// Bytes that a record of the log has besides its text: two words of head and a NUL, padded.
const RECORD_HEAD: u64 = 12;

/// A bound, and which parameter sets it; empty where Varnish does not say.
struct Bound {
    value: u64,
    by: &'static str,
}

impl Bound {
    fn words(&self) -> String {
        let by = if self.by.is_empty() { "\n".to_owned() } else { format!(" ({})", self.by) };
        format!("{}{by}", self.value)
    }
}

/// Checks a value that is right by itself against the other parameters.
///
/// # Errors
/// What is wrong, in Varnish's words.
pub(super) fn check(name: &str, value: &Value, parameters: &Parameters) -> Result<(), String> {
    let Value::Whole(value) = *value else { return Ok(()) };
    let (least, most) = bounds(name, parameters);
    if let Some(least) = least.filter(|least| value < least.value) {
        return Err(format!("Must be at least {}\n", least.words()));
    }
    if let Some(most) = most.filter(|most| value > most.value) {
        return Err(format!("Must be no more than {}\n", most.words()));
    }
    Ok(())
}

/// Least and most as they are shown: what another parameter sets, else what the kind does.
pub(super) fn shown(row: &Row, parameters: &Parameters) -> (Option<String>, Option<String>) {
    let (least, most) = bounds(row.name, parameters);
    let (fixed_least, fixed_most) = row.kind.bounds();
    let text = |bound: Option<Bound>| bound.map(|bound| bound.value.to_string());
    (text(least).or(fixed_least), text(most).or(fixed_most))
}

fn bounds(name: &str, parameters: &Parameters) -> (Option<Bound>, Option<Bound>) {
    let at_least = |value, by| (Some(Bound { value, by }), None);
    let at_most = |value, by| (None, Some(Bound { value, by }));
    match name {
        "thread_pool_min" => at_most(number("thread_pool_max", parameters), "thread_pool_max"),
        "thread_pool_max" => at_least(number("thread_pool_min", parameters), "thread_pool_min"),
        "thread_pool_reserve" => {
            at_most(number("thread_pool_min", parameters) * 95 / 100, "95% of thread_pool_min")
        }
        "vsl_reclen" => at_most(parameters.vsl_buffer - RECORD_HEAD, ""),
        "vsl_buffer" => at_least(parameters.vsl_reclen + RECORD_HEAD, ""),
        _ => (None, None),
    }
}

fn number(name: &str, parameters: &Parameters) -> u64 {
    match find(name).expect("the table has it").get(parameters) {
        Value::Whole(value) => value,
        _ => unreachable!("{name} is a whole number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &[(&str, &str)], error: &str) {
        let mut parameters = Parameters::default();
        let (last, before) = settings.split_last().unwrap();
        for (name, text) in before {
            find(name).unwrap().set(&mut parameters, text).unwrap();
        }
        let error = match error {
            "" => Ok(()),
            words => Err(format!("{words}\n(attempting to set param '{}' to '{}')", last.0, last.1)),
        };
        assert_eq!(find(last.0).unwrap().set(&mut parameters, last.1), error, "{settings:?}");
    }

    #[test]
    fn one_bounds_the_other() {
        check(&[("thread_pool_min", "200")], "");
        check(&[("thread_pool_min", "6000")], "Must be no more than 5000 (thread_pool_max)\n");
        check(&[("thread_pool_max", "6000"), ("thread_pool_min", "6000")], "");
        check(
            &[("thread_pool_min", "200"), ("thread_pool_max", "150")],
            "Must be at least 200 (thread_pool_min)\n",
        );
        check(&[("thread_pool_reserve", "96")], "Must be no more than 95 (95% of thread_pool_min)\n");
        check(&[("vsl_reclen", "20k")], "Must be no more than 16372\n\n");
        check(&[("vsl_buffer", "1k"), ("vsl_reclen", "5k")], "Must be no more than 1012\n\n");
        check(&[("vsl_reclen", "1k"), ("vsl_buffer", "1k")], "Must be at least 1036\n\n");
    }
}
