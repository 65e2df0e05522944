//! `strftime` in the machine's time zone (`TZ`): the C library knows the zones and the conversions that formats use.

#![allow(unsafe_code)]

use copal_base::Time;
use std::ffi::CString;
use std::mem::MaybeUninit;

/// The longest text a format may give; more gives nothing.
const LENGTH_MAX: usize = 512;

/// Appends `time` in the form that `format` asks for. A format that the C library cannot take, or whose result is longer
/// than 511 bytes, gives nothing.
pub fn format(format: &str, time: Time, out: &mut Vec<u8>) {
    // A format with a NUL cannot come from a command line; it would end there for the C library as well.
    let Ok(format) = CString::new(format) else { return };
    let seconds = time.floor() as libc::time_t;
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let mut text = [0u8; LENGTH_MAX];
    // SAFETY: both pointers are valid for the call; `localtime_r` fills `parts` or returns null, and all-zero is a valid
    // `tm` either way. `strftime` writes at most the length it is given and reads two NUL-terminated values.
    let length = unsafe {
        if libc::localtime_r(&raw const seconds, parts.as_mut_ptr()).is_null() {
            return;
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), parts.as_ptr())
    };
    out.extend_from_slice(&text[..length]);
}

/// The present moment for a report's heading, in local time.
pub fn now(form: &str) -> String {
    let mut out = Vec::new();
    format(form, copal_base::clock::Clock::now(&copal_base::clock::SystemClock), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
