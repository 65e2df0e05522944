//! The members of a director: adding, removing, health, weighted choice, and how `backend.list` shows them.

use super::object;
use crate::arguments::Arguments;
use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::any::Any;
use std::fmt::Write as _;
use std::sync::Arc;
use vcl::host::{Fault, Result};
use vcl::value::{Ask, Backend, BackendRef, Health, ListForm, Operator, Resolved, Value};
use vcl::vmod::Call;

/// The most members a director may have. VCL that adds one at each request comes to a fault, not to the end of memory.
const MEMBERS_MAX: usize = 16 * 1024;
/// How many directors may stand in one another; see [`Ask::depth`].
const DEPTH_MAX: u8 = 32;

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) backend: BackendRef,
    /// Its share against the others; finite and not below zero.
    pub(super) weight: f64,
}

/// The members of one director, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Members {
    /// The director's name in VCL.
    pub(super) name: String,
    /// What an operator said of the director.
    pub(super) operator: Operator,
    list: RwLock<Vec<Member>>,
}

/// Held while a member is added anywhere, so that two additions at once cannot close a circle.
pub(super) fn adding() -> MutexGuard<'static, ()> {
    static ADDING: Mutex<()> = Mutex::new(());
    ADDING.lock()
}

/// A director whose members are such a list. What its methods do to the list is the same for all of them.
pub(super) trait Listed: Backend + Sized {
    /// The list.
    fn members(&self) -> &Members;
    /// Hears that the member at `at` went and how many are left.
    fn removed(&self, at: usize, left: usize) {
        let _ = (at, left);
    }
}

/// `x.add_backend(backend, weight)`; without a weight all count alike.
pub(super) fn add_backend<T: Listed>(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<T>(call)?;
    let reference: BackendRef = director.clone();
    let arguments = Arguments(call.arguments);
    let weight = arguments.maybe(1, Arguments::real)?.unwrap_or(0.0);
    director.members().add(&reference, arguments.backend(0)?, weight)?;
    Ok(Value::Void)
}

/// `x.remove_backend(backend)`; one that is not in it is no error.
pub(super) fn remove_backend<T: Listed>(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<T>(call)?;
    if let Some((at, left)) = director.members().remove(Arguments(call.arguments).backend(0)?)? {
        director.removed(at, left);
    }
    Ok(Value::Void)
}

/// `x.backend()`: the director itself; the choice is made when a request is sent.
pub(super) fn itself<T: Listed>(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Backend(Some(object::<T>(call)?)))
}

