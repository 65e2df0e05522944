//! `-s` arguments and what is made of them.

use super::*;
use std::io;

/// Varnish Enterprise's, as NetApp and its own tutorials have it.
const MSE: &str = r#"
env: {
    id = "mse";
    # 80 %
    memcache_size = "auto";
    books = ( {
        id = "book1";
        directory = "/var/lib/mse/book1";
        database_size = "2G";
        stores = ( {
            id = "store1"
            filename = "/var/lib/mse/store1.dat"
            size = "100G";
        }, {
            id = "store2";
            filename = "/var/lib/mse/store2.dat";
            size = "100G";
        } );
    }, {
        id = "book2"; directory = "/var/lib/mse/book2"; database_size = "1G";
        stores = ( { id = "store3"; filename = "/mnt/store3.dat"; size = "1T"; align = "512k"; } );
    } );
    memcache_chunksize = "4M";
};
"#;

/// MSE 4's, from its introduction.
const MSE4: &str = r#"env: { books = ( { id = "book"; filename = "/d/book"; size = "5G";
    stores = ( { id = "store"; filename = "/d/store"; size = "2043G"; } ); } ); };"#;

fn read(path: &str) -> io::Result<String> {
    match path {
        "/mse.conf" => Ok(MSE.to_owned()),
        "/mse4.conf" => Ok(MSE4.to_owned()),
        "/memory.conf" => Ok("env: { id = \"mse\"; memcache_size = \"5G\"; }".to_owned()),
        "/bare.conf" => Ok("env: { id = \"mse\"; }".to_owned()),
        "/empty.conf" => Ok(String::new()),
        _ => match path.strip_prefix("/text:") {
            Some(text) => Ok(text.replace('|', ",")),
            None => Err(io::Error::from_raw_os_error(2)),
        },
    }
}

/// A size in the largest unit that divides it.
fn bytes(size: u64) -> String {
    copal_base::units::format_bytes(size)
}

fn optional(size: Option<u64>) -> String {
    size.map_or("-".to_owned(), bytes)
}

fn device(spec: &DeviceSpec) -> String {
    format!("{}:{}", spec.path.display(), optional(spec.size))
}

fn print(spec: &Spec) -> String {
    let kind = match &spec.kind {
        Kind::Memory { size } => format!("memory {}", optional(*size)),
        Kind::File(spec) => {
            let size = match spec.size {
                None => "-".to_owned(),
                Some(file::FileSize::Bytes(size)) => bytes(size),
                Some(file::FileSize::Percent(percent)) => format!("{percent}%"),
            };
            let granularity = optional(spec.granularity);
            format!("file {} {size} {granularity} {:?}", spec.path.display(), spec.advice)
        }
        Kind::Persistent(spec) => format!(
            "disk {} memory={} region={} entries={}",
            device(&spec.device),
            optional(spec.memory),
            optional(spec.region),
            spec.entries.map_or("-".to_owned(), |entries| entries.to_string())
        ),
        Kind::Tiers(spec) => {
            let tier = |tier: &tier::TierSpec| {
                let devices: Vec<String> = tier.devices.iter().map(device).collect();
                format!("{}={}", tier.name, devices.join("+"))
            };
            let tiers: Vec<String> = spec.tiers.iter().map(tier).collect();
            format!("memory={} {}", optional(spec.memory), tiers.join(" "))
        }
    };
    format!("{} ({}): {kind}", spec.name, spec.word)
}

fn parse_here(arguments: &[&str]) -> Result<Stores, String> {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let machine = Machine { memory: 100 << 30, read: &read };
    parse_all(&arguments, &machine).map_err(|error| error.to_string())
}

fn check(arguments: &[&str], expected: Result<&[&str], &str>) {
    let found = parse_here(arguments).map(|stores| stores.specs.iter().map(print).collect::<Vec<_>>());
    let expected =
        expected.map(|specs| specs.iter().map(|&spec| spec.to_owned()).collect()).map_err(str::to_owned);
    assert_eq!(found, expected, "{arguments:?}");
}

/// One store `s0`, and nothing said of `Transient`.
fn one(argument: &str, expected: &str) {
    let expected = format!("s0 ({expected}");
    check(&[argument], Ok(&[&expected, "Transient (malloc): memory -"]));
}

fn refused(argument: &str, why: &str) {
    check(&[argument], Err(why));
}

