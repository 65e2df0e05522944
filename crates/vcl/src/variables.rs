//! Every VCL variable that is no header: its type, and where it may be read, written and unset.
//!
//! One table is the only source; the compiler's checks and the manual come from it. Source: Varnish 7.1, `vcl-var(7)`.

use crate::host::{Side, Sub};

/// The type of a variable. A closed set smaller than [`crate::vmod::Type`], with `Body`, which can only be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Bool,
    Int,
    Duration,
    Time,
    Bytes,
    String,
    Ip,
    Backend,
    Storage,
    Blob,
    Body,
}

/// A set of built-in subroutines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subs(pub u16);

impl Subs {
    /// No subroutine.
    pub const NONE: Subs = Subs(0);
    /// All subroutines.
    pub const ALL: Subs = Subs((1 << Sub::COUNT) - 1);
    /// Those of the client side.
    pub const CLIENT: Subs = Subs::of(&[
        Sub::Recv,
        Sub::Hash,
        Sub::Pipe,
        Sub::Pass,
        Sub::Hit,
        Sub::Miss,
        Sub::Purge,
        Sub::Deliver,
        Sub::Synth,
    ]);
    /// Those of the fetch side.
    pub const BACKEND: Subs = Subs::of(&[Sub::BackendFetch, Sub::BackendResponse, Sub::BackendError]);

    /// The set of exactly these.
    pub const fn of(subs: &[Sub]) -> Subs {
        let mut bits = 0;
        let mut at = 0;
        while at < subs.len() {
            bits |= 1 << subs[at] as u16;
            at += 1;
        }
        Subs(bits)
    }

    /// Whether `sub` is in the set.
    pub const fn contains(self, sub: Sub) -> bool {
        self.0 & (1 << sub as u16) != 0
    }

    /// Those in either set.
    pub const fn union(self, other: Subs) -> Subs {
        Subs(self.0 | other.0)
    }

    /// Whether no subroutine is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The language versions a variable exists in (or may be written in), as `std.syntax` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first.
    pub from: u32,
    /// The last.
    pub to: u32,
}

impl Versions {
    /// Whether `version` is among them.
    pub const fn contains(self, version: u32) -> bool {
        self.from <= version && version <= self.to
    }
}

/// What the table says of a variable.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The variable.
    pub variable: Var,
    /// Its name in VCL.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Where it may be read.
    pub readable: Subs,
    /// Where it may be written.
    pub writable: Subs,
    /// Where it may be unset.
    pub unsettable: Subs,
    /// The versions it exists in.
    pub versions: Versions,
    /// The versions it may be written in.
    pub writable_versions: Versions,
}

const NONE: u16 = 0;
const ALL: u16 = Subs::ALL.0;
const CLIENT: u16 = Subs::CLIENT.0;
const BACKEND: u16 = Subs::BACKEND.0;
const PIPE: u16 = 1 << Sub::Pipe as u16;
const PASS: u16 = 1 << Sub::Pass as u16;
const HIT: u16 = 1 << Sub::Hit as u16;
const MISS: u16 = 1 << Sub::Miss as u16;
const PURGE: u16 = 1 << Sub::Purge as u16;
const DELIVER: u16 = 1 << Sub::Deliver as u16;
const SYNTH: u16 = 1 << Sub::Synth as u16;
const FETCH: u16 = 1 << Sub::BackendFetch as u16;
const BACKEND_RESPONSE: u16 = 1 << Sub::BackendResponse as u16;
const BACKEND_ERROR: u16 = 1 << Sub::BackendError as u16;
const RESPONSE: u16 = BACKEND_RESPONSE | BACKEND_ERROR;

const ANY: Versions = Versions { from: 0, to: u32::MAX };
const V40: Versions = Versions { from: 0, to: 40 };
const V41: Versions = Versions { from: 41, to: u32::MAX };

macro_rules! variables {
    ($($variant:ident $name:literal $kind:ident: $read:expr; $write:expr; $unset:expr; $in:ident $write_in:ident,)*) => {
        /// A variable that is no header, named after its VCL name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Var {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        /// All variables, in the order of [`Var`].
        pub const TABLE: &[Row] = &[
            $(Row {
                variable: Var::$variant,
                name: $name,
                kind: Kind::$kind,
                readable: Subs($read),
                writable: Subs($write),
                unsettable: Subs($unset),
                versions: $in,
                writable_versions: $write_in,
            },)*
        ];
    };
}