impl Members {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), operator: Operator::default(), list: RwLock::default() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Vec<Member>> {
        self.list.read()
    }

    /// Adds `backend` to `director`, whose members these are. It may be in it already: it then counts twice.
    ///
    /// # Errors
    /// A fault for `none`, for a weight that is none, for one member too many, and for one that contains `director`.
    pub(super) fn add(&self, director: &BackendRef, backend: Option<&BackendRef>, weight: f64) -> Result<()> {
        let name = &self.name;
        let backend = backend.ok_or_else(|| Fault(format!("{name}: None backend cannot be added")))?;
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(Fault(format!("{name}: weight {weight} is not a number from 0 up")));
        }
        let _adding = adding();
        refuse_circle(director, backend)?;
        let mut list = self.list.write();
        if list.len() >= MEMBERS_MAX {
            return Err(Fault(format!("{name}: more than {MEMBERS_MAX} backends")));
        }
        list.push(Member { backend: Arc::clone(backend), weight });
        Ok(())
    }

    /// Removes the first member that is `backend`. Gives where it was, and how many are left; nothing if there is none.
    ///
    /// # Errors
    /// A fault for `none`.
    pub(super) fn remove(&self, backend: Option<&BackendRef>) -> Result<Option<(usize, usize)>> {
        let backend =
            backend.ok_or_else(|| Fault(format!("{}: None backend cannot be removed", self.name)))?;
        let mut list = self.list.write();
        let Some(at) = list.iter().position(|member| Arc::ptr_eq(&member.backend, backend)) else {
            return Ok(None);
        };
        list.remove(at);
        Ok(Some((at, list.len())))
    }

    /// Healthy if any member is.
    pub(super) fn health(&self, ask: &Ask<'_>) -> Health {
        any_healthy(self.read().iter().map(|member| &member.backend), ask)
    }

    /// A healthy member by weight: `share`, from 0 to below 1, falls into the line of the weights of the healthy ones.
    pub(super) fn pick(&self, ask: &Ask<'_>, share: f64) -> Resolved {
        let list = self.read();
        let healthy = || list.iter().filter(|member| is_healthy(&member.backend, ask));
        let total: f64 = healthy().map(|member| member.weight).sum();
        let mut rest = share * total;
        let mut last = Resolved::None;
        // A member may change its health between the two passes: then the last one seen takes what is left.
        for member in healthy().filter(|member| member.weight > 0.0) {
            last = Resolved::Other(Arc::clone(&member.backend));
            rest -= member.weight;
            if rest < 0.0 {
                break;
            }
        }
        last
    }

    /// What `backend.list` shows. `column` is a column of its own: its heading, its key in JSON, and its cell for the
    /// member at an index, in both forms; `before` begins the JSON object.
    pub(super) fn list(
        &self,
        ask: &Ask<'_>,
        form: ListForm,
        before: &str,
        column: Option<Column<'_>>,
        out: &mut String,
    ) {
        let list = self.read();
        let rows = list.iter().enumerate().map(|(index, member)| {
            let healthy = is_healthy(&member.backend, ask);
            let cell = column.as_ref().map(|column| (column.cell)(index, healthy));
            (member.backend.name().to_owned(), healthy, cell)
        });
        if !form.members {
            let (mut count, mut total) = (0usize, 0usize);
            rows.for_each(|(_, healthy, _)| {
                total += 1;
                count += usize::from(healthy);
            });
            push_summary(count, total, form, out);
            return;
        }
        // Writing to a String cannot fail.
        if form.json {
            let mut members = Vec::new();
            for (name, healthy, cell) in rows {
                let mut text = format!("    \"{name}\": {{\n");
                if let (Some(column), Some(cell)) = (&column, cell) {
                    let _ = writeln!(text, "      \"{}\": {},", column.key, cell.json);
                }
                let _ = write!(text, "      \"health\": \"{}\"\n    }}", word(healthy));
                members.push(text);
            }
            let _ = write!(out, "{{\n{before}  \"backends\": {{\n{}\n  }}\n}}", members.join(",\n"));
        } else {
            let _ = write!(
                out,
                "\n\n\tBackend\t{}\tHealth\n",
                column.as_ref().map_or("Weight", |column| column.heading)
            );
            for (name, healthy, cell) in rows {
                let cell = cell.map_or_else(|| "-".to_owned(), |cell| cell.text);
                let _ = writeln!(out, "\t{name}\t{cell}\t{}", word(healthy));
            }
        }
    }

    /// Each member's part of the healthy weight, in percent and as it is.
    pub(super) fn list_with_weights(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        let weights: Vec<f64> = self.read().iter().map(|member| member.weight).collect();
        let total: f64 = self
            .read()
            .iter()
            .filter(|member| is_healthy(&member.backend, ask))
            .map(|member| member.weight)
            .sum();
        let cell = |index: usize, healthy: bool| {
            let weight = if healthy { weights.get(index).copied().unwrap_or(0.0) } else { 0.0 };
            let percent = if total > 0.0 { 100.0 * weight / total } else { 0.0 };
            Cell { text: format!("{percent:6.2}%"), json: format!("{weight:.6}") }
        };
        let before = format!("  \"total_weight\": {total:.6},\n");
        self.list(ask, form, &before, Some(Column { heading: "Weight", key: "weight", cell: &cell }), out);
    }
}