#[test]
fn names_and_order() {
    const TRANSIENT: &str = "Transient (malloc): memory -";
    check(&[], Ok(&["s0 (malloc): memory -", TRANSIENT]));
    check(
        &["malloc,6000m", "Transient=malloc,2000m"],
        Ok(&["s0 (malloc): memory 6000M", "Transient (malloc): memory 2000M"]),
    );
    check(&["Transient=malloc,1g"], Ok(&["s0 (malloc): memory -", "Transient (malloc): memory 1G"]));
    check(
        &["a=malloc,1G", "default,2G", "malloc"],
        Ok(&["a (malloc): memory 1G", "s0 (malloc): memory 2G", "s1 (malloc): memory -", TRANSIENT]),
    );
    check(&["disk=file,/x,50G", "disk=malloc"], Err("(-s disk=malloc) 'disk' is already defined"));
    check(&["x=malloc", "x=malloc"], Err("(-s x=malloc) 'x' is already defined"));
    refused("1x=malloc", "invalid -s name \"1x\"=[...]");
    refused("a b=malloc", "invalid -s name \"a b\"=[...]");
    refused("=malloc", "invalid -s name \"\"=[...]");
    refused("x=", "Empty named -s argument \"x=\"");
    refused("", "-s argument lacks strategy {malloc, file, persistent, tier, ...}");
    refused("foo", "Unknown storage method \"foo\"");
    refused(",1g", "Unknown storage method \"\"");
    refused("MALLOC", "Unknown storage method \"MALLOC\"");
}

#[test]
fn memory() {
    one("malloc,", "malloc): memory -");
    one("malloc,1.5g", "malloc): memory 1536M");
    one("umem,1g", "umem): memory 1G");
    one("debug", "debug): memory -");
    one("debug,lessspace", "debug): memory -");
    one("buddy,2g", "buddy): memory 2G");
    one("buddy,2g,4k", "buddy): memory 2G");
    assert_eq!(
        parse_here(&["buddy,2g,4k"]).unwrap().warnings,
        ["-s buddy: minpage 4k has nothing to act on: memory is not given out in pages"]
    );
    let small = "too small, did you forget to specify M or G?";
    refused("malloc,100k", &format!("(-smalloc) size \"100k\": {small}"));
    refused("malloc,0", &format!("(-smalloc) size \"0\": {small}"));
    refused("malloc,1g,x", "(-smalloc) too many arguments (x)");
    refused("malloc,x", "(-smalloc) size \"x\": Invalid number");
    refused("malloc,-1", "(-smalloc) size \"-1\": Invalid number");
    refused("malloc,1.2.3g", "(-smalloc) size \"1.2.3g\": Invalid number");
    refused("malloc,5%", "(-smalloc) size \"5%\": Unknown BYTES unit of measurement ([KMGTP][B])");
    refused("malloc,18446744073709551616", "(-smalloc) size \"18446744073709551616\": Too many digits");
    refused("debug,1g", "(-sdebug) unknown option \"1g\" (there are lessspace and maxspace)");
    refused("buddy", "(-sbuddy) no size specified");
    refused("buddy,1g,3k", "(-sbuddy) invalid minpage: \"3k\" (give a power of two)");
}

#[test]
fn file() {
    one("file,/x,50G", "file): file /x 50G - Random");
    one("file,/x", "file): file /x - - Random");
    one("file,/x,90%,4k,sequential", "file): file /x 90% 4k Sequential");
    one("file,/x,1G,,normal", "file): file /x 1G - Normal");
    refused("file", "(-sfile) path is mandatory");
    refused("file,", "(-sfile) path is mandatory");
    refused("file,/tmp,1k", "(-sfile) size \"1k\": too small, did you forget to specify M or G?");
    refused("file,/x,10x", "(-sfile) size \"10x\": Unknown BYTES unit of measurement ([KMGTP][B])");
    refused(
        "file,/x,101%",
        "(-sfile) invalid size: \"101%\" (give 1% to 100% of what is free, or a number of bytes)",
    );
    refused("file,/x,1G,x", "(-sfile) granularity \"x\": Invalid number");
    refused("file,/x,1G,5000", "(-sfile) invalid granularity: \"5000\" (give a power of two)");
    refused("file,/x,1G,,foo", "(-sfile) invalid advice: \"foo\" (give normal, random or sequential)");
    refused("file,/x,1G,4k,random,x", "(-sfile) too many arguments (x)");
}

#[test]
fn persistent() {
    one("persistent,/x,10G", "persistent): disk /x:10G memory=- region=- entries=-");
    one("persistent,/dev/sdb", "persistent): disk /dev/sdb:- memory=- region=- entries=-");
    one("persistent,/dev/sdb,memory=2G", "persistent): disk /dev/sdb:- memory=2G region=- entries=-");
    one(
        "persistent,/x,10G,entries=5000000,region=128M,memory=2G",
        "persistent): disk /x:10G memory=2G region=128M entries=5000000",
    );
    let options = "(there are memory=size, admit=all|second, region=size and entries=number)";
    refused("persistent", "(-spersistent) path is mandatory");
    refused("persistent,/x,10", "(-spersistent) size \"10\": too small, did you forget to specify M or G?");
    refused("persistent,/x,1G,memry=1G", &format!("(-spersistent) unknown option \"memry=1G\" {options}"));
    refused("persistent,/x,1G,2G", &format!("(-spersistent) unknown option \"2G\" {options}"));
    refused("persistent,/x,1G,memory=1G,memory=2G", "(-spersistent) memory is given twice");
    refused("persistent,/x,1G,memory=x", "(-spersistent) memory \"x\": Invalid number");
    refused(
        "persistent,/x,1G,region=3M1",
        "(-spersistent) region \"3M1\": Unknown BYTES unit of measurement ([KMGTP][B])",
    );
    for region in ["1k", "2G", "65537"] {
        let text =
            format!("(-spersistent) invalid region: \"{region}\" (give a multiple of 4k from 64k to 1G)");
        refused(&format!("persistent,/x,1G,region={region}"), &text);
    }
    refused(
        "persistent,/x,1G,entries=0",
        "(-spersistent) invalid entries: \"0\" (give how many objects there may be)",
    );
    one("fellow,/x,100G,5G,64k", "fellow): disk /x:100G memory=5G region=- entries=1638400");
    refused(
        "fellow,/x,100G,5G",
        "(-sfellow) invalid objsize_hint: \"\" (give path,dsksize,memsize,objsize_hint)",
    );
    refused(
        "fellow,/x,100G,5G=m,64k",
        "(-sfellow) invalid memsize: \"5G=m\" (give a size: no store shares another's memory)",
    );
}