// variant, name, type: readable; writable; unsettable; versions it exists in, versions it may be written in
variables! {
    Now "now" Time: ALL; NONE; NONE; ANY ANY,
    ClientIdentity "client.identity" String: CLIENT | BACKEND; CLIENT; NONE; ANY ANY,
    ClientIp "client.ip" Ip: CLIENT | BACKEND; NONE; NONE; ANY ANY,
    ServerHostname "server.hostname" String: ALL; NONE; NONE; ANY ANY,
    ServerIdentity "server.identity" String: ALL; NONE; NONE; ANY ANY,
    ServerIp "server.ip" Ip: CLIENT | BACKEND; NONE; NONE; ANY ANY,
    RemoteIp "remote.ip" Ip: CLIENT | BACKEND; NONE; NONE; ANY ANY,
    LocalEndpoint "local.endpoint" String: CLIENT | BACKEND; NONE; NONE; V41 ANY,
    LocalIp "local.ip" Ip: CLIENT | BACKEND; NONE; NONE; ANY ANY,
    LocalSocket "local.socket" String: CLIENT | BACKEND; NONE; NONE; V41 ANY,
    ReqBackendHint "req.backend_hint" Backend: CLIENT; CLIENT; NONE; ANY ANY,
    ReqCanGzip "req.can_gzip" Bool: CLIENT; NONE; NONE; ANY ANY,
    ReqEsi "req.esi" Bool: CLIENT; CLIENT; NONE; V40 ANY,
    ReqEsiLevel "req.esi_level" Int: CLIENT; NONE; NONE; ANY ANY,
    ReqGrace "req.grace" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    ReqHash "req.hash" Blob: HIT | MISS | PASS | PURGE | DELIVER; NONE; NONE; ANY ANY,
    ReqHashAlwaysMiss "req.hash_always_miss" Bool: CLIENT; CLIENT; NONE; ANY ANY,
    ReqHashIgnoreBusy "req.hash_ignore_busy" Bool: CLIENT; CLIENT; NONE; ANY ANY,
    ReqHashIgnoreVary "req.hash_ignore_vary" Bool: CLIENT; CLIENT; NONE; ANY ANY,
    ReqIsHitmiss "req.is_hitmiss" Bool: CLIENT; NONE; NONE; ANY ANY,
    ReqIsHitpass "req.is_hitpass" Bool: CLIENT; NONE; NONE; ANY ANY,
    ReqMethod "req.method" String: CLIENT; CLIENT; NONE; ANY ANY,
    ReqProto "req.proto" String: CLIENT; CLIENT; NONE; ANY V40,
    ReqRestarts "req.restarts" Int: CLIENT; NONE; NONE; ANY ANY,
    ReqRfc "req.rfc" Bool: CLIENT; CLIENT; NONE; ANY ANY,
    ReqStorage "req.storage" Storage: CLIENT; CLIENT; NONE; ANY ANY,
    ReqTime "req.time" Time: CLIENT; NONE; NONE; ANY ANY,
    ReqTransport "req.transport" String: CLIENT; NONE; NONE; ANY ANY,
    ReqTtl "req.ttl" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    ReqUrl "req.url" String: CLIENT; CLIENT; NONE; ANY ANY,
    ReqXid "req.xid" String: CLIENT; NONE; NONE; ANY ANY,
    ReqTopMethod "req_top.method" String: CLIENT; NONE; NONE; ANY ANY,
    ReqTopProto "req_top.proto" String: CLIENT; NONE; NONE; ANY ANY,
    ReqTopTime "req_top.time" Time: CLIENT; NONE; NONE; ANY ANY,
    ReqTopUrl "req_top.url" String: CLIENT; NONE; NONE; ANY ANY,
    BereqBackend "bereq.backend" Backend: PIPE | BACKEND; PIPE | BACKEND; NONE; ANY ANY,
    BereqBetweenBytesTimeout "bereq.between_bytes_timeout" Duration: BACKEND; BACKEND; NONE; ANY ANY,
    BereqBody "bereq.body" Body: NONE; NONE; FETCH; ANY ANY,
    BereqConnectTimeout "bereq.connect_timeout" Duration: PIPE | BACKEND; PIPE | BACKEND; NONE; ANY ANY,
    BereqFirstByteTimeout "bereq.first_byte_timeout" Duration: BACKEND; BACKEND; NONE; ANY ANY,
    BereqHash "bereq.hash" Blob: PIPE | BACKEND; NONE; NONE; ANY ANY,
    BereqIsBgfetch "bereq.is_bgfetch" Bool: BACKEND; NONE; NONE; ANY ANY,
    BereqIsHitmiss "bereq.is_hitmiss" Bool: BACKEND; NONE; NONE; ANY ANY,
    BereqIsHitpass "bereq.is_hitpass" Bool: BACKEND; NONE; NONE; ANY ANY,
    BereqMethod "bereq.method" String: PIPE | BACKEND; PIPE | BACKEND; NONE; ANY ANY,
    BereqProto "bereq.proto" String: PIPE | BACKEND; PIPE | BACKEND; NONE; ANY V40,
    BereqRetries "bereq.retries" Int: BACKEND; NONE; NONE; ANY ANY,
    BereqRfc "bereq.rfc" Bool: BACKEND; NONE; NONE; ANY ANY,
    BereqTime "bereq.time" Time: PIPE | BACKEND; NONE; NONE; ANY ANY,
    BereqUncacheable "bereq.uncacheable" Bool: BACKEND; NONE; NONE; ANY ANY,
    BereqUrl "bereq.url" String: PIPE | BACKEND; PIPE | BACKEND; NONE; ANY ANY,
    BereqXid "bereq.xid" String: PIPE | BACKEND; NONE; NONE; ANY ANY,
    BerespAge "beresp.age" Duration: RESPONSE; NONE; NONE; ANY ANY,
    BerespBackend "beresp.backend" Backend: RESPONSE; NONE; NONE; ANY ANY,
    BerespBackendIp "beresp.backend.ip" Ip: BACKEND_RESPONSE; NONE; NONE; V40 ANY,
    BerespBackendName "beresp.backend.name" String: RESPONSE; NONE; NONE; ANY ANY,
    BerespBody "beresp.body" Body: NONE; BACKEND_ERROR; NONE; ANY ANY,
    BerespDoEsi "beresp.do_esi" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespDoGunzip "beresp.do_gunzip" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespDoGzip "beresp.do_gzip" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespDoSparse "beresp.do_sparse" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespDoStream "beresp.do_stream" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespFilters "beresp.filters" String: BACKEND_RESPONSE; BACKEND_RESPONSE; NONE; ANY ANY,
    BerespGrace "beresp.grace" Duration: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespKeep "beresp.keep" Duration: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespProto "beresp.proto" String: RESPONSE; RESPONSE; NONE; ANY V40,
    BerespReason "beresp.reason" String: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespStatus "beresp.status" Int: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespStorage "beresp.storage" Storage: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespStorageHint "beresp.storage_hint" String: RESPONSE; RESPONSE; NONE; V40 ANY,
    BerespTime "beresp.time" Time: RESPONSE; NONE; NONE; ANY ANY,
    BerespTtl "beresp.ttl" Duration: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespUncacheable "beresp.uncacheable" Bool: RESPONSE; RESPONSE; NONE; ANY ANY,
    BerespWas304 "beresp.was_304" Bool: RESPONSE; NONE; NONE; ANY ANY,
    ObjAge "obj.age" Duration: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjCanEsi "obj.can_esi" Bool: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjGrace "obj.grace" Duration: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjHits "obj.hits" Int: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjKeep "obj.keep" Duration: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjProto "obj.proto" String: HIT; NONE; NONE; ANY ANY,
    ObjReason "obj.reason" String: HIT; NONE; NONE; ANY ANY,
    ObjStatus "obj.status" Int: HIT; NONE; NONE; ANY ANY,
    ObjStorage "obj.storage" Storage: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjTime "obj.time" Time: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjTtl "obj.ttl" Duration: HIT | DELIVER; NONE; NONE; ANY ANY,
    ObjUncacheable "obj.uncacheable" Bool: DELIVER; NONE; NONE; ANY ANY,
    RespBody "resp.body" Body: NONE; SYNTH; NONE; ANY ANY,
    RespDoEsi "resp.do_esi" Bool: DELIVER | SYNTH; DELIVER | SYNTH; NONE; V41 ANY,
    RespFilters "resp.filters" String: DELIVER | SYNTH; DELIVER | SYNTH; NONE; ANY ANY,
    RespIsStreaming "resp.is_streaming" Bool: DELIVER | SYNTH; NONE; NONE; ANY ANY,
    RespProto "resp.proto" String: DELIVER | SYNTH; DELIVER | SYNTH; NONE; ANY V40,
    RespReason "resp.reason" String: DELIVER | SYNTH; DELIVER | SYNTH; NONE; ANY ANY,
    RespStatus "resp.status" Int: DELIVER | SYNTH; DELIVER | SYNTH; NONE; ANY ANY,
    RespTime "resp.time" Time: DELIVER | SYNTH; NONE; NONE; ANY ANY,
    SessIdleSendTimeout "sess.idle_send_timeout" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    SessSendTimeout "sess.send_timeout" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    SessTimeoutIdle "sess.timeout_idle" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    SessTimeoutLinger "sess.timeout_linger" Duration: CLIENT; CLIENT; NONE; ANY ANY,
    SessXid "sess.xid" String: CLIENT | BACKEND; NONE; NONE; V41 ANY,
}

