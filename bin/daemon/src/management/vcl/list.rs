//! `vcl.list`, as text and in JSON.

use super::table::{Entry, Loaded};
use crate::management::Management;
use crate::management::table::Columns;
use crate::server::{Label, Server};
use admin::{Reply, json};
use copal_admin as admin;
use std::fmt::Write as _;

/// The columns that each row has.
struct Row {
    status: &'static str,
    state: &'static str,
    temperature: &'static str,
    /// Requests and the like that use it; unknown where nothing runs.
    users: Option<usize>,
    name: String,
}

impl<P: Server> Management<P> {
    pub(in crate::management) fn vcl_list(&self, json: bool) -> Reply {
        if json {
            return self.vcl_list_json();
        }
        let mut columns = Columns::default();
        for entry in self.vcls.entries() {
            let row = self.row(entry);
            match self.leaning(entry) {
                Some((arrow, words)) => row.add_to(&mut columns, &[arrow, &words]),
                None => row.add_to(&mut columns, &[]),
            }
        }
        self.lingering().for_each(|row| row.add_to(&mut columns, &[]));
        Reply::ok(columns.print())
    }

    fn row(&self, entry: &Entry<P::Program>) -> Row {
        let name = entry.name();
        let running = self.server.running();
        let status = if self.vcls.is_active(name) { "active" } else { "available" };
        match entry {
            Entry::Label(_) => Row {
                status,
                state: "label",
                temperature: "warm",
                users: running.then_some(0),
                name: name.to_owned(),
            },
            Entry::Vcl(vcl) => {
                let users = running.then(|| self.server.users(name));
                let temperature = temperature(vcl, users);
                Row { status, state: vcl.state.name(), temperature, users, name: name.to_owned() }
            }
        }
    }

    /// What stands behind the name: which VCL a label is for, how many labels a VCL has.
    fn leaning(&self, entry: &Entry<P::Program>) -> Option<(&'static str, String)> {
        match entry {
            Entry::Label(Label { name, vcl }) => Some((
                "->",
                match self.vcls.users_of(name).len() {
                    0 => vcl.clone(),
                    1 => format!("{vcl} (1 return(vcl))"),
                    users => format!("{vcl} ({users} return(vcl)'s)"),
                },
            )),
            Entry::Vcl(vcl) => match self.vcls.labels_of(&vcl.name).len() {
                0 => None,
                1 => Some(("<-", "(1 label)".to_owned())),
                labels => Some(("<-", format!("({labels} labels)"))),
            },
        }
    }

    /// Discarded VCLs that are still in use.
    fn lingering(&self) -> impl Iterator<Item = Row> {
        let lingering = if self.server.running() { self.server.lingering() } else { Vec::new() };
        lingering.into_iter().map(|(name, users)| Row {
            status: "discarded",
            state: "cold",
            temperature: "busy",
            users: Some(users),
            name,
        })
    }

    fn vcl_list_json(&self) -> Reply {
        let mut text = json::begin(2, &["vcl.list", "-j"], self.now_time());
        let mut first = true;
        let mut add = |row: Row, rest: String| {
            let _ = write!(
                text,
                "{}\n  {{\n    \"status\": \"{}\",\n    \"state\": \"{}\",\n    \"temperature\": \"{}\",\n{}    \
                 \"name\": {}{rest}\n}}",
                if first { "" } else { "," },
                row.status,
                row.state,
                row.temperature,
                row.users.map_or(String::new(), |users| format!("    \"busy\": {users},\n")),
                json::string(&row.name),
            );
            first = false;
        };
        for entry in self.vcls.entries() {
            add(self.row(entry), self.leaning_json(entry));
        }
        self.lingering().for_each(|row| add(row, String::new()));
        if first {
            // Nothing follows the comma of the beginning.
            text.pop();
        }
        text.push_str("\n]\n");
        Reply::ok(text)
    }

    fn leaning_json(&self, entry: &Entry<P::Program>) -> String {
        match entry {
            Entry::Label(Label { name, vcl }) => {
                let refs = match self.vcls.users_of(name).len() {
                    0 => String::new(),
                    users => format!(",\n      \"refs\": {users}"),
                };
                format!(",\n    \"label\": {{\n      \"name\": {}{refs}\n    }}", json::string(vcl))
            }
            Entry::Vcl(vcl) => match self.vcls.labels_of(&vcl.name).len() {
                0 => String::new(),
                labels => format!(",\n    \"labels\": {labels}"),
            },
        }
    }
}

impl Row {
    fn add_to(self, columns: &mut Columns, rest: &[&str]) {
        let users = self.users.map_or("-".to_owned(), |users| users.to_string());
        let users = format!("{users:>6}");
        let mut cells = vec![self.status, self.state, self.temperature, &users, &self.name];
        cells.extend(rest);
        columns.row(&cells);
    }
}

fn temperature<Program>(vcl: &Loaded<Program>, users: Option<usize>) -> &'static str {
    match (vcl.warm, users) {
        (true, _) => "warm",
        (false, Some(1..)) => "busy",
        (false, _) => "cold",
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, running};

    #[test]
    fn in_json() {
        let mut manager = running();
        check(
            &mut manager,
            "vcl.list -j",
            200,
            concat!(
                "[ 2, [\"vcl.list\", \"-j\"], 1000.000,\n  {\n    \"status\": \"active\",\n    \"state\": \"auto\",\n",
                "    \"temperature\": \"warm\",\n    \"busy\": 0,\n    \"name\": \"boot\"\n}\n]\n"
            ),
        );
        check(&mut manager, "vcl.label l boot", 200, "");
        check(&mut manager, "vcl.inline u uses:l", 200, "");
        check(&mut manager, "vcl.discard u", 200, "");
        check(&mut manager, "stop", 200, "");
        check(
            &mut manager,
            "vcl.list -j",
            200,
            concat!(
                "[ 2, [\"vcl.list\", \"-j\"], 1000.000,\n  {\n    \"status\": \"active\",\n    \"state\": \"auto\",\n",
                "    \"temperature\": \"warm\",\n    \"name\": \"boot\",\n    \"labels\": 1\n},\n",
                "  {\n    \"status\": \"available\",\n    \"state\": \"label\",\n    \"temperature\": \"warm\",\n",
                "    \"name\": \"l\",\n    \"label\": {\n      \"name\": \"boot\"\n    }\n}\n]\n"
            ),
        );
    }
}
