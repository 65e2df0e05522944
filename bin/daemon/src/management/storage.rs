//! `storage.list`, `storage.drain` and `storage.undrain`.

use super::Management;
use super::table::Columns;
use crate::server::{Holding, Server, Storage, StorageState};
use admin::{Reply, json};
use copal_admin as admin;
use copal_base::units::human_bytes;
use std::fmt::Write as _;

/// The table's columns. A device of a store stands in a row of its own below the store.
const COLUMNS: [&str; 8] = ["Store", "Kind", "Path", "Size", "Used", "Objects", "Entries", "Health"];
/// Stands for what there is none of.
const NONE: &str = "-";

impl<P: Server> Management<P> {
    pub(super) fn storage_list(&self, json: bool) -> Reply {
        let storages = self.server.storages();
        let states = if self.server.running() { self.server.storage_states() } else { Vec::new() };
        match json {
            true => Reply::ok(self.storage_json(&storages, &states)),
            false => Reply::ok(storage_text(&storages, &states)),
        }
    }

    /// Takes a device out of use, or into use again: the one at that path, or of that number among those of the store.
    pub(super) fn storage_drain(&mut self, store: &str, device: &str, on: bool) -> Reply {
        let storages = self.server.storages();
        let Some(index) = storages.iter().position(|storage| storage.name == store) else {
            return Reply::wrong(format!("No store {store}"));
        };
        let devices = &storages[index].devices;
        let number = device.parse().ok().filter(|number| *number < devices.len());
        let Some(place) = devices.iter().position(|known| known.path == device).or(number) else {
            return Reply::wrong(format!("Store {store} has no device {device}"));
        };
        match self.server.drain(index, place, on) {
            Ok(()) => Reply::done(),
            Err(why) => Reply::wrong(why),
        }
    }

    fn storage_json(&self, storages: &[Storage], states: &[StorageState]) -> String {
        let mut text = json::begin(2, &["storage.list", "-j"], self.now_time());
        for (index, storage) in storages.iter().enumerate() {
            let state = states.get(index);
            let _ = write!(
                text,
                "{}\n  {{\n    \"name\": {},\n    \"storage\": {}{}",
                if index == 0 { "" } else { "," },
                json::string(&storage.name),
                json::string(&storage.kind),
                state.map_or_else(String::new, |state| holding_json(&state.whole, "    ")),
            );
            let devices = storage.devices.iter().enumerate().map(|(place, device)| {
                let held = state.and_then(|state| state.devices.get(place));
                format!(
                    "\n      {{\n        \"tier\": {},\n        \"path\": {}{}\n      }}",
                    json::string(&device.tier),
                    json::string(&device.path),
                    held.map_or_else(String::new, |held| holding_json(held, "        ")),
                )
            });
            let devices: Vec<String> = devices.collect();
            if !devices.is_empty() {
                let _ = write!(text, ",\n    \"devices\": [{}\n    ]", devices.join(","));
            }
            text.push_str("\n}");
        }
        text.push_str("\n]\n");
        text
    }
}

fn holding_json(held: &Holding, indent: &str) -> String {
    let number = |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
    let mut text = format!(",\n{indent}\"size\": {},\n{indent}\"used\": {}", number(held.size), held.used);
    if let Some(objects) = held.objects {
        let _ = write!(text, ",\n{indent}\"objects\": {objects}");
    }
    let (entries, health) = (number(held.entries), json::string(&held.health));
    let _ = write!(text, ",\n{indent}\"entries\": {entries},\n{indent}\"health\": {health}");
    text
}

/// Varnish's lines, which scripts read, then what each store holds, while there is somebody to ask.
fn storage_text(storages: &[Storage], states: &[StorageState]) -> String {
    let mut text = "Storage devices:\n".to_owned();
    for storage in storages {
        let _ = writeln!(text, "\tstorage.{} = {}", storage.name, storage.kind);
    }
    if states.is_empty() {
        return text;
    }
    let mut columns = Columns::default();
    columns.row(&COLUMNS);
    for (storage, state) in storages.iter().zip(states) {
        // The only device of a store that has one needs no row of its own.
        let (path, devices) = match storage.devices.as_slice() {
            [device] if device.tier.is_empty() => (device.path.as_str(), &[][..]),
            devices => (NONE, devices),
        };
        row(&mut columns, [&storage.name, &storage.kind, path], &state.whole);
        for (device, held) in devices.iter().zip(&state.devices) {
            row(&mut columns, ["", &device.tier, &device.path], held);
        }
    }
    text.push('\n');
    text.push_str(&columns.print());
    text
}

