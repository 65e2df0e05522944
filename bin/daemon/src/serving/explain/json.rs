//! An explanation as a JSON object, for programs. Times are in seconds; what is not known is null.

use super::{shown, word};
use cache::explain::{Explanation, Seen, Spot, Varying};
use catalog::index::lookup::Judged;
use copal_cache as cache;
use copal_catalog as catalog;
use serde_json::{Value, json};

/// The object.
pub(super) fn print(it: &Explanation) -> String {
    let (method, target, host) = &it.request;
    let found = it.found.as_ref();
    let value = json!({
        "verdict": it.outcome,
        "reason": it.reason.name(),
        "sentence": it.reason.sentence(),
        "decided": it.decided.as_ref().map(spot),
        "request": { "method": shown(method), "url": shown(target), "host": host.as_deref().map(shown) },
        "vcl": it.vcl,
        "rfc": it.rfc,
        "restarts": it.restarts,
        "steps": it.ran.iter().map(|ran| json!({
            "vcl": ran.vcl,
            "subroutine": ran.subroutine,
            "return": ran.action,
            "at": ran.spot.as_ref().map(spot),
        })).collect::<Vec<_>>(),
        "answer": it.answer.as_ref().map(|(status, reason)| json!({
            "status": status,
            "reason": reason.as_deref().map(shown),
        })),
        "key": it.key.map(|key| key.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))),
        "hash_data": it.hashed.iter().map(|part| shown(part)).collect::<Vec<_>>(),
        "objects": found.map(|found| found.objects.iter().map(object).collect::<Vec<_>>()),
        "entries": found.map(|found| found.entries),
        "fetches": found.map(|found| found.fetches),
        "fetched": found.map(|found| found.fetched),
        "waiting": found.map(|found| found.waiting),
        "bans": it.bans,
        "log": it.said.iter().map(|(tag, text)| json!({ "tag": tag, "text": shown(text) })).collect::<Vec<_>>(),
        "time": it.now,
    });
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

fn spot(spot: &Spot) -> Value {
    json!({
        "subroutine": spot.subroutine,
        "file": spot.file,
        "line": spot.line,
        "text": spot.text,
        "builtin": spot.is_builtin,
    })
}

fn object(object: &Seen) -> Value {
    let refused = match object.judged {
        Judged::Refused(why) => Some(why.name()),
        _ => None,
    };
    json!({
        "state": word(object.judged),
        "refused": refused,
        "decides": object.decides,
        "marker": object.marker,
        "not_stored": object.marked.as_ref().map(|marked| json!({
            "reason": marked.reason.name(),
            "sentence": marked.reason.sentence(),
            "vcl": marked.vcl,
            "subroutine": marked.place.as_ref().map(|place| &place.subroutine),
            "file": marked.place.as_ref().map(|place| &place.file),
            "line": marked.place.as_ref().map(|place| place.line),
        })),
        "vxid": object.vxid,
        "status": object.status,
        "age": object.age,
        "ttl": object.ttl,
        "ttl_left": object.ttl_left,
        "grace": object.grace,
        "grace_left": object.grace_left,
        "keep": object.keep,
        "keep_left": object.keep_left,
        "vary": object.vary.iter().map(varying).collect::<Vec<_>>(),
        "store": object.store,
        "hits": object.hits,
        "last_use": object.last_use,
        "bytes": object.bytes,
        "length": object.length,
        "filling": object.is_filling,
        "gzip": object.is_gzip,
        "etag": object.validators.0.as_deref().map(shown),
        "last_modified": object.validators.1.as_deref().map(shown),
        "segments": object.segments.map(|it| json!({
            "size": it.size,
            "count": it.count,
            "there": it.there,
            "wanted": it.wanted,
            "wanted_there": it.wanted_there,
        })),
        "ban": object.ban.as_ref().map(|ban| json!({ "time": ban.time, "spec": shown(&ban.text) })),
    })
}

fn varying(varying: &Varying) -> Value {
    json!({
        "name": shown(&varying.name),
        "stored": varying.stored.as_deref().map(shown),
        "asked": varying.asked.as_deref().map(shown),
    })
}
