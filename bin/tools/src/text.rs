//! Records and transactions as text, in `varnishlog`'s form.

use crate::select::{Selection, Wanted};
use copal_observe::read::{Record, Transaction};
use std::io::Write as _;

/// Appends the transactions of a group that are wanted, and an empty line behind them; false if there are none.
pub(crate) fn group(
    group: &[Transaction],
    wanted: Wanted,
    selection: &Selection,
    with_numbers: bool,
    out: &mut Vec<u8>,
) -> bool {
    let mut any = false;
    for one in group.iter().filter(|one| wanted.wants(one)) {
        transaction(one, selection, with_numbers, out);
        any = true;
    }
    if any {
        out.push(b'\n');
    }
    any
}

fn transaction(transaction: &Transaction, selection: &Selection, with_numbers: bool, out: &mut Vec<u8>) {
    bullet('*', transaction.level, out);
    let (kind, number) = (transaction.kind.name(), transaction.number);
    let _ = if with_numbers {
        // Under the columns of the records: number, tag, side.
        writeln!(out, "{:>10} << {kind:<9}>>   {number:<10}", "")
    } else {
        writeln!(out, "<< {kind:<9}>> {number:<10}")
    };
    for record in transaction.log_records().filter(|record| selection.shows(record)) {
        bullet('-', transaction.level, out);
        if with_numbers {
            numbered(&record, out);
        } else {
            let _ = write!(out, "{:<14} ", record.tag.name());
            content(&record, out);
            out.push(b'\n');
        }
    }
}

fn bullet(sign: char, level: usize, out: &mut Vec<u8>) {
    let text = if level > 3 { format!("{sign}{level}{sign}") } else { sign.to_string().repeat(level) };
    let _ = write!(out, "{text:<3} ");
}

/// Appends a record with its transaction's number and side, and a line end.
pub(crate) fn numbered(record: &Record<'_>, out: &mut Vec<u8>) {
    let _ = write!(out, "{:>10} {:<14} {} ", record.number, record.tag.name(), record.side());
    content(record, out);
    out.push(b'\n');
}

/// Content that may hold anything is quoted, with the NUL that ends it; binary content is hexadecimal.
fn content(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.tag.is_unsafe() {
        out.push(b'"');
        for byte in record.data.iter().chain(&[0]) {
            match byte {
                b' '..=b'~' => out.push(*byte),
                _ => _ = write!(out, "%{byte:02x}"),
            }
        }
        out.push(b'"');
    } else if record.tag.is_binary() {
        out.push(b'[');
        for byte in record.data {
            let _ = write!(out, "{byte:02x}");
        }
        out.push(b']');
    } else {
        out.extend_from_slice(record.data);
    }
}