impl Var {
    /// What the table says of it.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name in VCL.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The variable of that name that exists in that language version.
    pub fn find(name: &str, version: u32) -> Option<Var> {
        TABLE.iter().find(|row| row.name == name && row.versions.contains(version)).map(|row| row.variable)
    }
}

/// Why a name means nothing in this version although it does in another, for the message.
pub(crate) fn other_version(name: &str) -> Option<&'static str> {
    let row = TABLE.iter().find(|row| row.name == name)?;
    Some(match row.versions {
        V40 => "Only available when VCL syntax <= 4.0",
        V41 => "Only available when 4.1 <= VCL syntax",
        _ => return None,
    })
}

/// A property of a storage: `storage.<name>.free_space` and its like. Read through [`crate::host::Host::storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageVar {
    /// `free_space`, BYTES.
    FreeSpace,
    /// `used_space`, BYTES.
    UsedSpace,
    /// `happy`, BOOL.
    Happy,
}

impl StorageVar {
    /// The property of that name.
    pub fn find(name: &str) -> Option<StorageVar> {
        match name {
            "free_space" => Some(StorageVar::FreeSpace),
            "used_space" => Some(StorageVar::UsedSpace),
            "happy" => Some(StorageVar::Happy),
            _ => None,
        }
    }

