//! Arithmetic and comparison of values. The checker has seen to the types; a pair that it would not let through is a
//! fault here, not a panic.

use crate::host::{Fault, Result};
use crate::typed::{Arithmetic, Comparison};
use crate::value::Value;
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) fn negate(value: Value) -> Result<Value> {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        Value::Real(value) => Ok(Value::Real(-value)),
        Value::Duration(value) => Ok(Value::Duration(-value)),
        other => Err(Fault(format!("{other:?} cannot be negated"))),
    }
}

pub(crate) fn arithmetic(operator: Arithmetic, left: Value, right: Value) -> Result<Value> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => whole(operator, left, right).map(Value::Int),
        (Value::Int(left), Value::Real(right)) => real(operator, left as f64, right).map(Value::Real),
        (Value::Real(left), Value::Int(right)) => real(operator, left, right as f64).map(Value::Real),
        (Value::Real(left), Value::Real(right)) => real(operator, left, right).map(Value::Real),
        (Value::Duration(left), Value::Duration(right) | Value::Real(right)) => {
            real(operator, left, right).map(Value::Duration)
        }
        (Value::Duration(left), Value::Int(right)) => real(operator, left, right as f64).map(Value::Duration),
        (Value::Time(left), Value::Time(right)) => real(operator, left, right).map(Value::Duration),
        (Value::Time(left), Value::Duration(right) | Value::Real(right)) => {
            real(operator, left, right).map(Value::Time)
        }
        (Value::Bytes(left), Value::Bytes(right)) => bytes(operator, left, right as f64),
        (Value::Bytes(left), Value::Int(right)) => bytes(operator, left, right as f64),
        (Value::Bytes(left), Value::Real(right)) => bytes(operator, left, right),
        (left, right) => Err(Fault(format!("no arithmetic on {left:?} and {right:?}"))),
    }
}

fn overflow() -> Fault {
    Fault("integer overflow".into())
}

fn division() -> Fault {
    Fault("division by zero".into())
}

fn whole(operator: Arithmetic, left: i64, right: i64) -> Result<i64> {
    match operator {
        Arithmetic::Add => left.checked_add(right).ok_or_else(overflow),
        Arithmetic::Subtract => left.checked_sub(right).ok_or_else(overflow),
        Arithmetic::Multiply => left.checked_mul(right).ok_or_else(overflow),
        Arithmetic::Divide if right == 0 => Err(division()),
        Arithmetic::Divide => left.checked_div(right).ok_or_else(overflow),
        Arithmetic::Remainder if right == 0 => Err(division()),
        Arithmetic::Remainder => left.checked_rem(right).ok_or_else(overflow),
    }
}

fn real(operator: Arithmetic, left: f64, right: f64) -> Result<f64> {
    match operator {
        Arithmetic::Add => Ok(left + right),
        Arithmetic::Subtract => Ok(left - right),
        Arithmetic::Multiply => Ok(left * right),
        Arithmetic::Divide | Arithmetic::Remainder if right == 0.0 => Err(division()),
        Arithmetic::Divide => Ok(left / right),
        Arithmetic::Remainder => Ok(left % right),
    }
}

fn bytes(operator: Arithmetic, left: u64, right: f64) -> Result<Value> {
    let result = real(operator, left as f64, right)?;
    if result < 0.0 {
        return Err(Fault("a number of bytes would be negative".into()));
    }
    Ok(Value::Bytes(result as u64))
}

/// Whether a value is true as a condition.
pub(crate) fn truth(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::Int(value) => *value != 0,
        Value::Duration(value) => *value > 0.0,
        Value::String(text) => text.is_some(),
        Value::Backend(backend) => backend.is_some(),
        Value::Bytes(value) => *value != 0,
        Value::Void
        | Value::Real(_)
        | Value::Time(_)
        | Value::Ip(_)
        | Value::Acl(_)
        | Value::Probe(_)
        | Value::Header(..)
        | Value::Storage(_)
        | Value::Enum(_)
        | Value::Blob(_)
        | Value::Strands(_)
        | Value::Code(_) => false,
    }
}

/// Whether an order satisfies a comparison.
pub(crate) fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::Unequal => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

pub(crate) fn values(comparison: Comparison, left: &Value, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Real(left), Value::Real(right))
        | (Value::Duration(left), Value::Duration(right))
        | (Value::Time(left), Value::Time(right)) => left.partial_cmp(right),
        (left, right) => Some(if same(left, right) { Ordering::Equal } else { Ordering::Less }),
    };
    match order {
        Some(order) => holds(comparison, order),
        // Not a number: unequal to everything, and in no order.
        None => comparison == Comparison::Unequal,
    }
}

/// Equality of what has no order. Backends, lists and probes are the same if they are the same one; of addresses the
/// port does not count.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Backend(None), Value::Backend(None)) => true,
        (Value::Backend(Some(left)), Value::Backend(Some(right))) => Arc::ptr_eq(left, right),
        (Value::Acl(left), Value::Acl(right)) => Arc::ptr_eq(left, right),
        (Value::Probe(None), Value::Probe(None)) => true,
        (Value::Probe(Some(left)), Value::Probe(Some(right))) => Arc::ptr_eq(left, right),
        (Value::Ip(left), Value::Ip(right)) => {
            left.map(|address| address.ip()) == right.map(|address| address.ip())
        }
        (Value::Storage(left), Value::Storage(right)) => left == right,
        (Value::Code(left), Value::Code(right)) => left == right,
        (Value::Enum(left), Value::Enum(right)) => left == right,
        _ => false,
    }
}
