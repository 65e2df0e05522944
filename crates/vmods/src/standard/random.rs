//! `std.random`.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::Result;
use vcl::value::Value;
use vcl::vmod::Call;

/// `std.random(lo, hi)`: uniform from `lo`, which it may be, to `hi`, which it is not. No secret may hang on it.
pub(super) fn random(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (low, high) = (arguments.real(0)?, arguments.real(1)?);
    Ok(Value::Real(low + (high - low) * crate::directors::unit(call.host.ask().random)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_std_on};

    #[test]
    fn stays_between_its_bounds() {
        let mut host = FakeHost::default();
        let mut least = f64::INFINITY;
        let mut most = f64::NEG_INFINITY;
        for _ in 0..10_000 {
            let Value::Real(value) =
                call_std_on(&mut host, "random", &[Value::Real(1.0), Value::Real(3.0)]).unwrap()
            else {
                panic!("std.random gives a REAL")
            };
            assert!((1.0..3.0).contains(&value), "{value}");
            least = least.min(value);
            most = most.max(value);
        }
        assert!(least < 1.01 && most > 2.99, "{least} {most}");
    }
}
