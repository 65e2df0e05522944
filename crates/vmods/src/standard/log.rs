//! `std.log`, `std.syslog`, `std.timestamp`.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;
use vcl::host::Result;
use vcl::value::Value;
use vcl::vmod::Call;

/// The longest text of a syslog record, in bytes; a longer one is cut. The kernel takes more, but few receivers do.
const SYSLOG_MAX: usize = 8 * 1024;
/// `LOG_USER`: the facility of a priority that names none. Source: syslog(3).
const USER: u32 = 1 << 3;
/// The bits of a priority that are its facility.
const FACILITY: u32 = 0x3f8;

/// `std.log(s)`: a `VCL_Log` record.
pub(super) fn log(call: &mut Call<'_>) -> Result<Value> {
    let text = Arguments(call.arguments).text_or_empty(0)?;
    call.host.log("VCL_Log", text);
    Ok(Value::Void)
}

/// `std.timestamp(s)`: a `Timestamp` record; nothing for an empty or unset label.
pub(super) fn timestamp(call: &mut Call<'_>) -> Result<Value> {
    let label = Arguments(call.arguments).text_or_empty(0)?;
    if !label.is_empty() {
        call.host.timestamp(label);
    }
    Ok(Value::Void)
}

/// `std.syslog(priority, s)`. Like syslog(3) it never fails and never waits: without a receiver, or with a full one,
/// the record is lost.
pub(super) fn syslog(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let record = record(arguments.integer(0)?, std::process::id(), arguments.text_or_empty(1)?);
    send(&record, Path::new("/dev/log"));
    Ok(Value::Void)
}

/// `<priority>copald[process]: text`, without a time: the receiver puts in its own, and ours would need a time zone.
fn record(priority: i64, process: u32, text: &[u8]) -> Vec<u8> {
    let mut priority = (priority & 0x3ff) as u32;
    if priority & FACILITY == 0 {
        priority |= USER;
    }
    let text = &text[..text.len().min(SYSLOG_MAX)];
    let mut record = Vec::with_capacity(text.len() + 32);
    write!(record, "<{priority}>copald[{process}]: ").expect("a vector takes any text");
    // A line feed or a NUL would let a client's bytes begin a record of their own.
    record
        .extend(text.iter().map(|&byte| if byte.is_ascii_control() && byte != b'\t' { b' ' } else { byte }));
    record
}

fn send(record: &[u8], receiver: &Path) {
    static SOCKET: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    let socket = SOCKET.get_or_init(|| {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    });
    if let Some(socket) = socket {
        // Lost records are the manual's promise; there is nobody to tell.
        let _ = socket.send_to(record, receiver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_std_on, text};

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    #[test]
    fn records_go_where_they_belong() {
        let mut host = FakeHost::default();
        call_std_on(&mut host, "log", &[text("hello")]).unwrap();
        call_std_on(&mut host, "log", &[Value::String(None)]).unwrap();
        call_std_on(&mut host, "timestamp", &[text("curl")]).unwrap();
        call_std_on(&mut host, "timestamp", &[text("")]).unwrap();
        call_std_on(&mut host, "timestamp", &[Value::String(None)]).unwrap();
        assert_eq!(host.logged, ["VCL_Log hello", "VCL_Log ", "Timestamp curl"]);
    }

    #[test]
    fn syslog_records() {
        for (priority, source, expected) in [
            (9, "x", "<9>copald[7]: x"),
            (3, "x", "<11>copald[7]: x"),
            (0, "", "<8>copald[7]: "),
            (-1, "a\nb\0c\td", "<1023>copald[7]: a b c\td"),
        ] {
            assert_eq!(record(priority, 7, source.as_bytes()), expected.as_bytes());
        }
        assert_eq!(record(9, 7, &[b'x'; SYSLOG_MAX * 2]).len(), SYSLOG_MAX + "<9>copald[7]: ".len());
    }

    #[test]
    fn syslog_arrives_and_its_absence_is_no_error() {
        let path = std::env::temp_dir().join(format!("copal-vmods-log-{}", unique()));
        let receiver = UnixDatagram::bind(&path).unwrap();
        send(b"<9>hello", &path);
        let mut buffer = [0; 64];
        let count = receiver.recv(&mut buffer).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&buffer[..count], b"<9>hello");
        send(b"lost", &path);
    }
}
