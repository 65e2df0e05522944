//! Workspaces, as far as they mean something here.
//!
//! Varnish gives each task fixed memory and fails it when that is used up; tests use it up on purpose. Copal's tasks have
//! limits on what grows instead (heads, synthetic bodies, texts). So a workspace is an account here: of Varnish's default
//! size, charged by these functions only, and overdrawing it fails the transaction as it would in Varnish. There is no
//! memory behind it to look at.

use super::{Arguments, Call, Fault, Result, Value, task};

/// Bytes are accounted for in steps of this many, as memory would be.
const ALIGNMENT: u64 = 8;

/// One workspace of a task.
#[derive(Clone, Copy, Debug)]
struct Workspace {
    size: u64,
    used: u64,
    overflowed: bool,
}

/// The workspaces of a task, in the order of the enumeration's words.
#[derive(Debug)]
struct Workspaces {
    all: [Workspace; 4],
    /// Which one was remembered, and how much of it was used.
    snapshot: Option<(usize, u64)>,
}

impl Default for Workspaces {
    fn default() -> Self {
        // The defaults of workspace_client, workspace_backend, workspace_session and workspace_thread.
        let all = [96 << 10, 96 << 10, 768, 2 << 10];
        Self { all: all.map(|size| Workspace { size, used: 0, overflowed: false }), snapshot: None }
    }
}

impl Workspace {
    fn free(&self) -> u64 {
        self.size - self.used
    }

    /// What a size means: a negative one leaves that much.
    fn wanted(&self, size: i64) -> u64 {
        match u64::try_from(size) {
            Ok(size) => size,
            Err(_) => self.free().saturating_sub(size.unsigned_abs()),
        }
    }
}

const NAMES: [&str; 4] = ["client", "backend", "session", "thread"];

fn index(call: &Call<'_>) -> Result<usize> {
    let name = Arguments(call.arguments).word(0)?;
    NAMES.iter().position(|known| *known == name).ok_or_else(|| Fault(format!("no workspace {name}")))
}

fn workspaces<'task>(call: &'task mut Call<'_>) -> Result<&'task mut Workspaces> {
    static KEY: u8 = 2;
    task::data(call, &KEY)
}

fn workspace<'task>(call: &'task mut Call<'_>) -> Result<&'task mut Workspace> {
    let index = index(call)?;
    Ok(&mut workspaces(call)?.all[index])
}

pub(super) fn alloc(call: &mut Call<'_>) -> Result<Value> {
    let size = Arguments(call.arguments).integer(1)?;
    let name = NAMES[index(call)?];
    let workspace = workspace(call)?;
    let free = workspace.free();
    if size < 0 && size.unsigned_abs() > free {
        return Err(Fault(format!("Attempted negative {name} workspace allocation")));
    }
    let wanted = workspace.wanted(size);
    let rounded = wanted.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
    // What is to be left is left even if the rest is no multiple of the step.
    let taken = if size < 0 { wanted } else { rounded };
    if wanted == 0 {
        return Err(Fault(format!("Attempted zero {name} workspace allocation")));
    }
    if taken > free {
        workspace.overflowed = true;
        return Err(Fault(format!("Out of workspace: {name}, {wanted} bytes of {free}")));
    }
    workspace.used += taken;
    Ok(Value::Void)
}

pub(super) fn reserve(call: &mut Call<'_>) -> Result<Value> {
    let size = Arguments(call.arguments).integer(1)?;
    let workspace = workspace(call)?;
    let wanted = workspace.wanted(size);
    if wanted > workspace.free() {
        workspace.overflowed = true;
        return Ok(Value::Bytes(0));
    }
    Ok(Value::Bytes(wanted))
}

pub(super) fn free(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(workspace(call)?.free() as i64))
}

pub(super) fn snapshot(call: &mut Call<'_>) -> Result<Value> {
    let index = index(call)?;
    let workspaces = workspaces(call)?;
    workspaces.snapshot = Some((index, workspaces.all[index].used));
    Ok(Value::Void)
}

pub(super) fn reset(call: &mut Call<'_>) -> Result<Value> {
    let index = index(call)?;
    let workspaces = workspaces(call)?;
    match workspaces.snapshot {
        Some((of, used)) if of == index => {
            workspaces.all[index].used = used;
            Ok(Value::Void)
        }
        _ => Err(Fault(format!("Unknown snapshot of the {} workspace", NAMES[index]))),
    }
}

pub(super) fn overflowed(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Bool(workspace(call)?.overflowed))
}

pub(super) fn overflow(call: &mut Call<'_>) -> Result<Value> {
    workspace(call)?.overflowed = true;
    Ok(Value::Void)
}

pub(super) fn dump(call: &mut Call<'_>) -> Result<Value> {
    let name = NAMES[index(call)?];
    Err(Fault(format!("vtc.workspace_dump(): there is no memory behind the {name} workspace")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module};
    use copal_vcl::host::Sub;

    fn run(host: &mut FakeHost, name: &str, size: Option<i64>) -> String {
        let mut arguments = vec![Value::Enum("session")];
        arguments.extend(size.map(Value::Int));
        match call_in_module(&super::super::VMOD, host, Sub::Recv, name, &arguments) {
            Ok(value) => format!("{value:?}"),
            Err(fault) => fault.0,
        }
    }

    #[test]
    fn an_account_of_what_was_taken() {
        let host = &mut FakeHost::default();
        for (name, size, answer) in [
            ("workspace_free", None, "Int(768)"),
            ("workspace_snapshot", None, "Void"),
            ("workspace_alloc", Some(60), "Void"),
            ("workspace_free", None, "Int(704)"),
            ("workspace_alloc", Some(-10), "Void"),
            ("workspace_free", None, "Int(10)"),
            ("workspace_reserve", Some(10), "Bytes(10)"),
            ("workspace_overflowed", None, "Bool(false)"),
            ("workspace_alloc", Some(11), "Out of workspace: session, 11 bytes of 10"),
            ("workspace_overflowed", None, "Bool(true)"),
            ("workspace_reserve", Some(11), "Bytes(0)"),
            ("workspace_alloc", Some(-11), "Attempted negative session workspace allocation"),
            ("workspace_alloc", Some(i64::MAX), "Out of workspace: session, 9223372036854775807 bytes of 10"),
            ("workspace_alloc", Some(i64::MIN), "Attempted negative session workspace allocation"),
            ("workspace_reset", None, "Void"),
            ("workspace_free", None, "Int(768)"),
        ] {
            assert_eq!(run(host, name, size), answer, "{name} {size:?}");
        }
    }

    #[test]
    fn what_cannot_be() {
        let host = &mut FakeHost::default();
        assert_eq!(run(host, "workspace_reset", None), "Unknown snapshot of the session workspace");
        let arguments = [Value::Enum("client"), Value::Enum("s")];
        let dump = call_in_module(&super::super::VMOD, host, Sub::Recv, "workspace_dump", &arguments);
        assert!(dump.unwrap_err().0.contains("no memory behind the client workspace"));
    }
}
