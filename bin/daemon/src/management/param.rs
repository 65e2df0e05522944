//! Commands about parameters.

use super::Management;
use crate::parameters::{self, Flag, Row};
use crate::server::Server;
use admin::{Reply, Status, json};
use copal_admin as admin;

impl<P: Server> Management<P> {
    pub(super) fn param_show(&self, arguments: &[String], json: bool) -> Reply {
        let (long, which) = match arguments {
            [] => (false, None),
            [flag] if flag == "-l" => (true, None),
            [which] => (which != "changed", Some(which.as_str())),
            [flag, which] if flag == "-l" => (true, Some(which.as_str())),
            _ => return Reply::new(Status::TooMany, "Too many parameters"),
        };
        if json && arguments.first().is_some_and(|flag| flag == "-l") {
            return Reply::wrong("-l not permitted with param.show -j");
        }
        let rows: Vec<&'static Row> = match which {
            None => parameters::rows().collect(),
            Some("changed") => {
                parameters::rows().filter(|row| row.get(&self.parameters) != row.default()).collect()
            }
            Some(name) => match parameters::find(name) {
                Some(row) => vec![row],
                None => return unknown(name),
            },
        };
        if json {
            let mut words = vec!["param.show", "-j"];
            words.extend(which);
            return self.param_json(&words, &rows);
        }
        let print = if long { parameters::long } else { parameters::list };
        let mut text = String::new();
        for row in rows {
            print(row, &self.parameters, &mut text);
        }
        Reply::ok(text)
    }

    fn param_json(&self, words: &[&str], rows: &[&'static Row]) -> Reply {
        let mut text = json::begin(2, words, self.now_time());
        for (index, row) in rows.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            parameters::json(row, &self.parameters, &mut text);
        }
        text.push_str("\n]\n");
        Reply::ok(text)
    }

    pub(super) fn param_set(&mut self, name: &str, value: &str, json: bool) -> Reply {
        let row = match self.settable(name) {
            Ok(row) => row,
            Err(refusal) => return refusal,
        };
        if let Err(why) = row.set(&mut self.parameters, value) {
            return Reply::wrong(why);
        }
        self.param_changed(row, json.then_some(name))
    }

    pub(super) fn param_reset(&mut self, name: &str) -> Reply {
        let row = match self.settable(name) {
            Ok(row) => row,
            Err(refusal) => return refusal,
        };
        row.reset(&mut self.parameters);
        self.param_changed(row, None)
    }

    fn settable(&self, name: &str) -> Result<&'static Row, Reply> {
        let Some(row) = parameters::find(name) else { return Err(unknown(name)) };
        if !row.available() {
            return Err(Reply::cant(format!("parameter \"{name}\" is not available on this platform.")));
        }
        if self.protected.contains(row.name) {
            return Err(Reply::new(Status::Auth, format!("parameter \"{name}\" is protected.")));
        }
        Ok(row)
    }

    fn param_changed(&mut self, row: &'static Row, json_name: Option<&str>) -> Reply {
        self.server.apply(&self.parameters);
        let mut reply = match row.idle() {
            Some(why) if json_name.is_none() => Reply::ok(format!("Accepted without effect: {why}.\n")),
            None if row.flags.contains(&Flag::MustRestart) && self.server.running() => {
                Reply::ok("\nChange will take effect when child is restarted")
            }
            None if row.flags.contains(&Flag::MustReload) => {
                Reply::ok("\nChange will take effect when VCL script is reloaded")
            }
            _ => Reply::done(),
        };
        if let Some(name) = json_name {
            reply.body += &self.param_json(&["param.set", "-j", name], &[row]).body;
        }
        reply
    }
}

fn unknown(name: &str) -> Reply {
    Reply::wrong(format!("Unknown parameter \"{name}\"."))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, running};

    #[test]
    fn setting() {
        let mut manager = running();
        check(&mut manager, "param.set default_ttl 5", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "apply ttl 5");
        check(&mut manager, "param.show changed", 200, "default_ttl                   5.000 [seconds]\n");
        check(&mut manager, "param.reset default_ttl", 200, "");
        check(&mut manager, "param.show changed", 200, "");
        check(&mut manager, "param.set nope 1", 106, "Unknown parameter \"nope\".");
        check(
            &mut manager,
            "param.set default_ttl x",
            106,
            "Invalid number (x)\n\n(attempting to set param 'default_ttl' to 'x')",
        );
        check(
            &mut manager,
            "param.set listen_depth 10",
            200,
            "\nChange will take effect when child is restarted",
        );
        check(
            &mut manager,
            "param.set accept_filter on",
            300,
            "parameter \"accept_filter\" is not available on this platform.",
        );
        check(
            &mut manager,
            "param.set thread_pools 4",
            200,
            "Accepted without effect: there is one thread for each processor, and no thread waits for a connection.\n",
        );
    }

    #[test]
    fn protection() {
        let mut manager = running();
        manager.protect("default_ttl").unwrap();
        check(&mut manager, "param.set default_ttl 5", 107, "parameter \"default_ttl\" is protected.");
        check(&mut manager, "param.reset default_ttl", 107, "parameter \"default_ttl\" is protected.");
        assert_eq!(manager.protect("nope"), Err("Unknown parameter nope".to_owned()));
    }

    #[test]
    fn showing() {
        let mut manager = running();
        check(
            &mut manager,
            "param.show max_restarts",
            200,
            "max_restarts\n        Value is: 4 [restarts] (default)\n        Minimum is: 0\n\n        How often a request may be restarted.\n\n",
        );
        check(&mut manager, "param.show nope", 106, "Unknown parameter \"nope\".");
        check(&mut manager, "param.show a b", 105, "Too many parameters");
        check(&mut manager, "param.show -j -l", 106, "-l not permitted with param.show -j");
        check(
            &mut manager,
            "param.set -j max_restarts 8",
            200,
            "[ 2, [\"param.set\", \"-j\", \"max_restarts\"], 1000.000,\n  {\n    \"name\": \"max_restarts\",\n    \"implemented\": true,\n    \
             \"value\": 8,\n    \"units\": \"restarts\",\n    \"default\": \"4\",\n    \"minimum\": \"0\",\n    \
             \"description\": \"How often a request may be restarted.\",\n    \"flags\": []\n  }\n]\n",
        );
    }
}
