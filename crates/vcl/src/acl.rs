//! Matching an address against an access list.
//!
//! The entries are sorted into runs of the same family and mask, the longest mask first, and by address within a run;
//! so a lookup is a binary search a run, and the first hit is the most specific one.

use crate::value::{AclEntry, AclValue};
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

impl AclValue {
    /// A list of these entries, in whatever order; of two for the same network the later one counts.
    pub fn new(name: String, log: bool, mut entries: Vec<AclEntry>) -> Self {
        entries.reverse();
        entries.sort_by_key(|entry| (entry.address.is_ipv6(), Reverse(entry.mask), entry.address));
        entries.dedup_by_key(|entry| (entry.address, entry.mask));
        Self { name, entries, log }
    }

    /// The most specific entry that holds `address`; a negated one means no.
    pub fn find(&self, address: IpAddr) -> Option<&AclEntry> {
        let mut rest = &self.entries[..];
        while let Some(head) = rest.first() {
            let (family, mask) = (head.address.is_ipv6(), head.mask);
            let length = rest.partition_point(|entry| {
                (entry.address.is_ipv6(), Reverse(entry.mask)) <= (family, Reverse(mask))
            });
            let (run, behind) = rest.split_at(length);
            if family == address.is_ipv6() {
                let wanted = network(address, mask);
                if let Ok(index) = run.binary_search_by_key(&wanted, |entry| entry.address) {
                    return Some(&run[index]);
                }
            }
            rest = behind;
        }
        None
    }

    /// Whether `address` is on the list. An address-less peer (a Unix-domain socket) is on none.
    pub fn matches(&self, address: Option<SocketAddr>) -> bool {
        address.is_some_and(|address| self.find(address.ip()).is_some_and(|entry| !entry.negated))
    }
}

/// The address with all but its first `mask` bits zero.
pub(crate) fn network(address: IpAddr, mask: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(mask.min(32))).unwrap_or(0);
            IpAddr::V4((address.to_bits() & keep).into())
        }
        IpAddr::V6(address) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(mask.min(128))).unwrap_or(0);
            IpAddr::V6((address.to_bits() & keep).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_entry_decides() {
        let entry = |address: &str, mask, negated| AclEntry {
            address: address.parse().unwrap(),
            mask,
            negated,
            source: String::new(),
        };
        let list = AclValue::new(
            "x".into(),
            false,
            vec![
                entry("192.0.2.0", 24, false),
                entry("192.0.2.23", 32, true),
                entry("10.0.0.0", 8, false),
                entry("10.1.0.0", 16, true),
                entry("10.1.1.0", 24, false),
                entry("2001:db8::", 32, false),
                entry("2001:db8::1", 128, true),
            ],
        );
        for (address, want) in [
            ("192.0.2.1", true),
            ("192.0.2.23", false),
            ("192.0.3.1", false),
            ("10.2.3.4", true),
            ("10.1.2.3", false),
            ("10.1.1.3", true),
            ("2001:db8::2", true),
            ("2001:db8::1", false),
            ("::1", false),
        ] {
            let address = SocketAddr::new(address.parse().unwrap(), 80);
            assert_eq!(list.matches(Some(address)), want, "{address}");
        }
        assert!(!list.matches(None));
        let all = AclValue::new("x".into(), false, vec![entry("0.0.0.0", 0, false)]);
        assert!(all.matches(Some("8.8.8.8:1".parse().unwrap())));
    }
}