/// A director's own column in `backend.list -p`.
pub(super) struct Column<'director> {
    pub(super) heading: &'static str,
    pub(super) key: &'static str,
    /// The cell for the member at an index, which is healthy or not.
    pub(super) cell: &'director dyn Fn(usize, bool) -> Cell,
}

/// A cell of a [`Column`].
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) json: String,
}

/// `2/3<TAB>healthy`, or as JSON `[2, 3, "healthy"]`.
pub(super) fn push_summary(healthy: usize, total: usize, form: ListForm, out: &mut String) {
    let word = word(healthy > 0);
    let _ = if form.json {
        write!(out, "[{healthy}, {total}, \"{word}\"]")
    } else {
        write!(out, "{healthy}/{total}\t{word}")
    };
}

pub(super) fn word(healthy: bool) -> &'static str {
    if healthy { "healthy" } else { "sick" }
}

/// Whether a member is healthy, asked from a director.
pub(super) fn is_healthy(member: &BackendRef, ask: &Ask<'_>) -> bool {
    health_of(member, ask).healthy
}

/// A member's health, asked from a director: one level deeper. Beyond [`DEPTH_MAX`] nothing is healthy.
pub(super) fn health_of(member: &BackendRef, ask: &Ask<'_>) -> Health {
    if ask.depth >= DEPTH_MAX {
        return Health { healthy: false, changed: 0.0 };
    }
    member.health(&Ask { depth: ask.depth + 1, ..*ask })
}

/// Healthy if any is; the change is the latest among those up to the first healthy one.
pub(super) fn any_healthy<'members>(
    members: impl Iterator<Item = &'members BackendRef>,
    ask: &Ask<'_>,
) -> Health {
    let mut changed: Time = 0.0;
    for member in members {
        let health = health_of(member, ask);
        changed = changed.max(health.changed);
        if health.healthy {
            return Health { healthy: true, changed };
        }
    }
    Health { healthy: false, changed }
}

/// A fault if `member` is `director` or holds it somewhere below.
pub(super) fn refuse_circle(director: &BackendRef, member: &BackendRef) -> Result<()> {
    let mut seen: Vec<BackendRef> = Vec::new();
    let mut left = vec![Arc::clone(member)];
    while let Some(next) = left.pop() {
        if Arc::ptr_eq(&next, director) {
            let (name, member) = (director.name(), member.name());
            return Err(Fault(format!("{name}: {member} cannot be added, it contains {name}")));
        }
        if !seen.iter().any(|known| Arc::ptr_eq(known, &next)) {
            left.extend(members_of(&*next));
            seen.push(next);
        }
    }
    Ok(())
}

/// What is directly in a director; nothing is in a leaf.
fn members_of(backend: &dyn Backend) -> Vec<BackendRef> {
    let any = backend.as_any();
    if let Some(director) = any.downcast_ref::<super::Shard>() {
        return director.member_backends();
    }
    let members = list_of::<super::RoundRobin>(any)
        .or_else(|| list_of::<super::Fallback>(any))
        .or_else(|| list_of::<super::Random>(any))
        .or_else(|| list_of::<super::Hash>(any));
    members.map_or_else(Vec::new, |members| {
        members.read().iter().map(|member| Arc::clone(&member.backend)).collect()
    })
}

fn list_of<T: Listed>(any: &dyn Any) -> Option<&Members> {
    any.downcast_ref::<T>().map(Listed::members)
}