#[test]
fn tiers() {
    one(
        "tier,memory=4G,fast=/ssd/a:200G,fast=/ssd/b:200G,slow=/hdd/a:10T",
        "tier): memory=4G fast=/ssd/a:200G+/ssd/b:200G slow=/hdd/a:10T",
    );
    one("tier,slow=/dev/sda,fast=/dev/nvme0n1", "tier): memory=- fast=/dev/nvme0n1:- slow=/dev/sda:-");
    one("tier,fast=/a:b:1G", "tier): memory=- fast=/a:b:1G");
    let options = "(there are memory=size, admit=all|second, fast=path[:size] and slow=path[:size])";
    refused("tier", "(-stier) no device to keep objects on: add fast=path:size or slow=path:size");
    refused("tier,memory=1G", "(-stier) no device to keep objects on: add fast=path:size or slow=path:size");
    refused("tier,hdd=/x:1G", &format!("(-stier) unknown option \"hdd=/x:1G\" {options}"));
    refused("tier,/x", &format!("(-stier) unknown option \"/x\" {options}"));
    refused("tier,fast=/x:1G,memory=1G,memory=1G", "(-stier) memory is given twice");
    refused("tier,fast=:1G", "(-stier) path is mandatory");
    refused("tier,fast=", "(-stier) path is mandatory");
    refused("tier,fast=/a:b", "(-stier) size \"b\": Invalid number");
}

#[test]
fn varnish_enterprise() {
    one(
        "mse,/mse.conf",
        "mse): memory=80G disk=/var/lib/mse/store1.dat:100G+/var/lib/mse/store2.dat:100G+/mnt/store3.dat:1T",
    );
    assert_eq!(
        parse_here(&["mse,/mse.conf"]).unwrap().warnings,
        [
            "-s mse: \"/mse.conf\" line 21: align has nothing to act on here",
            "-s mse: \"/mse.conf\" line 23: memcache_chunksize has nothing to act on here"
        ]
    );
    one("mse4,/mse4.conf", "mse4): memory=80G disk=/d/store:2043G");
    one("mse", "mse): memory 80G");
    one("mse,/memory.conf", "mse): memory 5G");
    one("mse,/bare.conf", "mse): memory 1G");
    one("mse4", "mse4): memory 80G");
    refused("mse,/x.conf", "(-smse) cannot read \"/x.conf\": No such file or directory");
    refused("mse,/mse.conf,x", "(-smse) too many arguments (x)");
    refused("mse,/empty.conf", "(-smse) \"/empty.conf\" line 1: there is no env: { ... }");
    for (text, why) in [
        ("env=1", "env must be a group: { ... }"),
        ("env={memcache_size=5}", "memcache_size must be a text in quotes"),
        ("env={memcache_size=\"5k\"}", "memcache_size \"5k\": too small, did you forget to specify M or G?"),
        ("env={books=\"x\"}", "books must be a list of groups: ( { ... }, ... )"),
        ("env={books=(1)}", "books must be a list of groups: ( { ... }, ... )"),
        ("env={books=({id=\"b\"})}", "a book without stores"),
        ("env={books=({stores=({size=\"1G\"})})}", "a store without filename"),
        (
            "env={books=({stores=({filename=\"/x\";size=\"1y\"})})}",
            "size \"1y\": Unknown BYTES unit of measurement ([KMGTP][B])",
        ),
        ("env={", "the end of the file where '}' was expected| for what began in line 1"),
    ] {
        let path = format!("/text:{text}");
        let why = why.replace('|', ",");
        refused(&format!("mse,{path}"), &format!("(-smse) \"{path}\" line 1: {why}"));
    }
}

#[test]
fn specs_travel_as_they_are() {
    let stores = parse_here(&["malloc,1g", "mse,/mse.conf", "file,/ü,90%", "persistent,/x,1G"]).unwrap();
    let sent = serde_json::to_string(&stores.specs).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Spec>>(&sent).unwrap(), stores.specs);
}
