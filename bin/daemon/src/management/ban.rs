//! Commands about bans.

use super::Management;
use crate::server::Server;
use admin::{Reply, json};
use copal_admin as admin;
use std::fmt::Write as _;

impl<P: Server> Management<P> {
    pub(super) fn ban(&mut self, words: &[String]) -> Reply {
        // Field, operator and argument, and `&&` before each further three.
        if words.len() % 4 != 3 {
            return Reply::wrong("Wrong number of arguments");
        }
        if let Some(word) = words.iter().skip(3).step_by(4).find(|word| word.as_str() != "&&") {
            return Reply::wrong(format!("Found \"{word}\" expected &&"));
        }
        match self.server.ban(words) {
            Ok(()) => Reply::done(),
            Err(why) => Reply::wrong(why),
        }
    }

    pub(super) fn ban_list(&self, json: bool) -> Reply {
        let bans = self.server.bans();
        if json {
            let mut text = json::begin(2, &["ban.list", "-j"], self.now_time());
            for (index, ban) in bans.iter().enumerate() {
                let _ = write!(
                    text,
                    "{}\n  {{\n    \"time\": {:.6},\n    \"refs\": {},\n    \"completed\": {},\n    \"spec\": {}\n}}",
                    if index == 0 { "" } else { "," },
                    ban.time,
                    ban.objects,
                    ban.completed,
                    json::string(&ban.spec),
                );
            }
            text.push_str("\n]\n");
            return Reply::ok(text);
        }
        let mut text = "Present bans:\n".to_owned();
        for ban in bans {
            let mark = if ban.completed { "C" } else { "-" };
            let _ = writeln!(text, "{:>10.6} {:>5} {mark}  {}", ban.time, ban.objects, ban.spec);
        }
        Reply::ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, running};

    #[test]
    fn bans() {
        let mut manager = running();
        check(&mut manager, "ban req.url ~ foo", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "ban req.url ~ foo");
        check(&mut manager, "ban req.url ~ \"a b\" && obj.status == 200", 200, "");
        check(&mut manager, "ban req.url ~ a &&", 106, "Wrong number of arguments");
        check(&mut manager, "ban a == b || c == d", 106, "Found \"||\" expected &&");
        check(&mut manager, "ban bad == b", 106, "Unknown or unsupported field \"bad\"");
        check(&mut manager, "ban.list", 200, "Present bans:\n1000.000000     3 -  req.url ~ foo\n");
        check(
            &mut manager,
            "ban.list -j",
            200,
            concat!(
                "[ 2, [\"ban.list\", \"-j\"], 1000.000,\n  {\n    \"time\": 1000.000000,\n    \"refs\": 3,\n",
                "    \"completed\": false,\n    \"spec\": \"req.url ~ foo\"\n}\n]\n"
            ),
        );
    }
}