    /// Its type.
    pub fn kind(self) -> Kind {
        match self {
            StorageVar::FreeSpace | StorageVar::UsedSpace => Kind::Bytes,
            StorageVar::Happy => Kind::Bool,
        }
    }
}

/// Where the fields of a message may be used.
#[derive(Clone, Copy, Debug)]
pub struct SideRow {
    /// The message.
    pub side: Side,
    /// Its name in VCL (`req`).
    pub name: &'static str,
    /// Where its fields may be read.
    pub readable: Subs,
    /// Where its fields may be written and unset.
    pub writable: Subs,
}

/// The messages whose fields VCL knows.
pub const SIDES: &[SideRow] = &[
    SideRow { side: Side::Req, name: "req", readable: Subs(CLIENT), writable: Subs(CLIENT) },
    SideRow { side: Side::ReqTop, name: "req_top", readable: Subs(CLIENT), writable: Subs(NONE) },
    SideRow {
        side: Side::Bereq,
        name: "bereq",
        readable: Subs(PIPE | BACKEND),
        writable: Subs(PIPE | BACKEND),
    },
    SideRow { side: Side::Beresp, name: "beresp", readable: Subs(RESPONSE), writable: Subs(RESPONSE) },
    SideRow { side: Side::Obj, name: "obj", readable: Subs(HIT), writable: Subs(NONE) },
    SideRow {
        side: Side::Resp,
        name: "resp",
        readable: Subs(DELIVER | SYNTH),
        writable: Subs(DELIVER | SYNTH),
    },
];

impl Side {
    /// What the table says of it.
    pub fn row(self) -> &'static SideRow {
        &SIDES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_their_enums() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.variable as usize, index, "{}", row.name);
            let camel: String =
                row.name.split(['.', '_']).map(|part| part[..1].to_ascii_uppercase() + &part[1..]).collect();
            assert_eq!(format!("{:?}", row.variable), camel);
        }
        for (index, row) in SIDES.iter().enumerate() {
            assert_eq!(row.side as usize, index);
        }
    }

    #[test]
    fn versions_choose_variables() {
        assert_eq!(Var::find("req.esi", 40), Some(Var::ReqEsi));
        assert_eq!(Var::find("req.esi", 41), None);
        assert_eq!(Var::find("local.socket", 40), None);
        assert!(!Var::ReqProto.row().writable_versions.contains(41));
    }
}