fn row(columns: &mut Columns, [name, kind, path]: [&str; 3], held: &Holding) {
    let number = |number: Option<u64>| number.map_or(NONE.to_owned(), |number| number.to_string());
    columns.row(&[
        name,
        kind,
        path,
        &held.size.map_or("unlimited".to_owned(), human_bytes),
        &human_bytes(held.used),
        &number(held.objects),
        &number(held.entries),
        &held.health,
    ]);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, manager, running};
    use super::*;
    use crate::server::StorageDevice;

    #[test]
    fn without_a_worker_there_are_names_and_kinds() {
        let mut manager = manager();
        check(
            &mut manager,
            "storage.list",
            200,
            "Storage devices:\n\tstorage.s0 = malloc\n\tstorage.Transient = malloc\n",
        );
        check(
            &mut manager,
            "storage.list -j",
            200,
            "[ 2, [\"storage.list\", \"-j\"], 1000.000,\n  {\n    \"name\": \"s0\",\n    \"storage\": \"malloc\"\n},\n  \
             {\n    \"name\": \"Transient\",\n    \"storage\": \"malloc\"\n}\n]\n",
        );
    }

    #[test]
    fn with_one_there_is_what_they_hold() {
        let mut manager = running();
        check(
            &mut manager,
            "storage.list",
            200,
            "Storage devices:\n\tstorage.s0 = malloc\n\tstorage.Transient = malloc\n\n\
             Store       Kind      Path    Size         Used    Objects    Entries    Health\n\
             s0          malloc    -       1G           1.5k    3          -          good\n\
             Transient   malloc    -       unlimited    0       0          -          good\n",
        );
    }

    #[test]
    fn devices_are_drained_by_path_or_number() {
        let mut manager = running();
        check(&mut manager, "storage.drain s0 0", 106, "Store s0 has no device 0");
        check(&mut manager, "storage.drain nope 0", 106, "No store nope");
        manager.plant_mut().storages = Some(stores().0);
        for (words, told) in [
            ("drain disk /a", "drain 0.0 true"),
            ("drain s1 1", "drain 1.1 true"),
            ("undrain s1 /hdd/a", "drain 1.1 false"),
        ] {
            check(&mut manager, &format!("storage.{words}"), 200, "");
            assert_eq!(manager.server().log.borrow().last().map(String::as_str), Some(told));
        }
        check(&mut manager, "storage.drain s1 2", 106, "Store s1 has no device 2");
        check(&mut manager, "storage.drain s1 /a", 106, "Store s1 has no device /a");
        check(&mut manager, "storage.drain s1 /ssd/a", 106, "not that one");
    }

    fn held(size: u64, used: u64, objects: Option<u64>, health: &str) -> Holding {
        Holding { size: Some(size), used, objects, entries: Some(7), health: health.to_owned() }
    }

    fn device(tier: &str, path: &str) -> StorageDevice {
        StorageDevice { tier: tier.to_owned(), path: path.to_owned() }
    }

    fn stores() -> (Vec<Storage>, Vec<StorageState>) {
        let disk =
            Storage { name: "disk".into(), kind: "persistent".into(), devices: vec![device("", "/a")] };
        let devices = vec![device("fast", "/ssd/a"), device("slow", "/hdd/a")];
        let tiers = Storage { name: "s1".into(), kind: "tier".into(), devices };
        let one = StorageState {
            whole: held(10 << 30, 5 << 30, Some(2), "good"),
            devices: vec![held(10 << 30, 5 << 30, None, "good")],
        };
        let two = StorageState {
            whole: held(3 << 40, 1, Some(2), "good"),
            devices: vec![held(1 << 40, 1, None, "good"), held(2 << 40, 0, None, "failed")],
        };
        (vec![disk, tiers], vec![one, two])
    }

    #[test]
    fn devices_stand_below_their_store() {
        let (storages, states) = stores();
        assert_eq!(
            storage_text(&storages, &states),
            "Storage devices:\n\tstorage.disk = persistent\n\tstorage.s1 = tier\n\n\
             Store   Kind          Path      Size    Used       Objects    Entries    Health\n\
             disk    persistent    /a        10G     5G         2          7          good\n\
             s1      tier          -         3T      1 bytes    2          7          good\n\
             \u{20}       fast          /ssd/a    1T      1 bytes    -          7          good\n\
             \u{20}       slow          /hdd/a    2T      0          -          7          failed\n"
        );
    }

    #[test]
    fn the_json_is_json() {
        let (storages, states) = stores();
        for states in [&states[..], &[]] {
            let text = manager().storage_json(&storages, states);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read[4]["devices"][1]["path"], "/hdd/a", "{text}");
            assert_eq!(read[4]["devices"][1]["health"].as_str(), (!states.is_empty()).then_some("failed"));
            assert_eq!(read[3]["objects"].as_u64(), (!states.is_empty()).then_some(2));
        }
    }
}