/// Spreads a number over all 64 bits, so that two directors that see the same random number choose independently.
/// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014), the finalizer of SplitMix64.
pub(crate) fn mix(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A number from 0 to below 1, from the upper 53 bits of `random`, as many as an `f64` holds.
pub(crate) fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask_of, fakes};

    fn director(name: &str) -> (Arc<super::super::Random>, BackendRef) {
        let director = Arc::new(super::super::Random::new(name));
        let backend: BackendRef = Arc::clone(&director) as BackendRef;
        (director, backend)
    }

    #[test]
    fn what_cannot_be_added() {
        let (a, a_ref) = director("a");
        let (b, b_ref) = director("b");
        let leaf: BackendRef = fakes(1).remove(0);
        let sentence = |result: Result<()>| result.unwrap_err().0;
        assert_eq!(sentence(a.members.add(&a_ref, None, 1.0)), "a: None backend cannot be added");
        assert_eq!(
            sentence(a.members.add(&a_ref, Some(&leaf), -1.0)),
            "a: weight -1 is not a number from 0 up"
        );
        assert!(a.members.add(&a_ref, Some(&leaf), f64::NAN).is_err());
        assert_eq!(sentence(a.members.add(&a_ref, Some(&a_ref), 1.0)), "a: a cannot be added, it contains a");
        a.members.add(&a_ref, Some(&b_ref), 1.0).unwrap();
        assert_eq!(sentence(b.members.add(&b_ref, Some(&a_ref), 1.0)), "b: a cannot be added, it contains b");
        b.members.add(&b_ref, Some(&leaf), 1.0).unwrap();
        a.members.remove(Some(&b_ref)).unwrap();
        b.members.add(&b_ref, Some(&a_ref), 1.0).unwrap();
        assert_eq!(a.members.remove(Some(&b_ref)).unwrap(), None);
        assert!(a.members.remove(None).is_err());
    }

    #[test]
    fn members_have_an_end() {
        let (a, a_ref) = director("a");
        let leaf: BackendRef = fakes(1).remove(0);
        for _ in 0..MEMBERS_MAX {
            a.members.add(&a_ref, Some(&leaf), 1.0).unwrap();
        }
        assert!(a.members.add(&a_ref, Some(&leaf), 1.0).is_err());
    }

    #[test]
    fn health_is_that_of_any_member() {
        let (a, a_ref) = director("a");
        let ask = ask_of(0.0, None, b"", 0);
        assert!(!a.members.health(&ask).healthy);
        let leaves = fakes(2);
        for leaf in &leaves {
            a.members.add(&a_ref, Some(&(leaf.clone() as BackendRef)), 1.0).unwrap();
        }
        leaves[0].set(false, 5.0);
        assert_eq!(a.members.health(&ask), Health { healthy: true, changed: 5.0 });
        leaves[1].set(false, 9.0);
        assert_eq!(a.members.health(&ask), Health { healthy: false, changed: 9.0 });
        a_ref.operator().unwrap().set(Some(true), 11.0);
        assert_eq!(a_ref.health(&ask), Health { healthy: true, changed: 11.0 });
        a_ref.operator().unwrap().set(None, 12.0);
        assert_eq!(a_ref.health(&ask), Health { healthy: false, changed: 9.0 });
    }

    #[test]
    fn listings() {
        let (a, a_ref) = director("a");
        let leaves = fakes(2);
        for leaf in &leaves {
            a.members.add(&a_ref, Some(&(leaf.clone() as BackendRef)), 1.5).unwrap();
        }
        leaves[1].set(false, 1.0);
        let shown = |members, json| {
            let mut out = String::new();
            a.list(&ask_of(0.0, None, b"", 0), ListForm { members, json }, &mut out);
            out
        };
        assert_eq!(shown(false, false), "1/2\thealthy");
        assert_eq!(shown(false, true), "[1, 2, \"healthy\"]");
        assert_eq!(
            shown(true, false),
            "\n\n\tBackend\tWeight\tHealth\n\tb1\t100.00%\thealthy\n\tb2\t  0.00%\tsick\n"
        );
        assert_eq!(
            shown(true, true),
            "{\n  \"total_weight\": 1.500000,\n  \"backends\": {\n    \"b1\": {\n      \"weight\": 1.500000,\n      \
             \"health\": \"healthy\"\n    },\n    \"b2\": {\n      \"weight\": 0.000000,\n      \"health\": \"sick\"\n    \
             }\n  }\n}"
        );
    }
}
